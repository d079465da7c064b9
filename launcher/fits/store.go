package fits

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/private"
)

// A Store is one job's file of fits.
type Store struct {
	// Dir is the folder of all jobs' files, which need not be there, and Name this one's.
	Dir, Name string
	// Copy is the path of the copy beside the job, empty for none.
	Copy string
}

// lockFile is held while a file of the folder is replaced; the kernel gives it back
// when its holder ends, however that ends.
const lockFile = "lock"

// Load reads what is remembered of the job. The error says why a file that is there is
// not used.
func (s Store) Load() ([]Fit, error) {
	if s.Dir == "" {
		return nil, nil
	}
	if err := checkFolder(s.Dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	return read(filepath.Join(s.Dir, s.Name))
}

// LoadCopy reads the copy beside the job.
func (s Store) LoadCopy() ([]Fit, error) {
	if s.Copy == "" {
		return nil, nil
	}
	return read(s.Copy)
}

// Update replaces what is remembered by what change makes of it, one process at a time.
// A file that is damaged is begun anew; one that is refused, or that a newer gpurun wrote,
// is left as it is, and the error says so.
func (s Store) Update(change func([]Fit) []Fit) error {
	if s.Dir == "" {
		return nil
	}
	if err := makeFolder(s.Dir); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(s.Dir, lockFile))
	if err != nil {
		return err
	}
	defer unlock()
	path := filepath.Join(s.Dir, s.Name)
	known, err := read(path)
	var refused *Refused
	if errors.As(err, &refused) || errors.Is(err, errOther) {
		return err
	}
	text, err := encode(change(known))
	if err != nil {
		return err
	}
	if err := private.WriteFile(path, text, private.Mode); err != nil {
		return fmt.Errorf("remember what the job needed: %w", err)
	}
	s.writeCopy(text)
	return trim(s.Dir, s.Name)
}

// writeCopy puts a copy beside the job, where its folder of runs is and is the
// caller's own: a courtesy, which nothing depends on.
func (s Store) writeCopy(text []byte) {
	if s.Copy != "" && private.CheckOwner(filepath.Dir(s.Copy)) == nil {
		_ = private.WriteCopy(s.Copy, text, private.Mode)
	}
}

// lockPatience is how long a lock is waited for: whoever holds it writes one small file.
const lockPatience = 5 * time.Second

// lock takes the lock of the folder. Where the file system has none, files are replaced
// whole all the same, and of two runs that end at once one is forgotten.
func lock(path string) (unlock func(), err error) {
	f, err := private.OpenFile(path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, fmt.Errorf("lock what is remembered: %w", err)
	}
	for until := time.Now().Add(lockPatience); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil, errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EINVAL):
			return func() { _ = f.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR), time.Now().After(until):
			return nil, errors.Join(fmt.Errorf("lock what is remembered, %s: %w", path, err), f.Close())
		}
	}
}

// trim drops the files that were written longest ago while there are too many or they
// are too large, and what a writer left that was killed. The file named keep stays.
func trim(dir, keep string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look through what is remembered: %w", err)
	}
	var files []fs.FileInfo
	sum := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil || !info.Mode().IsRegular():
		case strings.HasPrefix(e.Name(), ".gpurun-"):
			if time.Since(info.ModTime()) > time.Hour {
				_ = os.Remove(filepath.Join(dir, e.Name()))
			}
		case strings.HasSuffix(e.Name(), ".json"):
			files, sum = append(files, info), sum+info.Size()
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for left := len(files); len(files) > 0 && (left > mostFiles || sum > largestStore); files = files[1:] {
		if oldest := files[0]; oldest.Name() != keep {
			if err := os.Remove(filepath.Join(dir, oldest.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("drop the oldest of what is remembered: %w", err)
			}
			left, sum = left-1, sum-oldest.Size()
		}
	}
	return nil
}
