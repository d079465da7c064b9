package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/private"
)

// A run directory that is being removed is hidden in its job's folder by its name, and has
// a mark. With both it is no run any more, and may go; a name alone may be anybody's.
const (
	removedPrefix = ".removed-"
	removedFile   = ".gpurun-removed"
)

// Remove removes a run directory, unless check, asked while no gpurun can begin in it,
// refuses. The error is ErrLocked where one is at work in it. It vanishes at once: what a
// kill leaves is hidden, and no run (Leftover).
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
	// They have gone with the directory; held on, network file systems would keep their files.
	closed := locks.Close()
	if err != nil {
		return errors.Join(fmt.Errorf("remove the run directory: %w", err), closed)
	}
	return RemoveLeftover(hidden)
}

// makeRoom removes what an earlier removal left under the hidden name. Anything else that
// is there has the removal fail.
func makeRoom(hidden string) error {
	if _, err := os.Lstat(hidden); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return RemoveLeftover(hidden)
}

// markRemoved puts the mark into a run directory. A disk that has no room for one more
// file may have it for one more name of the journal.
func markRemoved(dir string) error {
	mark := filepath.Join(dir, removedFile)
	err := private.WriteFile(mark, nil, private.Mode)
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
	if !Leftover(hidden) { // somebody may have put another in its place
		return fmt.Errorf("%s is none that gpurun was removing", hidden)
	}
	entries, err := fs.ReadDir(folder.FS(), ".")
	switch {
	case err != nil:
		return err
	case len(entries) == 0:
		return os.Remove(hidden)
	case !marked(folder):
		return fmt.Errorf("%s is none that gpurun was removing", hidden)
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

// Leftover reports whether a folder is a run directory that gpurun was removing: one with the
// mark, or an empty one, from which the mark had been taken.
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

// writing is longer than anybody takes who writes into a run directory beside the run's own
// gpurun: a report, for example, or another node.
const writing = time.Minute

// sweepAround removes what any gpurun that was killed has left in the folder of a job's runs
// and in the .gpurun that it is in.
func sweepAround(root string) {
	private.SweepFolder(root, writing)
	if above := filepath.Dir(root); filepath.Base(above) == home {
		private.SweepFolder(above, writing)
	}
}

// sweep removes what a gpurun that was killed has left half written in a run directory. The
// caller holds its lock: nobody else writes into its attempts.
func sweep(dir string) {
	private.Sweep(dir, writing)
	for pattern, age := range map[string]time.Duration{"attempt-*": 0, "attempt-*/node-*": writing} { // a node may be left behind
		folders, _ := fs.Glob(os.DirFS(dir), pattern) // the pattern is well formed
		for _, name := range folders {
			path := filepath.Join(dir, name)
			if info, err := os.Lstat(path); err == nil && info.IsDir() {
				private.Sweep(path, age)
			}
		}
	}
}
