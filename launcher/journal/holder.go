package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/private"
)

// Holder says who is at work in a run directory, or was last: the host's name and the
// process's id there, and whether it still is. They are empty where nobody knows.
func Holder(dir string) (host string, pid int, works bool) {
	if own, err := self(); err == nil {
		if h, lives := holds(filepath.Join(dir, holderFile), own); lives {
			return h.Host, h.PID, true
		}
	}
	if f, err := private.OpenFile(filepath.Join(dir, lockFile), os.O_RDONLY); err == nil {
		defer f.Close()
		text := make([]byte, 256)
		n, _ := f.ReadAt(text, 0)
		// Where it is torn, nothing is known.
		_, _ = fmt.Sscanf(string(text[:n]), "host %s pid %d", &host, &pid)
		host = strings.TrimSuffix(host, ",")
		works = locked(f)
	}
	if !works && journalHeld(dir) { // whose lock file was taken away: another may be there by now
		return "", 0, true
	}
	return host, pid, works
}

// Locked reports whether a gpurun is at work in a run directory.
func Locked(dir string) bool {
	_, _, works := Holder(dir)
	return works
}

// locked reports whether another process has locked a file. It looks by a lock of its
// own, for a moment, which acquire outlasts.
func locked(f *os.File) bool {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return errors.Is(err, unix.EWOULDBLOCK)
	}
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // and closing it does, too
	return false
}
