// Package journal keeps the run directory: the journal of events, the attempts'
// folders with their changed files, and the verdict. A directory has one writer
// at a time, which holds its lock.
//
//	journal.jsonl     one event a line, synced before gpurun acts on it; Began with the next event
//	verdict.json      how the run ended, written atomically
//	status.json       the state of the run, for display (RunRecord)
//	run.json          the command line that started the run
//	lock              host and pid of the gpurun that runs here; it locks the journal, too
//	attempt-<n>/      plan.json, command.json, diff.patch, changed files, samples.jsonl, rank<k>/…
//
// These files are for the user alone (package system), and free of the job's secrets (package mask),
// except for run.json, command.json and the changed files, with which the job is started.
//
// Lines of another version than gpurun's own are refused.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/system"
)

// File is the name of the journal in a run directory.
const File = "journal.jsonl"

// The other names in a run directory.
const (
	verdictFile = "verdict.json"
	lockFile    = "lock"
)

// ErrLocked means that another gpurun runs in the directory.
var ErrLocked = errors.New("another gpurun runs in it")

// A Journal is an open run directory. Its methods are called from one goroutine.
type Journal struct {
	dir   string
	file  *os.File
	lock  io.Closer
	shown func(launcher.Event)
	mask  *mask.Masker

	since   time.Time // when the run's latest gpurun began
	started int       // attempts

	wrote    bool  // something was appended, or removed
	size     int64 // of the whole lines
	reserved int64 // how far the file has room on the disk
}

// Open locks a run directory, makes it where it is missing, and reads its journal. Every event that is
// appended later is passed to shown, after it is on disk. The error is ErrLocked where the directory is in
// use.
func Open(dir string, shown func(launcher.Event)) (*Journal, []launcher.Event, error) {
	if err := makeRunDir(dir); err != nil {
		return nil, nil, fmt.Errorf("make the run directory: %w", err)
	}
	if err := refuseForeign(dir); err != nil {
		return nil, nil, err
	}
	lock, err := acquire(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, nil, err
	}
	events, whole, err := read(filepath.Join(dir, File))
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	file, err := system.OpenFile(filepath.Join(dir, File), os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open the journal: %w", err), lock.Close())
	}
	if err := holdJournal(file); err != nil && !errors.Is(err, errNoLocks) {
		return nil, nil, errors.Join(err, file.Close(), lock.Close())
	}
	j := &Journal{dir: dir, file: file, lock: lock, shown: shown}
	for _, e := range events {
		j.count(e)
	}
	if err := j.continueAt(whole); err != nil {
		return nil, nil, errors.Join(err, j.Close())
	}
	return j, events, nil
}

// continueAt sets where the next event is written, and cuts off a torn last line. A journal without one stays
// unchanged: the time of its last write is the end of a run whose verdict is only shown again.
func (j *Journal) continueAt(size int64) error {
	info, err := j.file.Stat()
	if err != nil {
		return fmt.Errorf("read the journal's size: %w", err)
	}
	if info.Size() != size {
		return j.cutAt(size)
	}
	j.size = size
	_, err = j.file.Seek(size, 0)
	return err
}

// Lock takes a lock file outside run directories, and makes it where it is missing. Its folder has one lock
// only. The error is ErrLocked where another process has it.
func Lock(path string) (io.Closer, error) { return acquire(path, os.O_CREATE|os.O_RDWR) }

// A lockedFile is a lock file that this process holds.
type lockedFile struct {
	*os.File
	before []byte // the text of the holder before
}

// restore writes the text of the holder before. Without it, only the host of an ended run is wrong.
func (l *lockedFile) restore() {
	if len(l.before) > 0 && l.Truncate(0) == nil {
		_, _ = l.WriteAt(l.before, 0)
	}
}

// acquire takes the lock file, which it opens with a flag; the kernel releases it when the process ends.
func acquire(path string, flag int) (io.Closer, error) {
	lock, err := system.OpenFile(path, flag)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	err = lockNow(lock)
	holder := make([]byte, 256)
	n, _ := lock.ReadAt(holder, 0)
	holder = holder[:n]
	if err != nil {
		lock.Close()
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, fmt.Errorf("%w (%s)", ErrLocked, bytes.TrimSpace(holder))
		case locksMissing(err):
			return acquireFile(filepath.Dir(path))
		}
		return nil, fmt.Errorf("lock the run directory: %w", err)
	}
	host, _ := os.Hostname()
	if err := lock.Truncate(0); err == nil {
		_, err = lock.WriteAt([]byte("host "+host+", pid "+strconv.Itoa(os.Getpid())+"\n"), 0)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("write the lock: %w", err), lock.Close())
		}
	}
	return &lockedFile{lock, holder}, nil
}

