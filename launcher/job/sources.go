package job

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/detect"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/recipes/format"
)

const (
	// importLevels is the depth to which imports are followed. A module that the script imports is at level
	// 1.
	importLevels = 4
	// mostModules, and largestModule in bytes, bound how much of a job's own code is read.
	mostModules   = 300
	largestModule = 1 << 20
	// mostFolders bounds the folders in which imports are searched for.
	mostFolders = 40
)

// An importFollower reads the local modules that a script imports, without running code.
type importFollower struct {
	roots []string // folders in the interpreter's path with the job's own code
	// packages are the roots, by name, of packages that contain the script itself: they are the source of an
	// installed package that the script imports.
	packages map[string]string
	// near are the folders around the script: an import that no root has is the source of a package that is
	// installed from there, or of a folder that the script adds to sys.path.
	near []string
	// site are the folders of the interpreter's installed packages.
	site    []string
	tops    map[string][]string // the folders of near that have a package or a module of a name
	only    string              // the job's own packages, if a root has others too; empty for all
	most    int                 // number of files to read
	library bool                // installed packages are read too
	seen    map[string]bool
	found   []format.Source
}

// readModules reads the local modules that the job's script imports, to a depth of four levels; nil if there
// is no source.
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
		project := s.project()
		f.packages = s.packagesAbove(project)
		f.near, f.site, f.tops = s.around(project), s.sitePackages(), map[string][]string{}
	}
	if f.only == "" {
		f.roots = append(f.roots, s.importPath()...)
	}
	script := format.Source{Path: s.sourcePath, Text: s.source}
	f.widen(script)
	for folders := -1; folders < len(f.near); { // again, with the folders that the sources add
		folders = len(f.near)
		f.follow(append([]format.Source{script}, f.found...), importLevels)
	}
	return f.found
}

// importPath returns the folders from which the job imports: the given ones, and those of PYTHONPATH.
func (s Inspected) importPath(folders ...string) []string {
	for _, folder := range filepath.SplitList(s.env["PYTHONPATH"]) {
		if folder != "" {
			folders = append(folders, s.under(folder))
		}
	}
	return folders
}

// projectFiles mark the folder of a project that is installed from there.
var projectFiles = []string{"setup.py", "pyproject.toml", "setup.cfg"}

// project returns the folder of the project that has the script: the working directory, or one above it from which
// the project is installed.
func (s Inspected) project() string {
	const levels = 3
	folder := s.Job.Workdir
	for range levels {
		for _, name := range projectFiles {
			if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
				return folder
			}
		}
		folder = filepath.Dir(folder)
	}
	return s.Job.Workdir
}

// packagesAbove returns the folders between the project's and the script, each with its parent folder.
func (s Inspected) packagesAbove(project string) map[string]string {
	above := map[string]string{}
	for folder := filepath.Dir(s.sourcePath); strings.HasPrefix(folder,
		project+string(filepath.Separator)); folder = filepath.Dir(folder) {
		above[filepath.Base(folder)] = filepath.Dir(folder)
	}
	return above
}

// around returns the folders from the script's own up to the project's.
func (s Inspected) around(project string) []string {
	folders := []string{filepath.Dir(s.sourcePath)}
	for folder := folders[0]; strings.HasPrefix(folder, project+string(filepath.Separator)); {
		folder = filepath.Dir(folder)
		folders = append(folders, folder)
	}
	if src := filepath.Join(s.Job.Workdir, "src"); !slices.Contains(folders, src) {
		folders = append(folders, src)
	}
	return folders
}

// sitePackages returns the folders of the interpreter's installed packages, as far as its path shows them.
func (s Inspected) sitePackages() []string {
	if s.Interpreter == nil {
		return nil
	}
	prefix := filepath.Dir(filepath.Dir(s.Interpreter.Path()))
	found, _ := filepath.Glob(filepath.Join(prefix, "lib", "python3*", "*-packages"))
	return found
}

var (
	changesPath = lazy.Regexp(`\bsys\.path\b|\baddsitedir\b|__import__\(['"]_init_paths|import _init_path`)
	pathWord    = lazy.Regexp(`['"]([\w./-]+)['"]`)
)

// widen adds the folders that a source adds to sys.path, by the words in its text.
func (f *importFollower) widen(source format.Source) {
	if f.tops == nil || !changesPath().Match(source.Text) {
		return
	}
	for line := range strings.Lines(string(source.Text)) {
		if !strings.Contains(line, "path") && !strings.Contains(line, "join") {
			continue
		}
		for _, m := range pathWord().FindAllStringSubmatch(line, -1) {
			for _, from := range f.near {
				folder := filepath.Join(from, m[1])
				info, err := os.Stat(folder)
				if err == nil && info.IsDir() && !slices.Contains(f.near, folder) && len(f.near) < mostFolders {
					f.near = append(f.near, folder)
					clear(f.tops)
				}
			}
		}
	}
}

