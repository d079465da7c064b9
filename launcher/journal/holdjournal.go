package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/private"
)

// A lock file can be taken away below its holder: a job that tidies up does. So a gpurun
// holds its open journal, too, and nobody begins in the directory or removes it meanwhile.

// errNoLocks means that a file cannot be held here.
var errNoLocks = errors.New("the file system has no locks")

// holdJournal holds an open journal until it is closed. The error is ErrLocked where
// another gpurun does, and errNoLocks where none can.
func holdJournal(f *os.File) error {
	if unreadableWhenLocked(f) {
		return errNoLocks
	}
	switch err := lockNow(f); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("%w (it holds %s)", ErrLocked, f.Name())
	case locksMissing(err):
		return errNoLocks
	case err != nil:
		return fmt.Errorf("lock the journal: %w", err)
	}
	return nil
}

// unreadableWhenLocked reports whether nobody else can read a file that is locked, as on
// SMB: people want to read the journal of a run that runs.
func unreadableWhenLocked(f *os.File) bool {
	var on unix.Statfs_t
	kinds := []uint32{unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC}
	return unix.Fstatfs(int(f.Fd()), &on) == nil && slices.Contains(kinds, uint32(on.Type))
}

// journalHeld reports whether a gpurun holds the journal of a run directory.
func journalHeld(dir string) bool {
	f, err := private.OpenFile(filepath.Join(dir, File), os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	return !unreadableWhenLocked(f) && locked(f)
}

// holdIdle holds all that a gpurun at work in a run directory does, and makes no lock file
// for it. The error is ErrLocked also where nobody can tell: the lock file is missing, the
// journal cannot be held, and the run has not ended.
func holdIdle(dir string) (io.Closer, error) {
	lock, err := acquire(filepath.Join(dir, lockFile), os.O_RDWR)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return nil, err
	}
	var all closers
	if !missing {
		all = append(all, lock)
	}
	file, err := private.OpenFile(filepath.Join(dir, File), os.O_RDWR)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the journal: %w", err), all.Close())
	}
	all = append(all, file)
	err = holdJournal(file)
	if errors.Is(err, errNoLocks) {
		err = nil
		if missing && (Locked(dir) || !ended(dir)) {
			err = fmt.Errorf("%w, or its lock is gone", ErrLocked)
		}
	}
	if err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return all, nil
}

// ended reports whether a run's story is closed.
func ended(dir string) bool {
	events, _, err := Outline(dir)
	if err != nil || len(events) == 0 {
		return false
	}
	_, closed := events[len(events)-1].(launcher.Finished)
	return closed
}

type closers []io.Closer

func (all closers) Close() (err error) {
	for _, c := range all {
		err = errors.Join(err, c.Close())
	}
	return err
}
