package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// RunDirError gives an error in the run directory dir its exit code: 74 if the system refuses an operation.
// An error that has a code, or is about another path, such as a file of the job, stays unchanged. Any other
// error is a bug, such as an event that cannot be encoded.
func RunDirError(dir string, err error) error {
	if err == nil || errext.Code(err, 0) != 0 {
		return err
	}
	paths := pathsOf(err)
	below := func(path, folder string) bool { return strings.HasPrefix(path+"/", filepath.Clean(folder)+"/") }
	within := func(path string) bool { return below(path, dir) || below(dir, path) }
	var number syscall.Errno
	switch {
	case slices.ContainsFunc(paths, within), len(paths) == 0 && errors.As(err, &number):
		return errext.WithCode(errext.WithHint(err, "gpurun needs a run directory that it can write: see --run-dir"),
			strategy.CodeRunDir)
	case len(paths) > 0:
		return err
	}
	return errext.WithCode(err, strategy.CodeBug)
}

// pathsOf lists the paths that a system error names.
func pathsOf(err error) []string {
	var path *os.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return []string{path.Path}
	case errors.As(err, &link):
		return []string{link.Old, link.New}
	}
	return nil
}
