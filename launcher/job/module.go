package job

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/recipes"
)

// moduleSource is the source of what "python -m module" runs; nil where it is not
// found, and where the module's name tells its recipe. Nothing is imported for
// that: a package's own code would run.
func (s Inspected) moduleSource(ctx context.Context) []byte {
	if own, err := recipes.OwnProgram(s.asWritten()); own || err != nil {
		return nil
	}
	base := strings.ReplaceAll(s.job.Argv[0], ".", "/")
	files := []string{base + ".py", base + "/__main__.py"}
	folders := []string{s.job.Workdir}
	for _, folder := range filepath.SplitList(s.env["PYTHONPATH"]) {
		folders = append(folders, s.under(folder))
	}
	for _, folder := range folders {
		for _, file := range files {
			if source, err := readFile(filepath.Join(folder, file), largestFile); err == nil {
				return source
			}
		}
	}
	if !s.auto() || s.python == nil {
		return nil // nothing depends on it, or nobody can be asked
	}
	for _, file := range files {
		if source, err := s.python.ReadFile(ctx, file); err == nil {
			return source
		} // else the job itself will say what is wrong with its interpreter
	}
	return nil
}
