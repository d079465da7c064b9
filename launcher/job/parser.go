package job

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/source"
)

// definitionLevels is how far the imports of a file that defines a framework's
// arguments are followed: those of dataclasses stand elsewhere in the package.
const definitionLevels = 2

// mostDefinitions bounds the files that are read for a framework's arguments.
const mostDefinitions = 100

// parser reads which arguments the job takes, out of its own sources and the files in
// which its framework defines some.
func (s Inspected) parser(ctx context.Context, r format.Recipe) *source.Parser {
	var texts [][]byte
	for _, own := range s.sources() {
		texts = append(texts, own.Text)
	}
	if len(r.Definitions) == 0 {
		return source.Parse(texts...)
	}
	defined := s.definitions(ctx, r.Definitions)
	for _, file := range defined {
		texts = append(texts, file.Text)
	}
	p := source.Parse(texts...)
	if len(defined) == 0 {
		p.Incomplete()
	}
	return p
}

// definitions are the first of some files of a framework's package that is found where
// the job would import it from, and what it imports of the same package; none where
// the framework is not there.
func (s Inspected) definitions(ctx context.Context, names []string) []format.Source {
	folders := []string{filepath.Dir(s.sourcePath)}
	for _, folder := range filepath.SplitList(s.env["PYTHONPATH"]) {
		folders = append(folders, s.under(folder))
	}
	for _, name := range names {
		for _, folder := range folders {
			if found := definedIn(folder, name); found != nil {
				return found
			}
		}
	}
	if s.python == nil {
		return nil
	}
	paths, err := s.python.Files(ctx, names...)
	if err != nil {
		return nil // the job itself will say what is wrong with its interpreter
	}
	for i, path := range paths {
		if path != "" {
			return definedIn(strings.TrimSuffix(path, names[i]), names[i])
		}
	}
	return nil
}

// definedIn reads one file below a folder, and what it imports of its package.
func definedIn(folder, name string) []format.Source {
	path := filepath.Join(folder, filepath.FromSlash(name))
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return nil
	}
	top, _, _ := strings.Cut(name, "/")
	f := &follower{roots: []string{folder}, only: top, most: mostDefinitions, library: true, seen: map[string]bool{}}
	if first, ok := f.read(path); ok {
		f.follow([]format.Source{first}, definitionLevels)
	}
	return f.found
}
