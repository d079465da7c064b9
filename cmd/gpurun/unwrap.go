package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/recipes"
)

// innerKinds are the recipes' kinds of inner commands in the job's words.
var innerKinds = map[recipes.InnerKind]job.Kind{
	recipes.InnerScript: job.Script, recipes.InnerModule: job.Module, recipes.InnerProgram: job.Program,
}

// unwrapLauncher lets the recipes take a framework's launcher off a command.
func unwrapLauncher(words []string, env map[string]string, dir string) (job.Inner, bool, error) {
	catalog, err := recipes.Catalog()
	if err != nil {
		return job.Inner{}, false, fmt.Errorf("load the recipes: %w", err)
	}
	all := environMap(os.Environ())
	maps.Copy(all, env)
	read := func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return os.ReadFile(name)
	}
	inner, known, err := recipes.Unwrap(words, all, read, catalog)
	if err != nil || !known {
		return job.Inner{}, known, err
	}
	kind, runs := innerKinds[inner.Kind]
	for _, word := range inner.Argv {
		runs = runs && !strings.HasPrefix(word, "{site}/")
	}
	if !runs {
		return job.Inner{}, true, usagef("give the script's path with job.script, or set launch.ranks = \"self\"",
			"%s starts a file of the framework's own, %s", inner.Wrapper, inner.Argv[0])
	}
	return job.Inner{Kind: kind, Argv: inner.Argv, Env: inner.Env, Ranks: inner.Ranks}, true, nil
}
