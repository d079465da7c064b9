package job

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/script"
)

const (
	// importLevels is how far imports are followed: a module that the script imports
	// is level 1.
	importLevels = 4
	// mostModules and largestModule, in bytes, bound what is read of a job's own code.
	mostModules   = 300
	largestModule = 1 << 20
)

// A follower reads the local modules that a script imports. Nothing is run for that.
type follower struct {
	roots []string // folders of the interpreter's path in which the job's own code is
	// packages are the roots of packages, by name, in which the script itself lies: an
	// import of them is found where they are installed from.
	packages map[string]string
	only     string // where a root has other packages, too: the job's own; empty for all
	most     int    // files to read
	library  bool   // installed packages are read, too
	seen     map[string]bool
	found    []format.Source
}

// readModules reads the local modules that the job's script imports, through four
// levels of them; nil where there is no source.
func (s Inspected) readModules() []format.Source {
	if s.source == nil || s.sourcePath == "" {
		return nil
	}
	f := &follower{most: mostModules, library: installed(s.sourcePath), seen: map[string]bool{s.sourcePath: true}}
	switch s.job.Kind {
	case Module:
		f.roots = []string{moduleRoot(s.sourcePath, s.job.Argv[0])}
		f.only, _, _ = strings.Cut(s.job.Argv[0], ".")
		if f.roots[0] == s.job.Workdir {
			f.only = ""
		}
	default:
		f.roots = []string{filepath.Dir(s.sourcePath)}
		f.packages = s.packagesAbove()
	}
	for _, folder := range filepath.SplitList(s.env["PYTHONPATH"]) {
		if folder != "" && f.only == "" {
			f.roots = append(f.roots, s.under(folder))
		}
	}
	f.follow([]format.Source{{Path: s.sourcePath, Text: s.source}}, importLevels)
	return f.found
}

// packagesAbove are the folders between the working directory and the script, each with
// the folder that it is in.
func (s Inspected) packagesAbove() map[string]string {
	above := map[string]string{}
	for folder := filepath.Dir(s.sourcePath); strings.HasPrefix(folder, s.job.Workdir+string(filepath.Separator)); folder = filepath.Dir(folder) {
		above[filepath.Base(folder)] = filepath.Dir(folder)
	}
	return above
}

// follow reads what sources import, through as many levels.
func (f *follower) follow(level []format.Source, levels int) {
	for range levels {
		var next []format.Source
		for _, source := range level {
			next = append(next, f.imports(source)...)
		}
		level = next
	}
}

// sources are the script's source and its modules'; nil where there is none.
func (s Inspected) sources() []format.Source {
	if s.source == nil {
		return nil
	}
	return append([]format.Source{{Path: s.sourcePath, Text: s.source}}, s.modules...)
}

// libraries matches the folders in which Python has its own and installed modules.
var libraries = regexp.MustCompile(`/(site|dist)-packages/|/lib(64)?/python\d+(\.\d+)?/`)

// installed reports whether a file is one of a library, and not of the job's own code.
func installed(path string) bool { return libraries.MatchString(path) }

// moduleRoot is the folder of the interpreter's path that a module's file is below.
func moduleRoot(file, module string) string {
	root := filepath.Dir(file)
	if filepath.Base(file) == "__main__.py" {
		root = filepath.Dir(root)
	}
	for range strings.Count(module, ".") {
		root = filepath.Dir(root)
	}
	return root
}

// imports reads what one source imports and nobody has read yet.
func (f *follower) imports(source format.Source) []format.Source {
	var next []format.Source
	for _, i := range script.Imported(source.Text) {
		up, files := i.Files()
		roots := f.roots
		if up >= 0 {
			folder := filepath.Dir(source.Path)
			for range up {
				folder = filepath.Dir(folder)
			}
			roots = []string{folder}
		} else if top, _, _ := strings.Cut(i.Module, "."); f.only != "" && top != f.only {
			continue
		} else if root := f.packages[top]; root != "" {
			roots = append(slices.Clip(roots), root)
		}
		for _, file := range files {
			for _, root := range roots {
				if found, ok := f.read(filepath.Join(root, filepath.FromSlash(file)+".py")); ok {
					next = append(next, found)
					break // an import finds the first
				}
			}
		}
	}
	return next
}

// read reads a file that has not been read; one that is too large is no module.
func (f *follower) read(path string) (format.Source, bool) {
	if f.seen[path] || len(f.found) >= f.most || !f.library && installed(path) {
		return format.Source{}, false
	}
	f.seen[path] = true
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > largestModule {
		return format.Source{}, false
	}
	text, err := readBounded(path)
	if err != nil {
		return format.Source{}, false // Python will say what is wrong with it
	}
	s := format.Source{Path: path, Text: text}
	f.found = append(f.found, s)
	return s, true
}

// readBounded reads a file up to the largest module.
func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, largestModule))
	return slices.Clip(text), err
}
