package recipes

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
)

// Likely returns the recipes of the catalog that Detect could find for a command.
// Most jobs' scripts speak of one framework or of none, and every start of a job
// waits for this: of the others only the marks are read.
func Likely(cmd Command) ([]Recipe, error) {
	files, err := catalogFiles()
	if err != nil {
		return nil, err
	}
	all, faults := make([]Recipe, len(files)), make([]error, len(files))
	likely := make([]bool, len(files))
	var reading sync.WaitGroup
	for i, file := range files {
		reading.Go(func() {
			if likely[i], faults[i] = mayMatch(file, cmd); likely[i] {
				all[i], faults[i] = embedded(file)
			}
		})
	}
	reading.Wait()
	var found []Recipe
	for i, r := range all {
		if likely[i] {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b Recipe) int { return strings.Compare(a.Name, b.Name) })
	return found, errors.Join(faults...)
}

// mayMatch reads the marks of one recipe and tells whether they could be enough:
// what Detection.match cannot do without. Files have their marks before their
// knobs; one that has not is always taken for likely.
func mayMatch(file string, cmd Command) (bool, error) {
	text, err := catalog.ReadFile("catalog/" + file)
	if err != nil {
		return false, fmt.Errorf("read the catalog of recipes: %w", err)
	}
	head, _, _ := bytes.Cut(text, []byte("\n[knobs"))
	var marks struct {
		Detect struct{ Imports, Text, Source, Programs, Args, Overrides, Keys []string }
	}
	if _, err := toml.Decode(string(head), &marks); err != nil {
		return true, nil // the whole file is parsed, and complained of, instead
	}
	d := Detection{Imports: marks.Detect.Imports, Text: marks.Detect.Text, Source: marks.Detect.Source, Programs: marks.Detect.Programs}
	others := len(marks.Detect.Args) + len(marks.Detect.Overrides) + len(marks.Detect.Keys)
	switch {
	case d.program(cmd) != "" || d.source(cmd):
		return true, nil
	case len(d.Imports)+len(d.Text) == 0 && len(d.Programs)+len(d.Source) > 0 && others == 0:
		return false, nil // nothing else tells it
	case cmd.Script == nil || len(d.Imports)+len(d.Text) == 0:
		return true, nil // arguments and keys can be marks enough
	}
	return slices.ContainsFunc(d.Imports, func(name string) bool {
		root, _, _ := strings.Cut(name, ".")
		return bytes.Contains(cmd.Script, []byte(root))
	}) || slices.ContainsFunc(d.Text, func(t string) bool { return bytes.Contains(cmd.Script, []byte(t)) }), nil
}
