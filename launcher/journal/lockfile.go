package journal

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher/system"
	"golang.org/x/sys/unix"
)

// On a file system without locks (Lustre mounted without -o flock, some network file systems), the existence
// of a file is the lock. It identifies its lockHolder, so that the same machine can check whether the holder
// lives; for other machines the lockHolder touches it while it runs.
const (
	holderFile = "lock.holder"
	// beat is the interval at which a lockHolder touches its file, and stale the age at which another machine
	// considers it left behind: clocks of two machines differ.
	beat  = 10 * time.Second
	stale = 2 * time.Minute
	// largestHolder bounds the file, in bytes.
	largestHolder = 64 << 10
)

// locksMissing reports whether flock failed because the file system has no locks.
func locksMissing(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOLCK) ||
		errors.Is(err, unix.EINVAL)
}

// A lockHolder is a process that holds a lock file.
type lockHolder struct {
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Boot  string `json:"boot"`  // id of the machine's boot, which distinguishes machines
	Space string `json:"space"` // namespace of process ids: containers have their own
	Start string `json:"start"` // of the process, in ticks since then
	Token string `json:"token"`
}

func (h lockHolder) String() string { return fmt.Sprintf("host %s, pid %d", h.Host, h.PID) }

// A heldLockFile is a lock file that this process holds, until Close.
type heldLockFile struct {
	path  string
	over  chan struct{}
	owner sync.WaitGroup
}

// acquireFile takes the lock file of a run directory. The error is ErrLocked where
// another process holds it.
func acquireFile(dir string) (*heldLockFile, error) {
	path := filepath.Join(dir, holderFile)
	own, err := self()
	if err != nil {
		return nil, err
	}
	for range 3 { // a stale one is removed, and another gpurun may be first
		err := create(path, own)
		if err == nil {
			l := &heldLockFile{path: path, over: make(chan struct{})}
			l.owner.Go(l.touch)
			return l, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("lock the run directory: %w", err)
		}
		left, lives := holds(path, own)
		if lives {
			return nil, fmt.Errorf("%w (%s)", ErrLocked, left)
		}
		if err := discard(path, left, own); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w (%s)", ErrLocked, path)
}

// create makes the file with its content in one step, as a link of a complete one.
func create(path string, own lockHolder) error {
	text, err := json.Marshal(own)
	if err != nil {
		return err
	}
	written := path + "." + own.Token
	if err := system.WriteCopy(written, append(text, '\n'), system.PrivateMode); err != nil {
		return err
	}
	return errors.Join(os.Link(written, path), os.Remove(written))
}

// holds returns the holder of a lock file, and whether it lives.
func holds(path string, own lockHolder) (lockHolder, bool) {
	h, err := readHolder(path)
	if errors.Is(err, fs.ErrNotExist) {
		return h, false
	}
	if err == nil && h.Boot == own.Boot && h.Space == own.Space {
		return h, h.Start != "" && startOf(h.PID) == h.Start
	}
	info, err := os.Stat(path)
	return h, err == nil && time.Since(info.ModTime()) < stale
}

func readHolder(path string) (h lockHolder, err error) {
	text, err := system.ReadHead(path, largestHolder) // a job may have put a pipe there
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	return h, err
}

// discard removes a lock file that its holder has left behind. Of several processes that find it, only the one
// whose mark is next to it may. If the lock is another one by then, it stays.
func discard(path string, left, own lockHolder) error {
	mark := fmt.Sprintf("%s.%x", path, sha256.Sum256([]byte(left.Token)))
	switch err := create(mark, own); {
	case errors.Is(err, fs.ErrExist):
		if _, lives := holds(mark, own); lives {
			return nil
		}
		return remove(mark) // its maker was killed
	case err != nil:
		return fmt.Errorf("remove a lock that was left behind: %w", err)
	}
	if h, err := readHolder(path); h.Token == left.Token && !errors.Is(err, fs.ErrNotExist) {
		if err := remove(path); err != nil {
			return errors.Join(err, remove(mark))
		}
	}
	return remove(mark)
}

// remove removes a file that another gpurun may have removed.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a lock that was left behind: %w", err)
	}
	return nil
}