// nearby returns the folders around the script with a package or a module of this name that is not installed.
func (f *importFollower) nearby(top string) []string {
	if f.tops == nil {
		return nil
	}
	has := func(folder string) bool {
		for _, name := range []string{filepath.Join(top, "__init__.py"), top + ".py"} {
			if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
				return true
			}
		}
		info, err := os.Stat(filepath.Join(folder, top))
		return err == nil && info.IsDir()
	}
	found, known := f.tops[top]
	if !known && !slices.ContainsFunc(f.roots, has) && !slices.ContainsFunc(f.site, has) {
		found = slices.DeleteFunc(slices.Clone(f.near), func(folder string) bool { return !has(folder) })
	}
	f.tops[top] = found
	return found
}

// follow reads the modules that sources import, to the given depth.
func (f *importFollower) follow(level []format.Source, levels int) {
	for range levels {
		var next []format.Source
		for _, source := range level {
			next = append(next, f.imports(source)...)
		}
		level = next
	}
}

// sources returns the source of the script and its modules; nil if there is none.
func (s Inspected) sources() []format.Source {
	if s.source == nil {
		return nil
	}
	return append([]format.Source{{Path: s.sourcePath, Text: s.source}}, s.modules...)
}

// libraries matches the folders of Python's own and of installed modules.
var libraries = lazy.Regexp(`/(site|dist)-packages/|/lib(64)?/python\d+(\.\d+)?/`)

// installed reports whether a file belongs to a library, not to the job's own code.
func installed(path string) bool { return libraries().MatchString(path) }

// moduleRoot returns the folder in the interpreter's path that contains a module's file.
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

// imports reads the modules that one source imports, except those read already.
func (f *importFollower) imports(source format.Source) []format.Source {
	var next []format.Source
	for _, i := range detect.Imports(source.Text) {
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
		} else {
			roots = append(slices.Clip(roots), f.nearby(top)...)
		}
		for _, file := range files {
			for _, root := range roots {
				if found, ok := f.read(filepath.Join(root, filepath.FromSlash(file)+".py")); ok {
					next = append(next, found)
					break // an import uses the first match
				}
			}
		}
	}
	return next
}

// read reads a file that has not been read yet. A file that is too large is no module.
func (f *importFollower) read(path string) (format.Source, bool) {
	if f.seen[path] || len(f.found) >= f.most || !f.library && installed(path) {
		return format.Source{}, false
	}
	f.seen[path] = true
	text, err := ReadFile(path, largestModule)
	if err != nil {
		return format.Source{}, false // Python will report the error
	}
	s := format.Source{Path: path, Text: text}
	f.found = append(f.found, s)
	f.widen(s)
	return s, true
}

// definitionLevels is the depth to which the imports of a file with a framework's arguments are followed:
// dataclasses with arguments are in other files of the package.
const definitionLevels = 2

// mostDefinitions bounds how many files are read for a framework's arguments.
const mostDefinitions = 100

// parser reads which arguments the job accepts, from its own sources and the files in which its framework
// defines arguments.
func (s Inspected) parser(ctx context.Context, r format.Recipe) (*format.Parser, error) {
	code := s.reading.Code
	if len(r.Definitions) == 0 || code == nil {
		return code.Parser(), nil
	}
	defined, err := s.read(ctx, s.definitions(ctx, r.Definitions), false)
	p := slices.Concat(code, defined.Code).Parser()
	if defined.Code == nil {
		p.Incomplete()
	}
	return p, err
}

// definitions returns the first of the named files that is found where the job would import its framework
// from, and the files of the same package that it imports; none if the framework is not installed.
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
		return nil // the job itself will report the interpreter's error
	}
	for i, path := range paths {
		if path != "" {
			return definedIn(strings.TrimSuffix(path, names[i]), names[i])
		}
	}
	return nil
}

// definedIn reads one file below a folder, and the files of its package that it imports.
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

// Nearest returns the word that was probably meant by a wrong one, or "".
func Nearest(wrong string, words []string) string { return edit.Nearest(wrong, words) }

// listed bounds how many names in a folder are searched for the one that was meant.
const listed = 1000

// nearestFile returns the path that was probably meant by a missing one: a file with the same extension in
// the same folder; empty for none.
func nearestFile(path string) string {
	dir, base := filepath.Split(path)
	f, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return ""
	}
	defer f.Close()
	entries, _ := f.ReadDir(listed) // after an error, the names read so far are enough
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

// The largest files that are read as a whole, in bytes. A larger file was named by mistake.
const (
	largestJob    = 256 << 10 // a train.toml
	largestRecipe = 1 << 20
	largestFile   = 64 << 20 // a configuration file of the job
)

// ReadFile returns the content of a regular file of at most most bytes. It refuses a pipe or a device before
// it reads a byte: these may never end, and the job could not read a pipe's bytes again.
func ReadFile(path string, most int64) ([]byte, error) {
	refuse := func(err error) ([]byte, error) {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	// Without O_NONBLOCK, opening a pipe would wait for a writer.
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
	if int64(len(text)) > most { // it has grown, or has no size, as in /proc
		return refuse(tooLarge(most))
	}
	return text, nil
}

// tooLarge is the error for a file of more than this number of bytes.
type tooLarge int64

func (most tooLarge) Error() string {
	if most < 1<<20 {
		return fmt.Sprintf("it is too large: more than %d KiB", most>>10)
	}
	return fmt.Sprintf("it is too large: more than %d MiB", most>>20)
}
