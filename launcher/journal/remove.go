package journal

import (
	"errors"
	"fmt"
	"github.com/gpurun/gpurun/launcher/system"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// removedPrefix begins the hidden name of a run directory that is being removed, in its job's folder.
const removedPrefix = ".removed-"

// Remove removes a run directory, unless check, called while no gpurun can start in it, refuses. The error is ErrLocked
// where a gpurun uses it. It vanishes at once: after a kill the rest is hidden, and no run (Leftover).
func Remove(dir string, check func() error) error {
	locks, err := holdIdle(dir)
	if err != nil {
		return err
	}
	hidden := filepath.Join(filepath.Dir(dir), removedPrefix+filepath.Base(dir))
	if err = check(); err == nil {
		err = os.Rename(dir, hidden)
	}
	// The locks moved with the directory; while open, network file systems would keep their files.
	if err := errors.Join(err, locks.Close()); err != nil {
		return fmt.Errorf("remove the run directory: %w", err)
	}
	return RemoveLeftover(hidden)
}

// RemoveLeftover removes a Leftover. It follows no link.
func RemoveLeftover(hidden string) error {
	if err := os.RemoveAll(hidden); err != nil {
		return fmt.Errorf("remove the run directory: %w", err)
	}
	return nil
}

// Leftover reports whether a folder is a run directory below .gpurun that gpurun was removing. Elsewhere a folder of
// such a name may be a user's.
func Leftover(dir string) bool {
	above, name := filepath.Split(dir)
	if !strings.HasPrefix(name, removedPrefix) || !slices.Contains(strings.Split(above, string(filepath.Separator)),
		home) {
		return false
	}
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir()
}

// writing is longer than any write into a run directory by another process, such as a report, takes.
const writing = time.Minute

// sweepAround removes temporary files of killed gpuruns in the folder of a job's runs and in the .gpurun above it.
func sweepAround(root string) {
	system.SweepFolder(root, writing)
	if above := filepath.Dir(root); filepath.Base(above) == home {
		system.SweepFolder(above, writing)
	}
}

// sweep removes half-written files of a killed gpurun in a run directory. The caller holds its lock: no other process
// writes into its attempts.
func sweep(dir string) {
	system.SweepFiles(dir, writing)
	// a node may be left behind
	for pattern, age := range map[string]time.Duration{"attempt-*": 0, "attempt-*/node-*": writing} {
		folders, _ := fs.Glob(os.DirFS(dir), pattern) // the pattern is well formed
		for _, name := range folders {
			path := filepath.Join(dir, name)
			if info, err := os.Lstat(path); err == nil && info.IsDir() {
				system.SweepFiles(path, age)
			}
		}
	}
}
