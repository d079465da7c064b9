package job

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/recipes/document"
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

// A importFollower reads the local modules that a script imports. Nothing is run for that.
type importFollower struct {
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
	f := &importFollower{most: mostModules, library: installed(s.sourcePath), seen: map[string]bool{s.sourcePath: true}}
	switch s.Job.Kind {
	case Module:
		f.roots = []string{moduleRoot(s.sourcePath, s.Job.Argv[0])}
		f.only, _, _ = strings.Cut(s.Job.Argv[0], ".")
		if f.roots[0] == s.Job.Workdir {
			f.only = ""
		}
	default:
		f.roots = []string{filepath.Dir(s.sourcePath)}
		f.packages = s.packagesAbove()
	}
	if f.only == "" {
		f.roots = append(f.roots, s.importPath()...)
	}
	f.follow([]format.Source{{Path: s.sourcePath, Text: s.source}}, importLevels)
	return f.found
}

// importPath is where the job imports from: some folders, and those of PYTHONPATH.
func (s Inspected) importPath(folders ...string) []string {
	for _, folder := range filepath.SplitList(s.env["PYTHONPATH"]) {
		if folder != "" {
			folders = append(folders, s.under(folder))
		}
	}
	return folders
}

// packagesAbove are the folders between the working directory and the script, each with
// the folder that it is in.
func (s Inspected) packagesAbove() map[string]string {
	above := map[string]string{}
	for folder := filepath.Dir(s.sourcePath); strings.HasPrefix(folder, s.Job.Workdir+string(filepath.Separator)); folder = filepath.Dir(folder) {
		above[filepath.Base(folder)] = filepath.Dir(folder)
	}
	return above
}

// follow reads what sources import, through as many levels.
func (f *importFollower) follow(level []format.Source, levels int) {
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
func (f *importFollower) imports(source format.Source) []format.Source {
	var next []format.Source
	for _, i := range script.Imports(source.Text) {
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
func (f *importFollower) read(path string) (format.Source, bool) {
	if f.seen[path] || len(f.found) >= f.most || !f.library && installed(path) {
		return format.Source{}, false
	}
	f.seen[path] = true
	text, err := ReadFile(path, largestModule)
	if err != nil {
		return format.Source{}, false // Python reports what is wrong with it
	}
	s := format.Source{Path: path, Text: text}
	f.found = append(f.found, s)
	return s, true
}

// definitionLevels is how far the imports of a file that defines a framework's
// arguments are followed: those of dataclasses are elsewhere in the package.
const definitionLevels = 2

// mostDefinitions bounds the files that are read for a framework's arguments.
const mostDefinitions = 100

// parser reads which arguments the job takes, out of its own sources and the files in
// which its framework defines some.
func (s Inspected) parser(ctx context.Context, r format.Recipe) (*format.Parser, error) {
	code := s.reading.Code
	if len(r.Definitions) == 0 || code == nil {
		return code.Parser(), nil
	}
	defined, err := s.read(ctx, s.definitions(ctx, r.Definitions), false, false)
	p := slices.Concat(code, defined.Code).Parser()
	if defined.Code == nil {
		p.Incomplete()
	}
	return p, err
}

// definitions are the first of some files of a framework's package that is found where
// the job would import it from, and what it imports of the same package; none where
// the framework is not there.
func (s Inspected) definitions(ctx context.Context, names []string) []format.Source {
	folders := s.importPath(filepath.Dir(s.sourcePath))
	for _, name := range names {
		for _, folder := range folders {
			if found := definedIn(folder, name); found != nil {
				return found
			}
		}
	}
	if s.Interpreter == nil {
		return nil
	}
	paths, err := s.Interpreter.Files(ctx, names...)
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
	f := &importFollower{roots: []string{folder}, only: top, most: mostDefinitions, library: true, seen: map[string]bool{}}
	if first, ok := f.read(path); ok {
		f.follow([]format.Source{first}, definitionLevels)
	}
	return f.found
}

// Nearest returns the word that was probably meant by a wrong one, or empty.
func Nearest(wrong string, words []string) string { return document.Nearest(wrong, words) }

// listed is how many names of a folder are looked through for the one that was meant.
const listed = 1000

// nearestFile is the path that was probably meant by one that is not there: a file of
// the same extension beside it; empty without one.
func nearestFile(path string) string {
	dir, base := filepath.Split(path)
	f, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return ""
	}
	defer f.Close()
	entries, _ := f.ReadDir(listed) // what was read before an error is enough
	var names []string
	for _, e := range entries {
		if !e.IsDir() && filepath.Ext(e.Name()) == filepath.Ext(base) {
			names = append(names, e.Name())
		}
	}
	if meant := Nearest(base, names); meant != "" {
		return dir + meant
	}
	return ""
}

// The largest files that are read whole, in bytes. What is larger was named by
// mistake.
const (
	largestJob    = 256 << 10 // a train.toml
	largestRecipe = 1 << 20
	largestFile   = 64 << 20 // a configuration file of the job
)

// ReadFile returns the content of a regular file of at most most bytes. A pipe or a
// device, which may never end, is refused before a byte is read: a pipe's could not
// be read a second time by the job.
func ReadFile(path string, most int64) ([]byte, error) {
	refuse := func(err error) ([]byte, error) {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	// Without O_NONBLOCK, to open a pipe waits for somebody who writes to it.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return refuse(unix.EISDIR)
	case mode&fs.ModeNamedPipe != 0:
		return refuse(fmt.Errorf("it is a pipe, not a regular file"))
	case !mode.IsRegular():
		return refuse(fmt.Errorf("it is a device, not a regular file"))
	case info.Size() > most:
		return refuse(tooLarge(most))
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most { // it has grown, or its size is not told, as in /proc
		return refuse(tooLarge(most))
	}
	return text, nil
}

// tooLarge is the error for a file of more than so many bytes.
type tooLarge int64

func (most tooLarge) Error() string {
	if most < 1<<20 {
		return fmt.Sprintf("it is too large: more than %d KiB", most>>10)
	}
	return fmt.Sprintf("it is too large: more than %d MiB", most>>20)
}
