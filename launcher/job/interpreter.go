package job

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Interpreter finds the Python that runs a script or a module. The order: the
// one that the job names, PYTHON_EXEC, the active virtual environment, the active
// conda environment, the one that the torchrun in PATH runs on, python3, python.
// env is the environment in the form of os.Environ, over which the job's own
// counts; look finds a name in PATH, as exec.LookPath does. why says where the
// path comes from. A program has no interpreter: path is empty then. The error
// is a *UsageError.
func Interpreter(j *Job, env []string, look func(string) (string, error)) (path, why string, err error) {
	if j.Kind == Program {
		return "", "the job is a program", nil
	}
	get := func(name string) string {
		if v, set := j.Env[name]; set {
			return v
		}
		return lookup(env)(name)
	}
	// What is named explicitly is used, or the job does not start.
	for _, named := range []struct{ value, why string }{{j.Python, "named by the job"}, {get("PYTHON_EXEC"), "PYTHON_EXEC"}} {
		if named.value == "" {
			continue
		}
		path, err := runnable(named.value, j.Workdir, look)
		if err != nil {
			return "", "", &UsageError{Err: err, Message: fmt.Sprintf("python, %s: %v", named.why, err),
				Hint: "name an interpreter that exists and is executable"}
		}
		return path, named.why, nil
	}
	return discover(j, get, look)
}

// discover takes the first interpreter that is there.
func discover(j *Job, get func(string) string, look func(string) (string, error)) (path, why string, err error) {
	var passed []string
	for _, variable := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		dir := get(variable)
		if dir == "" {
			continue
		}
		path := filepath.Join(dir, "bin", "python")
		if err := executable(path); err != nil {
			passed = append(passed, fmt.Sprintf("%s: %v", variable, err))
			continue
		}
		return path, variable, nil
	}
	launcher := j.torchrun
	if launcher == "" {
		launcher = "torchrun"
	}
	if script, err := runnable(launcher, j.Workdir, look); err == nil {
		if path, err := shebang(script, look); err == nil {
			return path, "the interpreter of " + script, nil
		}
	}
	for _, name := range []string{"python3", "python"} {
		if path, err := runnable(name, j.Workdir, look); err == nil {
			return path, strings.Join(append(passed, name+" in PATH"), "; "), nil
		}
	}
	passed = append(passed, "no python3 or python in PATH")
	return "", "", usage("activate an environment, or set --python, job.python or PYTHON_EXEC", "no Python found: %s", strings.Join(passed, "; "))
}

// runnable makes an absolute path of a program's name and sees that it can be run.
func runnable(name, workdir string, look func(string) (string, error)) (string, error) {
	path := under(workdir, name)
	if !strings.Contains(name, "/") {
		found, err := look(name)
		if errors.Is(err, exec.ErrNotFound) {
			return "", fmt.Errorf("%s is in no folder of PATH", name)
		}
		if err != nil {
			return "", err
		}
		if path, err = filepath.Abs(found); err != nil {
			return "", err
		}
	}
	return path, executable(path)
}

// missing is a file that is not there, which errors.Is knows as os.ErrNotExist.
type missing struct{ path string }

func (e *missing) Error() string { return e.path + " is not there" }
func (e *missing) Unwrap() error { return os.ErrNotExist }

// executable says why a file cannot be run.
func executable(path string) error {
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

// shebang finds the interpreter of a Python console script: in its first line,
// by way of env, or, where the path is too long or has blanks, in the second
// line of what pip and uv write instead:
//
//	#!/bin/sh
//	'''exec' "/a path/bin/python" "$0" "$@"
func shebang(script string, look func(string) (string, error)) (string, error) {
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
	if !isPython(name) {
		return "", fmt.Errorf("%s does not run on Python", script)
	}
	return runnable(name, filepath.Dir(script), look)
}
