package detect

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/recipes/format"
)

// LikelyFiles lists the files of the catalog whose recipes Detect could find for a command. Most jobs'
// scripts use one framework or none, and every start of a job waits for this, so only the signs
// are read, once.
func LikelyFiles(cmd format.Command) ([]string, error) {
	all, err := signs()
	if err != nil {
		return nil, err
	}
	found := []string{}
	for _, one := range all {
		if one.unreadable || one.detection.mayMatch(cmd) {
			found = append(found, one.file)
		}
	}
	return found, nil
}

// A fileSigns has the signs of one recipe. If they are unreadable, the whole file is parsed instead, and its errors
// reported.
type fileSigns struct {
	file       string
	detection  detection
	unreadable bool
}

// signs reads the [detect] table of each recipe in the catalog.
var signs = sync.OnceValues(func() ([]fileSigns, error) {
	files, err := recipes.CatalogFiles()
	all := make([]fileSigns, len(files))
	for i, file := range files {
		text, failed := recipes.CatalogText(file)
		if failed != nil {
			return nil, failed
		}
		_, rest, _ := bytes.Cut(text, []byte("\n[detect]\n"))
		table, _, _ := bytes.Cut(rest, []byte("\n["))
		marks, failed := format.Marks(append([]byte("[detect]\n"), table...))
		all[i] = fileSigns{file: file, detection: detection(marks), unreadable: failed != nil || rest == nil}
	}
	return all, err
})

// mayMatch reports whether the signs of a recipe could suffice: the signs that match requires.
func (t detection) mayMatch(cmd format.Command) bool {
	others := len(t.Args) + len(t.Overrides) + len(t.Env) + len(t.Keys)
	switch {
	case t.program(cmd) != "" || t.source(cmd) != nil:
		return true
	case len(t.Imports)+len(t.Text) == 0 && len(t.Programs)+len(t.Source) > 0 && others == 0:
		return false // it has no other signs
	case len(t.Imports)+len(t.Text) == 0:
		return len(t.Keys) > 0 || t.mentioned(cmd)
	case cmd.Script == nil:
		return true // arguments and keys can be sufficient signs
	}
	return slices.ContainsFunc(cmd.Sources(), func(source []byte) bool {
		return slices.ContainsFunc(t.Imports, func(name string) bool {
			root, _, _ := strings.Cut(name, ".")
			return bytes.Contains(source, []byte(root))
		}) || slices.ContainsFunc(t.Text, func(t string) bool { return bytes.Contains(source, []byte(t)) })
	})
}

// mentioned reports whether a word of the command could be one of the arguments, whole or abbreviated, or name a file
// that has them, and whether one of the variables is set.
func (t detection) mentioned(cmd format.Command) bool {
	for i, word := range cmd.Argv {
		if _, known := edit.FormatOf(word, nil); known && i > 0 {
			return true
		}
		given := bare(word)
		like := func(name string) bool {
			return strings.HasPrefix(bare(name), given) || strings.HasPrefix(given, bare(name))
		}
		if i > 0 && given != "" && slices.ContainsFunc(slices.Concat(t.Args, t.Overrides), like) {
			return true
		}
	}
	return slices.ContainsFunc(t.Env, func(name string) bool { return cmd.Env[name] != "" })
}

// bare is an argument's name without its value, in one spelling.
func bare(word string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-+~"), "=")
	return strings.ReplaceAll(name, "_", "-")
}
