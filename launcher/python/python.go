// Package python asks the job's interpreter: where it is found, and why there; its
// packages and their versions; where it finds files among them; and what a job will
// need of it, by small programs that are run as ranks are (Script).
//
// An interpreter is asked by one script, which imports nothing of the job's, and
// its answer is kept for the life of this process. Listing the packages takes a
// tenth of a second and more, so that it is only done once something depends on it.
package python

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher/environ"
)

// describe is what an interpreter runs to tell of itself; "packages" as its argument
// makes it list those, too.
//
//go:embed describe.py
var describe string

const (
	// bound is how long an interpreter may take to answer.
	bound = 30 * time.Second
	// installBound is how long it may take where a wrapper such as uv run installs what
	// is missing before: to be cut short in the middle of that does harm, and the job
	// would wait for it, too.
	installBound = 15 * time.Minute
)

// An Interpreter is one Python, in one environment and one working directory. Its
// methods may be called from several goroutines; what they return must not be changed.
type Interpreter struct {
	command []string // its path, or the words of wrappers and the interpreter's name
	dir     string
	env     environ.Vars
	bound   time.Duration

	asking chan struct{} // holds a token while the interpreter is asked; guards what follows
	// told are the answers to other programs, by program and input.
	told map[[sha256.Size]byte]programAnswer
	// short is the answer without the packages, whole the one with them; nil where
	// nobody has asked.
	short, whole *answer
}

// An answer is what an interpreter said of itself, or why it did not.
type answer struct {
	Version  string            `json:"version"`
	Path     []string          `json:"path"`
	Packages map[string]string `json:"packages"`
	err      error
}

// interpreters are those that this process has met.
var interpreters = struct {
	sync.Mutex
	met map[string]*Interpreter
}{met: map[string]*Interpreter{}}

// At is the interpreter at an absolute path, as it runs in a directory with an
// environment. It is asked nothing yet.
func At(path, dir string, env environ.Vars) *Interpreter {
	return meet([]string{path}, dir, env, bound)
}

// Through is the interpreter that a wrapper finds: words are the wrapper's, and the
// interpreter's name. Where installs is set, to ask it may take minutes.
func Through(words []string, dir string, env environ.Vars, installs bool) *Interpreter {
	if installs {
		return meet(words, dir, env, installBound)
	}
	return meet(words, dir, env, bound)
}

// meet is the one interpreter of a command in a directory and an environment.
func meet(command []string, dir string, env environ.Vars, bound time.Duration) *Interpreter {
	key := fmt.Sprintf("%q %q %q", command, dir, env.Words())
	interpreters.Lock()
	defer interpreters.Unlock()
	if i := interpreters.met[key]; i != nil {
		return i
	}
	i := &Interpreter{command: slices.Clone(command), dir: dir, env: env.With(), bound: bound, asking: make(chan struct{}, 1)}
	interpreters.met[key] = i
	return i
}

// Path is where the interpreter is; the words that start it, where a wrapper finds it.
func (i *Interpreter) Path() string { return strings.Join(i.command, " ") }

// Packages are the versions of the packages that it has, by name in lower case. The
// error says why it does not tell: it cannot be run, takes longer than half a minute,
// is older than Python 3.8; or ctx is done.
func (i *Interpreter) Packages(ctx context.Context) (map[string]string, error) {
	a, err := i.ask(ctx, true)
	if err == nil && a.Packages == nil {
		err = errors.New("it cannot list them (importlib.metadata came with Python 3.8)")
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s for its packages: %w", i.Path(), err)
	}
	return a.Packages, nil
}

// Version is its own version, such as "3.12.4".
func (i *Interpreter) Version(ctx context.Context) (string, error) {
	a, err := i.ask(ctx, false)
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", i.Path(), err)
	}
	return a.Version, nil
}

// Files are where it finds files of its packages, in the order of names; empty
// where it has no such file. The working directory is none of its folders, unless
// PYTHONPATH names it.
func (i *Interpreter) Files(ctx context.Context, names ...string) ([]string, error) {
	a, err := i.ask(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("ask %s where %s is: %w", i.Path(), strings.Join(names, ", "), err)
	}
	files := make([]string, len(names))
	for k, name := range names {
		for _, folder := range a.Path {
			path := filepath.Join(folder, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				files[k] = path
				break
			}
		}
	}
	return files, nil
}

// ReadFile reads a file among its packages. The error is an fs.ErrNotExist where
// it has none.
func (i *Interpreter) ReadFile(ctx context.Context, name string) ([]byte, error) {
	files, err := i.Files(ctx, name)
	if err != nil {
		return nil, err
	}
	if files[0] == "" {
		return nil, fmt.Errorf("%s is not among the packages of %s: %w", name, i.Path(), fs.ErrNotExist)
	}
	return os.ReadFile(files[0])
}

// ask returns the interpreter's answer, with its packages where packages is true. It
// is started for that at most once.
func (i *Interpreter) ask(ctx context.Context, packages bool) (*answer, error) {
	select {
	case i.asking <- struct{}{}:
		defer func() { <-i.asking }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	kept := &i.whole
	if !packages && i.whole == nil {
		kept = &i.short
	}
	if *kept == nil {
		var args []string
		if packages {
			args = append(args, "packages")
		}
		a := i.run(ctx, args)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx) // it may answer another time
		}
		*kept = a
	}
	return *kept, (*kept).err
}

// run starts the interpreter and reads its answer.
func (i *Interpreter) run(ctx context.Context, args []string) *answer {
	limited, cancel := context.WithTimeout(ctx, i.bound)
	defer cancel()
	said, err := i.output(limited, nil, append([]string{"-c", i.program(describe)}, args...)...)
	if limited.Err() != nil {
		return &answer{err: fmt.Errorf("it has not answered after %s", i.bound)}
	}
	if err != nil {
		return &answer{err: err}
	}
	// What a sitecustomize prints comes before.
	lines := strings.Split(strings.TrimRight(said, "\n"), "\n")
	var a answer
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &a); err != nil || a.Version == "" {
		return &answer{err: errors.New("what it prints is no answer of Python")}
	}
	return &a
}
