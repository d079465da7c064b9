package python

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/test/testenv"
)

// disk makes files in a new folder: name to content. Those under a bin
// folder are executable.
func disk(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		testenv.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		mode := os.FileMode(0o644)
		if strings.HasSuffix(filepath.Dir(path), "bin") {
			mode = 0o755
		}
		testenv.Check(t, os.WriteFile(path, []byte(strings.ReplaceAll(content, "$DIR", dir)), mode))
	}
	return dir
}

// in looks names up in one folder, as exec.LookPath does in PATH.
func in(dir string) func(string) (string, error) {
	return func(name string) (string, error) {
		path := filepath.Join(dir, name)
		if err := Executable(path); err != nil {
			return "", err
		}
		return path, nil
	}
}

func TestFindOrder(t *testing.T) {
	all := map[string]string{
		"venv/bin/python": "", "conda/bin/python": "", "torch/bin/python3.11": "", "exec/bin/python": "", "own/bin/python": "",
		"bin/torchrun": "#!$DIR/torch/bin/python3.11\nimport sys\n", "bin/python3": "", "bin/python": "", "own/python": "",
	}
	env := []string{"VIRTUAL_ENV=$DIR/venv", "CONDA_PREFIX=$DIR/conda", "PYTHON_EXEC=$DIR/exec/bin/python"}
	for _, c := range []struct {
		name      string
		drop      []string // files and variables that are not there
		search    Finder
		want, why string
	}{
		{"the job's own", nil, Finder{Named: "$DIR/own/bin/python"}, "own/bin/python", "named by the job"},
		{"the job's own, by name", nil, Finder{Named: "python"}, "bin/python", "named by the job"},
		{"PYTHON_EXEC", nil, Finder{}, "exec/bin/python", "PYTHON_EXEC"},
		{"PYTHON_EXEC of the job", nil, Finder{Env: commandline.Environ{"PYTHON_EXEC": "python3"}}, "bin/python3", "PYTHON_EXEC"},
		{"virtual environment", []string{"PYTHON_EXEC"}, Finder{}, "venv/bin/python", "VIRTUAL_ENV"},
		{"conda", []string{"PYTHON_EXEC", "VIRTUAL_ENV"}, Finder{}, "conda/bin/python", "CONDA_PREFIX"},
		{"a virtual environment that is gone", []string{"PYTHON_EXEC", "venv/bin/python"}, Finder{}, "conda/bin/python", "CONDA_PREFIX"},
		{"torchrun's", []string{"PYTHON_EXEC", "VIRTUAL_ENV", "CONDA_PREFIX"}, Finder{}, "torch/bin/python3.11", "the interpreter of $DIR/bin/torchrun"},
		{"python3", []string{"PYTHON_EXEC", "VIRTUAL_ENV", "CONDA_PREFIX", "bin/torchrun"}, Finder{}, "bin/python3", "python3 in PATH"},
		{"python3, torchrun's being gone", []string{"PYTHON_EXEC", "VIRTUAL_ENV", "CONDA_PREFIX", "torch/bin/python3.11"}, Finder{}, "bin/python3", "python3 in PATH"},
		{"python", []string{"PYTHON_EXEC", "VIRTUAL_ENV", "CONDA_PREFIX", "bin/torchrun", "bin/python3"}, Finder{}, "bin/python", "python in PATH"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := disk(t, all)
			var set []string
			for _, entry := range env {
				set = append(set, strings.ReplaceAll(entry, "$DIR", dir))
			}
			for _, name := range c.drop {
				if strings.Contains(name, "/") {
					testenv.Check(t, os.Remove(filepath.Join(dir, name)))
					continue
				}
				set = append(set, name+"=")
			}
			c.search.Named = strings.ReplaceAll(c.search.Named, "$DIR", dir)
			c.search.Env = commandline.ParseEnviron(set).With(c.search.Env) // as a job's own counts over what it inherits
			c.search.Look = in(filepath.Join(dir, "bin"))
			path, why, err := c.search.Find()
			if want := filepath.Join(dir, c.want); err != nil || path != want {
				t.Errorf("Find = %s, %v, want %s", path, err, want)
			}
			if want := strings.ReplaceAll(c.why, "$DIR", dir); why != want {
				t.Errorf("why = %q, want %q", why, want)
			}
		})
	}
}

