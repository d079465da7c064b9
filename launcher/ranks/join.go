package ranks

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher/system"
	"golang.org/x/sys/unix"
)

// errTooSlow is the reason for which a log stays in parts.
var errTooSlow = errors.New("the file system takes too long")

// join writes head, mark and tail into one file, which then replaces the head, and removes the
// tail. The names of the tail's files contain the head's length: a longer head has them
// already.
func (w *LogWriter) join(until time.Time) error {
	whole, err := openJoined(w.path)
	if err != nil {
		return err
	}
	err = appendFile(whole, w.path, until)
	if cut := w.tails[0].from - w.head; err == nil && cut > 0 {
		_, err = whole.Write(mark(cut))
	}
	for _, p := range w.tails {
		if err == nil {
			err = appendFile(whole, p.path, until)
		}
	}
	if err == nil {
		err = nameJoined(whole, w.path)
	}
	err = errors.Join(err, whole.Close())
	if err == nil {
		err = os.Rename(joinedOf(w.path), w.path)
	}
	if err != nil {
		return errors.Join(err, dropJoined(w.path))
	}
	for _, p := range w.tails {
		err = errors.Join(err, os.Remove(p.path))
	}
	return err
}

// appendFile copies a file to the end of another, in pieces, until a deadline.
func appendFile(to *os.File, path string, until time.Time) error {
	from, err := system.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer from.Close()
	const piece = 16 << 20
	for time.Now().Before(until) {
		if n, err := io.CopyN(to, from, piece); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("copy %s after %d bytes: %w", path, n, err)
		}
	}
	return errTooSlow
}

// joinedOf returns the name of the joined file before it replaces the head.
func joinedOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".joined")
}

// openJoined creates the joined file without a name, so that a kill leaves no file; on
// file systems without such files, with the name.
func openJoined(path string) (*os.File, error) {
	if err := dropJoined(path); err != nil {
		return nil, err
	}
	if f, err := system.OpenFile(filepath.Dir(path), unix.O_TMPFILE|os.O_RDWR); err == nil {
		return f, nil
	}
	return create(joinedOf(path))
}

// nameJoined gives the joined file its name, if it has none.
func nameJoined(f *os.File, path string) error {
	var info unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &info); err != nil || info.Nlink > 0 {
		return err
	}
	own := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if err := unix.Linkat(unix.AT_FDCWD, own, unix.AT_FDCWD, joinedOf(path), unix.AT_SYMLINK_FOLLOW); err != nil {
		return fmt.Errorf("name %s: %w", joinedOf(path), err)
	}
	return nil
}

// dropJoined removes a joined file that a kill left.
func dropJoined(path string) error {
	if err := os.Remove(joinedOf(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// SweepLogs removes the joined files that kills left in the attempts of a run directory, on file
// systems where they have names. No gpurun may use the directory; where one of an earlier start
// still joins a log on another node, that log stays in parts.
func SweepLogs(run string) {
	for _, attempt := range NumberedFolders(run, "attempt-") {
		for _, rank := range LogFolders(attempt) {
			_ = dropJoined(filepath.Join(rank, "stdout.log")) // they do no harm
			_ = dropJoined(filepath.Join(rank, "stderr.log"))
		}
	}
}
