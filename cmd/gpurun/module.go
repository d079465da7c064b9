package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/recipes"
)

// moduleSource is the source of what "python -m module" runs; nil where it is not
// found, and where the module's name tells its recipe. Nothing is imported for
// that: a package's own code would run.
func (p *prepared) moduleSource(ctx context.Context, module string) []byte {
	if own, err := recipes.OwnProgram(p.command); own || err != nil {
		return nil
	}
	base := strings.ReplaceAll(module, ".", "/")
	files := []string{base + ".py", base + "/__main__.py"}
	folders := []string{p.job.Workdir}
	for _, folder := range filepath.SplitList(environMap(p.env)["PYTHONPATH"]) {
		folders = append(folders, p.under(folder))
	}
	for _, folder := range folders {
		for _, file := range files {
			if source, err := os.ReadFile(filepath.Join(folder, file)); err == nil {
				return source
			}
		}
	}
	if p.job.Recipe != "auto" && p.job.Recipe != "" || p.python == "" {
		return nil // nothing depends on it, or nobody can be asked
	}
	paths, err := sitePaths(ctx, p.python, p.job.Workdir, p.env, files)
	if err != nil {
		return nil // the job itself will say what is wrong with its interpreter
	}
	for _, path := range paths {
		if source, err := os.ReadFile(path); err == nil {
			return source
		}
	}
	return nil
}
