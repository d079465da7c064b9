package script

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/gpurun/gpurun/recipes/catalog"
	"github.com/gpurun/gpurun/recipes/format"
)

// Likely lists the files of the catalog whose recipes Detect could find for a command. Most jobs'
// scripts use one framework or none, and every start of a job waits for this, so only the signs
// are read.
func Likely(cmd format.Command) ([]string, error) {
	files, err := catalog.Files()
	if err != nil {
		return nil, err
	}
	likely, faults := make([]bool, len(files)), make([]error, len(files))
	var reading sync.WaitGroup
	for i, file := range files {
		reading.Go(func() { likely[i], faults[i] = mayMatch(file, cmd) })
	}
	reading.Wait()
	found := []string{}
	for i, file := range files {
		if likely[i] {
			found = append(found, file)
		}
	}
	return found, errors.Join(faults...)
}

// mayMatch reads the signs of one recipe and reports whether they could suffice: the signs that
// detection.match requires. Files have their signs before their knobs; a file without any is
// always considered likely.
func mayMatch(file string, cmd format.Command) (bool, error) {
	text, err := catalog.Text(file)
	if err != nil {
		return false, err
	}
	head, _, _ := bytes.Cut(text, []byte("\n[knobs"))
	marks, err := format.Marks(head)
	if err != nil {
		return true, nil // the whole file is parsed instead, and its errors reported
	}
	d := detection(marks)
	others := len(d.Args) + len(d.Overrides) + len(d.Env) + len(d.Keys)
	switch {
	case d.program(cmd) != "" || d.source(cmd):
		return true, nil
	case len(d.Imports)+len(d.Text) == 0 && len(d.Programs)+len(d.Source) > 0 && others == 0:
		return false, nil // it has no other signs
	case cmd.Script == nil || len(d.Imports)+len(d.Text) == 0:
		return true, nil // arguments and keys can be sufficient signs
	}
	return slices.ContainsFunc(cmd.Sources(), func(source []byte) bool {
		return slices.ContainsFunc(d.Imports, func(name string) bool {
			root, _, _ := strings.Cut(name, ".")
			return bytes.Contains(source, []byte(root))
		}) || slices.ContainsFunc(d.Text, func(t string) bool { return bytes.Contains(source, []byte(t)) })
	}), nil
}
