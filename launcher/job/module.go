package job

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/recipes/script"
)

// moduleSource is the source of what "python -m module" runs, and its file; nil where
// it is not found, and where the module's name tells its recipe. Nothing is imported
// for that: a package's own code would run.
func (s Inspected) moduleSource(ctx context.Context) (source []byte, path string) {
	likely, err := s.likely()
	if err != nil || script.OwnProgram(s.asWritten(), likely) {
		return nil, "" // what is wrong with the recipes is said where one is chosen
	}
	base := strings.ReplaceAll(s.job.Argv[0], ".", "/")
	files := []string{base + ".py", base + "/__main__.py"}
	folders := []string{s.job.Workdir}
	for _, folder := range filepath.SplitList(s.env["PYTHONPATH"]) {
		folders = append(folders, s.under(folder))
	}
	for _, folder := range folders {
		for _, file := range files {
			path := filepath.Join(folder, file)
			if source, err := readFile(path, largestModule); err == nil {
				return source, path
			}
		}
	}
	if !s.auto() || s.python == nil {
		return nil, "" // nothing depends on it, or nobody can be asked
	}
	found, err := s.python.Files(ctx, files...)
	if err != nil {
		return nil, "" // the job itself will say what is wrong with its interpreter
	}
	for _, path := range found {
		if source, err := readFile(path, largestModule); path != "" && err == nil {
			return source, path
		}
	}
	return nil, ""
}
