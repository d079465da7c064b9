package ranklog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/private"
)

// errTooSlow is why a log stays in parts.
var errTooSlow = errors.New("the file system takes too long")

// join writes head, mark and tail into one file, which then takes the head's place, and
// removes the parts. Their names tell the head's length: where the file is longer than
// that, it has all of them already.
func (w *Writer) join(until time.Time) error {
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

// appendFile copies a file to the end of another, in pieces, within a time.
func appendFile(to *os.File, path string, until time.Time) error {
	from, err := private.OpenFile(path, os.O_RDONLY)
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

// joinedOf is the name that the one file has before it takes the head's place.
func joinedOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".joined")
}

// openJoined makes the one file without a name, so that a kill leaves nothing of it; where
// the file system has no such files, with the name.
func openJoined(path string) (*os.File, error) {
	if err := dropJoined(path); err != nil {
		return nil, err
	}
	if f, err := private.OpenFile(filepath.Dir(path), unix.O_TMPFILE|os.O_RDWR); err == nil {
		return f, nil
	}
	return create(joinedOf(path))
}

// nameJoined gives the one file its name, once it is whole, where it has none.
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

// dropJoined removes a file that a kill left under the name.
func dropJoined(path string) error {
	if err := os.Remove(joinedOf(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Sweep removes what kills left in the attempts of a run directory while logs were joined,
// on file systems where that has a name. No gpurun may be at work in it; that of a node which
// an earlier start has left behind, and that joins a log now, leaves it in parts.
func Sweep(run string) {
	for _, attempt := range Numbered(run, "attempt-") {
		for _, rank := range Folders(attempt) {
			sweepRank(rank)
		}
	}
}

func sweepRank(rank string) {
	for _, stream := range []string{"stdout.log", "stderr.log"} {
		_ = dropJoined(filepath.Join(rank, stream)) // else it is in nobody's way
	}
}