func TestFindOfANamedTorchrun(t *testing.T) {
	dir := disk(t, map[string]string{
		"other/bin/torchrun": "#!$DIR/other/bin/python3\n", "other/bin/python3": "", "bin/torchrun": "#!$DIR/bin/python3\n", "bin/python3": "",
	})
	path, why, err := Finder{Launcher: "other/bin/torchrun", Dir: dir, Look: in(filepath.Join(dir, "bin"))}.Find()
	if want := filepath.Join(dir, "other/bin/python3"); err != nil || path != want || why != "the interpreter of "+filepath.Join(dir, "other/bin/torchrun") {
		t.Errorf("Find = %s, %s, %v, want %s", path, why, err, want)
	}
}

func TestShebang(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"#!$DIR/a b/bin/python3\n", ""},
		{"#!$DIR/bin/python3\nimport re\n", "bin/python3"},
		{"#!$DIR/bin/python3", "bin/python3"},
		{"#! $DIR/bin/python3 -E\n", "bin/python3"},
		{"#!/usr/bin/env python3\n", "bin/python3"},
		{"#!/usr/bin/env -S python3\n", "bin/python3"},
		{"#!/bin/sh\n'''exec' \"$DIR/a b/bin/python\" \"$0\" \"$@\"\n' '''\n", "a b/bin/python"},
		{"#!/bin/sh\n'''exec' $DIR/bin/python3 \"$0\" \"$@\"\n' '''\n", "bin/python3"},
		{"#!/bin/sh\nexec python3 -m torch.distributed.run \"$@\"\n", ""},
		{"#!/bin/bash\n", ""},
		{"#!\n", ""},
		{"\x7fELF", ""},
		{"", ""},
	} {
		dir := disk(t, map[string]string{"bin/python3": "", "a b/bin/python": "", "bin/torchrun": c.text})
		path, err := Finder{Look: in(filepath.Join(dir, "bin"))}.shebang(filepath.Join(dir, "bin/torchrun"))
		if c.want == "" {
			if err == nil {
				t.Errorf("shebang of %q = %s, want an error", c.text, path)
			}
			continue
		}
		if want := filepath.Join(dir, c.want); err != nil || path != want {
			t.Errorf("shebang of %q = %s, %v, want %s", c.text, path, err, want)
		}
	}
}

func TestFindRefuses(t *testing.T) {
	dir := disk(t, map[string]string{"plain/python": "", "folder/bin/python/x": ""})
	for _, c := range []struct {
		name   string
		python string
		env    []string
		want   string
	}{
		{"nothing is there", "", nil, "no Python found: no python3 or python in PATH"},
		{"an environment without one", "", []string{"VIRTUAL_ENV=" + dir}, "no Python found: VIRTUAL_ENV: " + dir + "/bin/python does not exist"},
		{"named and not there", dir + "/none", nil, "python, named by the job: " + dir + "/none does not exist"},
		{"named and not executable", dir + "/plain/python", nil, "is not executable"},
		{"named and a folder", dir + "/folder/bin/python", nil, "not a program"},
		{"named by variable", "", []string{"PYTHON_EXEC=python9"}, "python, PYTHON_EXEC:"},
	} {
		path, _, err := Finder{Named: c.python, Dir: dir, Env: commandline.ParseEnviron(c.env), Look: in(filepath.Join(dir, "bin"))}.Find()
		if err == nil || !strings.Contains(err.Error(), c.want) || errext.Hint(err) == "" {
			t.Errorf("%s: %q, %v, want an error with %q and a hint", c.name, path, err, c.want)
		}
	}
}