// touch shows other machines that the holder lives.
func (l *heldLockFile) touch() {
	every := time.NewTicker(beat)
	defer every.Stop()
	for {
		select {
		case now := <-every.C:
			_ = os.Chtimes(l.path, now, now) // the journal meets the same error
		case <-l.over:
			return
		}
	}
}

// Close gives the lock back.
func (l *heldLockFile) Close() error {
	close(l.over)
	l.owner.Wait()
	return os.Remove(l.path)
}

// here is this process, to compare holders with.
var here = sync.OnceValues(self)

// self is this process as a holder.
func self() (lockHolder, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return lockHolder{}, fmt.Errorf("name this machine in the lock: %w", err)
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return lockHolder{}, fmt.Errorf("name this process in the lock: %w", err)
	}
	host, _ := os.Hostname()
	return lockHolder{
		Host: host, PID: os.Getpid(), Boot: strings.TrimSpace(string(boot)), Space: space, Start: startOf(os.Getpid()),
		Token: rand.Text(),
	}, nil
}

// startOf is the start time of a process, in clock ticks since boot (field 22 of /proc/PID/stat); empty where there
// is no such process.
func startOf(pid int) string {
	stat, err := system.ReadStat(pid)
	if err != nil || stat.Field(3) == "Z" {
		return ""
	}
	return stat.Field(22)
}

// Holder returns the host and pid of the gpurun that uses a run directory, or used it last, and whether it still does.
// They are empty where they are not known.
func Holder(dir string) (host string, pid int, works bool) {
	if own, err := here(); err == nil {
		if h, lives := holds(filepath.Join(dir, holderFile), own); lives {
			return h.Host, h.PID, true
		}
	}
	if f, err := system.OpenFile(filepath.Join(dir, lockFile), os.O_RDONLY); err == nil {
		defer f.Close()
		text := make([]byte, 256)
		n, _ := f.ReadAt(text, 0)
		// A torn text gives nothing.
		_, _ = fmt.Sscanf(string(text[:n]), "host %s pid %d", &host, &pid)
		host = strings.TrimSuffix(host, ",")
		works = locked(f)
	}
	if !works && journalHeld(dir) { // by a process whose lock file was removed
		return "", 0, true
	}
	return host, pid, works
}

// Locked reports whether a gpurun uses a run directory.
func Locked(dir string) bool {
	_, _, works := Holder(dir)
	return works
}

// locked reports whether another process has locked a file. It locks the file itself for a moment, which lockNow
// tolerates.
func locked(f *os.File) bool {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return errors.Is(err, unix.EWOULDBLOCK)
	}
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // and closing it does, too
	return false
}

// A job that tidies up may remove the lock file of a running gpurun. So a gpurun locks its open journal, too, and
// no other starts in the directory or removes it meanwhile.

// errNoLocks: a file cannot be locked here.
var errNoLocks = errors.New("the file system has no locks")

// holdJournal locks an open journal until it is closed. The error is ErrLocked where another gpurun has locked it, and
// errNoLocks where locks do not work.
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

// unreadableWhenLocked reports whether other processes cannot read a locked file, as on SMB: the journal of a running
// run must be readable.
func unreadableWhenLocked(f *os.File) bool {
	var on unix.Statfs_t
	kinds := []uint32{unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC}
	return unix.Fstatfs(int(f.Fd()), &on) == nil && slices.Contains(kinds, uint32(on.Type))
}

// journalHeld reports whether a gpurun has locked the journal of a run directory.
func journalHeld(dir string) bool {
	f, err := system.OpenFile(filepath.Join(dir, File), os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	return !unreadableWhenLocked(f) && locked(f)
}

// holdIdle takes all locks of a gpurun in a run directory, without making a lock file. The error is ErrLocked also
// where the state is not known: the lock file is missing, the journal cannot be locked, and the run has not ended.
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
	file, err := system.OpenFile(filepath.Join(dir, File), os.O_RDWR)
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

// ended reports whether a run has a verdict.
func ended(dir string) bool {
	events, _, err := Outline(dir)
	return err == nil && RunOf(events).Verdict != nil
}

type closers []io.Closer

func (all closers) Close() (err error) {
	for _, c := range all {
		err = errors.Join(err, c.Close())
	}
	return err
}
