package journal

import (
	"errors"
	"fmt"
	"github.com/gpurun/gpurun/launcher/system"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A run directory that is being removed has a hidden name in its job's folder, and a mark. With both it is no run
// any more; a name alone may be a user's.
const (
	removedPrefix = ".removed-"
	removedFile   = ".gpurun-removed"
)

// Remove removes a run directory, unless check, called while no gpurun can start in it, refuses. The error is ErrLocked
// where a gpurun uses it. It vanishes at once: after a kill the rest is hidden, and no run (Leftover).
func Remove(dir string, check func() error) error {
	locks, err := holdIdle(dir)
	if err != nil {
		return err
	}
	hidden := filepath.Join(filepath.Dir(dir), removedPrefix+filepath.Base(dir))
	if err := errors.Join(check(), makeRoom(hidden)); err != nil {
		return errors.Join(err, locks.Close())
	}
	err = markRemoved(dir)
	if err == nil {
		err = os.Rename(dir, hidden)
	}
	// The locks moved with the directory; while open, network file systems would keep their files.
	closed := locks.Close()
	if err != nil {
		return errors.Join(fmt.Errorf("remove the run directory: %w", err), closed)
	}
	return RemoveLeftover(hidden)
}

// makeRoom removes the rest of an earlier removal. Anything else with the hidden name is an error.
func makeRoom(hidden string) error {
	if _, err := os.Lstat(hidden); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return RemoveLeftover(hidden)
}

// markRemoved puts the mark into a run directory. A disk without space for a file may have space for another name of
// the journal.
func markRemoved(dir string) error {
	mark := filepath.Join(dir, removedFile)
	err := system.WriteFile(mark, nil, system.PrivateMode)
	if err != nil && os.Link(filepath.Join(dir, File), mark) == nil {
		return nil
	}
	return err
}

// RemoveLeftover removes a Leftover, its mark last. It follows no link.
func RemoveLeftover(hidden string) error {
	if err := removeMarked(hidden); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the run directory: %w", err)
	}
	return nil
}

func removeMarked(hidden string) error {
	folder, err := os.OpenRoot(hidden)
	if err != nil {
		return err
	}
	defer folder.Close()
	if !Leftover(hidden) { // it may have been replaced
		return fmt.Errorf("gpurun was not removing %s", hidden)
	}
	entries, err := fs.ReadDir(folder.FS(), ".")
	switch {
	case err != nil:
		return err
	case len(entries) == 0:
		return os.Remove(hidden)
	case !marked(folder):
		return fmt.Errorf("gpurun was not removing %s", hidden)
	}
	for _, e := range entries {
		if e.Name() != removedFile {
			err = errors.Join(err, folder.RemoveAll(e.Name()))
		}
	}
	if err != nil {
		return err
	}
	if err := folder.Remove(removedFile); err != nil {
		return err
	}
	return os.Remove(hidden)
}

// Leftover reports whether a folder is a run directory that gpurun was removing: with the mark, or empty after it.
func Leftover(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || !strings.HasPrefix(filepath.Base(dir), removedPrefix) {
		return false
	}
	mark, err := os.Lstat(filepath.Join(dir, removedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return emptyFolder(dir)
	}
	return err == nil && mark.Mode().IsRegular()
}

func emptyFolder(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.ReadDir(1)
	return errors.Is(err, io.EOF)
}

func marked(folder *os.Root) bool {
	mark, err := folder.Lstat(removedFile)
	return err == nil && mark.Mode().IsRegular()
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
	for pattern, age := range map[string]time.Duration{"attempt-*": 0, "attempt-*/node-*": writing} { // a node may be left behind
		folders, _ := fs.Glob(os.DirFS(dir), pattern) // the pattern is well formed
		for _, name := range folders {
			path := filepath.Join(dir, name)
			if info, err := os.Lstat(path); err == nil && info.IsDir() {
				system.SweepFiles(path, age)
			}
		}
	}
}
