package python

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/lazy"
)

// A Finder finds the interpreter of a job.
type Finder struct {
	// Named is the interpreter that the job names: a path or a bare name; empty for none.
	Named string
	// Launcher is the launcher whose interpreter the job would have had: a path or
	// a bare name; empty for the torchrun in PATH.
	Launcher string
	// Dir is the folder from which relative paths count.
	Dir string
	// Env is the job's environment.
	Env commandline.Environ
	// Look finds a name in PATH; nil for exec.LookPath.
	Look func(name string) (string, error)
}

// Find finds the Python that runs a script or a module. The order: the one that the job names, PYTHON_EXEC,
// the active virtual environment, the active conda environment, the one that torchrun runs on, python3,
// python. The path is absolute; why is its source. The error has a hint.
func (s Finder) Find() (path, why string, err error) {
	// One that is named explicitly is used, or the job does not start.
	for _, named := range []struct{ value, why string }{{s.Named, "named by the job"},
		{s.Env["PYTHON_EXEC"], "PYTHON_EXEC"}} {
		if named.value == "" {
			continue
		}
		path, err := s.runnable(named.value, s.Dir)
		if err != nil {
			return "", "", errext.Errorf("name an interpreter that exists and is executable", "python, %s: %w", named.why, err)
		}
		return path, named.why, nil
	}
	return s.discover()
}

// discover returns the first interpreter that exists.
func (s Finder) discover() (path, why string, err error) {
	var passed []string
	for _, variable := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if dir := s.Env[variable]; dir != "" {
			path, err := s.runnable(filepath.Join(dir, "bin", "python"), s.Dir)
			if err == nil {
				return path, variable, nil
			}
			passed = append(passed, fmt.Sprintf("%s: %v", variable, err))
		}
	}
	if path, script, err := s.OfLauncher(); err == nil {
		return path, "the interpreter of " + script, nil
	}
	for _, name := range []string{"python3", "python"} {
		if path, err := s.runnable(name, s.Dir); err == nil {
			return path, strings.Join(append(passed, name+" in PATH"), "; "), nil
		}
	}
	passed = append(passed, "no python3 or python in PATH")
	return "", "", errext.Errorf("activate an environment, or set --python, job.python or PYTHON_EXEC",
		"no Python found: %s", strings.Join(passed, "; "))
}

// OfLauncher is the interpreter in the first line of the launcher's script, and
// the script's path.
func (s Finder) OfLauncher() (path, script string, err error) {
	if script, err = s.runnable(cmp.Or(s.Launcher, "torchrun"), s.Dir); err != nil {
		return "", "", err
	}
	path, err = s.shebang(script)
	return path, script, err
}

// runnable makes an absolute path of a program's name and reports whether it can be run.
func (s Finder) runnable(name, dir string) (string, error) {
	if strings.Contains(name, "/") {
		name = under(dir, name)
		return name, Executable(name)
	}
	look := s.Look
	if look == nil {
		look = exec.LookPath
	}
	found, err := look(name)
	if errors.Is(err, exec.ErrNotFound) {
		return "", notInPath(name)
	}
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err != nil {
		return "", err
	}
	return found, Executable(found)
}

// InPath is the path of a program in the folders of the environment's PATH; of a word
// with a slash it is the word, from Dir on.
func (s Finder) InPath(program string) (string, error) {
	if strings.Contains(program, "/") {
		return s.runnable(program, s.Dir)
	}
	for _, folder := range filepath.SplitList(s.Env["PATH"]) {
		if path := filepath.Join(under(s.Dir, folder), program); Executable(path) == nil {
			return path, nil
		}
	}
	return "", notInPath(program)
}

func notInPath(program string) error { return fmt.Errorf("%s is in no folder of PATH", program) }

func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// missing is the error of a file that does not exist.
type missing struct{ path string }

func (e *missing) Error() string { return e.path + " does not exist" }
func (e *missing) Unwrap() error { return os.ErrNotExist }

// Executable returns why a file cannot be run, nil where it can.
func Executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &missing{path}
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is a folder or a device, not a program", path)
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return fmt.Errorf("%s is not executable", path)
	}
	return nil
}

// names are what interpreters are called.
var names = lazy.Regexp(`^(python|pypy)[0-9.]*$`)

// Named reports whether a word names a Python interpreter, by its last element.
func Named(word string) bool { return names().MatchString(filepath.Base(word)) }

// shebang finds the interpreter of a Python console script: in its first line,
// by way of env, or, where the path is too long or has blanks, in the second
// line of what pip and uv write instead:
//
//	#!/bin/sh
//	'''exec' "/a path/bin/python" "$0" "$@"
func (s Finder) shebang(script string) (string, error) {
	f, err := os.Open(script)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewReader(io.LimitReader(f, 64<<10))
	first, _ := lines.ReadString('\n')
	second, _ := lines.ReadString('\n')
	words := strings.Fields(strings.TrimPrefix(first, "#!"))
	if !strings.HasPrefix(first, "#!") || len(words) == 0 {
		return "", fmt.Errorf("%s has no interpreter line", script)
	}
	name := words[0]
	switch filepath.Base(name) {
	case "env":
		name = words[len(words)-1]
	case "sh":
		rest, ok := strings.CutPrefix(second, "'''exec' ")
		if !ok {
			return "", fmt.Errorf("%s is a shell script", script)
		}
		name, _, _ = strings.Cut(rest, ` "$0"`)
		name = strings.Trim(name, `"`)
	}
	if !Named(name) {
		return "", fmt.Errorf("%s does not run on Python", script)
	}
	return s.runnable(name, filepath.Dir(script))
}
