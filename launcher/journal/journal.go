// Package journal keeps the run directory: the journal of events, the attempts'
// folders with their changed files, and the verdict. A directory has one writer
// at a time, which holds its lock.
//
//	journal.jsonl     one event a line, synced before anybody acts upon it
//	verdict.json      how the run ended, written atomically
//	lock              host and pid of the gpurun that runs here
//	attempt-<n>/      plan.json, diff.patch, changed files, rank<k>/…
//
// Compatibility: every later gpurun reads a journal, and goes on with it; lines of
// a newer version than its own are refused, not guessed at.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
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
	lock  *os.File
	shown func(launcher.Event)

	size     int64 // of the whole lines
	reserved int64 // how far the file has room on the disk
}

// Open locks a run directory, makes it where it is missing, and reads what its
// journal holds. Every event that is appended later is passed to shown, after it
// is on disk. The error is ErrLocked where the directory is in use.
func Open(dir string, shown func(launcher.Event)) (*Journal, []launcher.Event, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("make the run directory: %w", err)
	}
	if err := refuseForeign(dir); err != nil {
		return nil, nil, err
	}
	lock, err := acquire(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, nil, err
	}
	events, whole, err := read(filepath.Join(dir, File))
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	file, err := os.OpenFile(filepath.Join(dir, File), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open the journal: %w", err), lock.Close())
	}
	j := &Journal{dir: dir, file: file, lock: lock, shown: shown}
	if err := j.cutAt(whole); err != nil {
		return nil, nil, errors.Join(err, j.Close())
	}
	return j, events, nil
}

// acquire takes the lock file; the kernel gives it back when the process ends,
// however it ends.
func acquire(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := onlyRegular(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("open the lock: %w", err), lock.Close())
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder := make([]byte, 256)
		n, _ := lock.ReadAt(holder, 0)
		holder = holder[:n]
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w (%s)", ErrLocked, bytes.TrimSpace(holder))
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
	return lock, nil
}

// Read returns the events of a run directory without locking it.
func Read(dir string) ([]launcher.Event, error) {
	if _, err := os.Stat(filepath.Join(dir, File)); err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	events, _, err := read(filepath.Join(dir, File))
	return events, err
}

// cutAt drops a torn last line, so that the next event starts a line of its own.
func (j *Journal) cutAt(size int64) error {
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

// Append writes one event, waits until it is on disk, and shows it. One that cannot be
// written leaves no part of itself behind. In a run directory that is gone, nothing is
// written, and people are shown the event all the same.
func (j *Journal) Append(e launcher.Event) error {
	line, err := launcher.Encode(e, time.Now().UTC())
	if err != nil {
		return err
	}
	if err := j.Check(); err != nil {
		j.show(e)
		return err
	}
	if err := j.write(append(line, '\n')); err != nil {
		return errors.Join(err, j.cutAt(j.size))
	}
	j.size += int64(len(line)) + 1
	j.reserve()
	j.show(e)
	return nil
}

func (j *Journal) write(line []byte) error {
	if _, err := j.file.Write(line); err != nil {
		return fmt.Errorf("write the journal: %w", err)
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
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the attempt's folder: %w", err)
	}
	return dir, nil
}

// Write puts the plan, the changed files and their diff into an attempt's
// folder, and links beside each changed file what lay beside its original.
func (j *Journal) Write(dir string, plan strategy.Plan, c launcher.Command) error {
	text, err := json.MarshalIndent(plan, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the plan: %w", err)
	}
	if err := replace(filepath.Join(dir, "plan.json"), append(text, '\n')); err != nil {
		return err
	}
	if c.Diff != "" {
		if err := replace(filepath.Join(dir, "diff.patch"), []byte(c.Diff)); err != nil {
			return err
		}
	}
	for path, content := range c.Files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make the folder of a changed file: %w", err)
		}
		if err := replace(path, content); err != nil {
			return err
		}
	}
	for copies, original := range c.Siblings {
		if err := linkSiblings(copies, original); err != nil {
			return err
		}
	}
	return nil
}

// linkSiblings links the entries of the folder original into the folder copies,
// except those that have a changed copy there.
func linkSiblings(copies, original string) error {
	entries, err := os.ReadDir(original)
	if err != nil {
		return fmt.Errorf("read the folder of a changed file: %w", err)
	}
	original, err = filepath.Abs(original)
	if err != nil {
		return fmt.Errorf("find the folder of a changed file: %w", err)
	}
	for _, e := range entries {
		err := os.Symlink(filepath.Join(original, e.Name()), filepath.Join(copies, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link beside a changed file: %w", err)
		}
	}
	return nil
}

// Finish writes the verdict and closes the journal's story with it.
func (j *Journal) Finish(v launcher.Verdict) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the verdict: %w", err)
	}
	if err := replace(filepath.Join(j.dir, verdictFile), append(text, '\n')); err != nil {
		return err
	}
	return j.Append(launcher.Finished{Verdict: v})
}

// Close gives the directory back, and the room that was kept for the journal.
func (j *Journal) Close() error {
	_ = j.file.Truncate(j.size) // what is left over is room, and no event
	return errors.Join(j.file.Close(), j.lock.Close())
}

// replace writes a file so that a reader sees the old content or the new one,
// and never a part: a temporary file in the same folder, synced, then renamed.
func replace(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".gpurun-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename last: the folder's entry is what a crash could lose.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync the folder %s: %w", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("sync the folder %s: %w", dir, err)
	}
	return nil
}

// Runs lists the run directories of a job below its folder, the newest last.
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
		if e.IsDir() {
			runs = append(runs, filepath.Join(root, e.Name()))
		}
	}
	slices.Sort(runs)
	return runs, nil
}
