package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/recipes"
)

// innerKinds are the recipes' kinds of inner commands in the job's words.
var innerKinds = map[recipes.InnerKind]job.Kind{
	recipes.InnerScript: job.Script, recipes.InnerModule: job.Module, recipes.InnerProgram: job.Program,
}

// pythonExec is torchrun's variable for the interpreter of the ranks.
const pythonExec = "PYTHON_EXEC"

// unwrapLauncher lets the recipes take a framework's launcher off a command. The
// ranks run on the interpreter that the launcher itself would have run on.
func unwrapLauncher(words []string, env map[string]string, dir string) (job.Inner, bool, error) {
	all := environMap(os.Environ())
	maps.Copy(all, env)
	read := func(name string) ([]byte, error) {
		if file, isSite := strings.CutPrefix(name, recipes.Site); isSite {
			return readSite(file, launcherPython(words[0], dir), all, dir)
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return os.ReadFile(name)
	}
	inner, known, err := recipes.Unwrap(words, all, read)
	if err != nil || !known {
		return job.Inner{}, known, err
	}
	if python := launcherPython(words[0], dir); python != "" && all[pythonExec] == "" && inner.Kind != recipes.InnerProgram {
		inner.Env[pythonExec] = python
	}
	if err := fillSite(inner, env, dir); err != nil {
		return job.Inner{}, true, err
	}
	return job.Inner{Kind: innerKinds[inner.Kind], Argv: inner.Argv, Env: inner.Env, Ranks: inner.Ranks}, true, nil
}

// launcherPython is the interpreter in the first line of a launcher's script, as
// it is found for torchrun; empty where it has none.
func launcherPython(launcher, dir string) string {
	look := func(name string) (string, error) {
		if name != "torchrun" {
			return exec.LookPath(name)
		}
		if strings.Contains(launcher, "/") && !filepath.IsAbs(launcher) {
			return filepath.Join(dir, launcher), nil
		}
		return exec.LookPath(launcher)
	}
	path, why, err := job.Interpreter(&job.Job{Kind: job.Script, Workdir: dir}, nil, look)
	if err != nil || !strings.HasPrefix(why, "the interpreter of ") {
		return ""
	}
	return path
}

// siteBound is how long the interpreter may take to say where files are.
const siteBound = 30 * time.Second

// listSite prints where an interpreter finds files of its packages, in the order
// of the arguments; empty where it does not. The first entry of sys.path is the
// working directory.
const listSite = `
import json, os, sys
print(json.dumps([next((p for p in (os.path.join(d, f) for d in sys.path[1:]) if os.path.isfile(p)), "") for f in sys.argv[1:]]))`

// fillSite replaces the words that name files which the framework brings with it.
func fillSite(inner recipes.Inner, env map[string]string, dir string) error {
	var files []string
	for _, word := range inner.Argv {
		if file, isSite := strings.CutPrefix(word, recipes.Site); isSite {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return nil
	}
	in := maps.Clone(env)
	if in == nil {
		in = map[string]string{}
	}
	maps.Copy(in, inner.Env)
	python, _, err := job.Interpreter(&job.Job{Kind: job.Script, Env: in, Workdir: dir}, os.Environ(), exec.LookPath)
	if err != nil {
		return err
	}
	whole := os.Environ()
	for name, value := range in {
		whole = append(whole, name+"="+value)
	}
	paths, err := sitePaths(context.Background(), python, dir, whole, files)
	if err != nil {
		return err
	}
	if i := slices.Index(paths, ""); i >= 0 {
		return &job.UsageError{Message: fmt.Sprintf("%s means %s, which %s does not have in its packages", inner.Wrapper, files[i], python),
			Hint: "name a file that is there, or the launcher of the environment that has the framework"}
	}
	for i, word := range inner.Argv {
		if strings.HasPrefix(word, recipes.Site) {
			inner.Argv[i], paths = paths[0], paths[1:]
		}
	}
	return nil
}

// sitePaths asks an interpreter where files of its packages are, in the order of
// the files; empty where it has no such file.
func sitePaths(ctx context.Context, python, dir string, env, files []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, siteBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, append([]string{"-c", listSite}, files...)...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.Output()
	var paths []string
	if err == nil {
		err = json.Unmarshal(out, &paths)
	}
	if err == nil && len(paths) != len(files) {
		err = errors.New("it answers with another number of files")
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s where %s is: %w", python, strings.Join(files, ", "), err)
	}
	return paths, nil
}

// readSite reads a file among an interpreter's packages; python is the launcher's,
// empty where the job's own counts.
func readSite(file, python string, env map[string]string, dir string) ([]byte, error) {
	if python == "" || env[pythonExec] != "" {
		var err error
		if python, _, err = job.Interpreter(&job.Job{Kind: job.Script, Workdir: dir}, wordsOf(env), exec.LookPath); err != nil {
			return nil, err
		}
	}
	paths, err := sitePaths(context.Background(), python, dir, wordsOf(env), []string{file})
	if err != nil {
		return nil, err
	}
	if paths[0] == "" {
		return nil, fmt.Errorf("%s is not among the packages of %s: %w", file, python, fs.ErrNotExist)
	}
	return os.ReadFile(paths[0])
}

// wordsOf is an environment as programs are given it.
func wordsOf(env map[string]string) []string {
	words := make([]string, 0, len(env))
	for name, value := range env {
		words = append(words, name+"="+value)
	}
	return words
}