// lockNow locks a file, or fails where a gpurun has locked it. Processes that only check the lock (locked) hold
// it for a moment, perhaps one after the other: lockNow tries again.
func lockNow(f *os.File) error {
	for tries := 0; ; tries++ {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || tries == lockTries {
			return err
		}
		time.Sleep(lockPause)
	}
}

const (
	lockTries = 5
	lockPause = 20 * time.Millisecond
)

// Read returns the events of a run directory without locking it.
func Read(dir string) ([]launcher.Event, error) {
	if _, err := os.Stat(filepath.Join(dir, File)); err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	events, _, err := read(filepath.Join(dir, File))
	return events, err
}

// cutAt drops a torn last line, so that the next event starts on a new line.
func (j *Journal) cutAt(size int64) error {
	j.wrote = true
	if err := j.file.Truncate(size); err != nil {
		return fmt.Errorf("cut the journal's torn end: %w", err)
	}
	if _, err := j.file.Seek(size, 0); err != nil {
		return fmt.Errorf("seek in the journal: %w", err)
	}
	j.size, j.reserved = size, 0
	j.reserve()
	return nil
}

// Dir is the run directory's path.
func (j *Journal) Dir() string { return j.dir }

// Mask sets the job's secrets, before the first Append. Without it, secrets are recognised by name or form.
func (j *Journal) Mask(m *mask.Masker) { j.mask = m }

// Append writes one event, waits until it is on disk, and shows it. It does not wait for Began: nothing is done before
// the next event. An event that cannot be written leaves no
// part behind. If the run directory is gone, the event is only shown.
func (j *Journal) Append(e launcher.Event) error {
	line, err := launcher.Encode(e, time.Now().UTC())
	if err != nil {
		return err
	}
	if err := j.Check(); err != nil {
		j.show(e)
		return err
	}
	line = append(j.mask.JSON(line), '\n')
	_, begins := e.(launcher.Began)
	if err := j.write(line, !begins); err != nil {
		return errors.Join(err, j.cutAt(j.size))
	}
	j.count(e)
	j.size += int64(len(line))
	j.reserve()
	j.show(e)
	return nil
}

// count keeps what Finished has of earlier events.
func (j *Journal) count(e launcher.Event) {
	switch e := e.(type) {
	case launcher.Began:
		j.since = e.At
	case launcher.Started:
		j.started = e.N + 1
	}
}

func (j *Journal) write(line []byte, sync bool) error {
	j.wrote = true
	if _, err := j.file.Write(line); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	if !sync {
		return nil
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("sync the journal: %w", err)
	}
	return nil
}

func (j *Journal) show(e launcher.Event) {
	if j.shown != nil {
		j.shown(e)
	}
}

// Prepare makes the folder of attempt n.
func (j *Journal) Prepare(n int) (string, error) {
	dir := filepath.Join(j.dir, fmt.Sprintf("attempt-%d", n))
	if err := system.Mkdir(dir); err != nil {
		return "", fmt.Errorf("make the attempt's folder: %w", err)
	}
	return dir, nil
}

// Finish writes the verdict, and journals it.
func (j *Journal) Finish(v launcher.Verdict) error {
	if err := j.Draft(v); err != nil {
		return err
	}
	return j.Append(launcher.Finished{Verdict: v, Since: j.since, Started: j.started})
}

// Draft writes a verdict that is valid until a later one replaces it.
func (j *Journal) Draft(v launcher.Verdict) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the verdict: %w", err)
	}
	return system.WriteFile(filepath.Join(j.dir, verdictFile), append(j.mask.JSON(text), '\n'), system.PrivateMode)
}

// Close releases the directory, and the space that was reserved for the journal. If nothing was written, the lock
// names the run's last gpurun again.
func (j *Journal) Close() error {
	if j.wrote {
		_ = j.file.Truncate(j.size) // the rest is reserved space
	} else if l, ok := j.lock.(*lockedFile); ok {
		l.restore()
	}
	return errors.Join(j.file.Close(), j.lock.Close())
}

// Runs lists the run directories of a job below its folder by name: names that gpurun chose sort by time.
func Runs(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the runs: %w", err)
	}
	var runs []string
	for _, e := range entries {
		if path := filepath.Join(root, e.Name()); e.IsDir() && !Leftover(path) {
			runs = append(runs, path)
		}
	}
	slices.Sort(runs)
	return runs, nil
}

// reservations are the sizes in bytes, largest first, of the space that the journal reserves on the disk, so
// that the end of the last attempt and the decision can be written when ranks have filled the disk.
var reservations = []int64{256 << 10, 64 << 10, 16 << 10}

// reserve reserves space after the last event, if the file system can.
func (j *Journal) reserve() {
	if j.reserved >= j.size+reservations[0]/2 {
		return
	}
	for _, n := range reservations {
		if unix.Fallocate(int(j.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, j.size, n) == nil {
			j.reserved = j.size + n
			return
		}
	}
}
