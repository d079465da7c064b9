package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// A JobStore is one job's file of fits.
type JobStore struct {
	Dir, Name string // the folder of all jobs' files, which may be missing, and this one's name
}

// lockFile is locked while a file of the folder is replaced; the kernel unlocks it when its
// holder ends.
const lockFile = "lock"

// Load reads the job's remembered plans. The error has the reason why an existing file is not used.
func (s JobStore) Load() ([]Fit, error) {
	if s.Dir == "" {
		return nil, nil
	}
	if err := system.CheckShared(s.Dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	return readFits(filepath.Join(s.Dir, s.Name))
}

// Update changes the remembered plans, one process at a time. A damaged file is replaced; one that
// is refused, or that a newer gpurun wrote, is left unchanged with an error.
func (s JobStore) Update(change func([]Fit) []Fit) error {
	if s.Dir == "" {
		return nil
	}
	if err := system.MkdirAll(s.Dir); err != nil {
		return fmt.Errorf("make the folder of the remembered plans: %w", err)
	}
	if err := system.CheckShared(s.Dir); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(s.Dir, lockFile))
	if err != nil {
		return err
	}
	defer unlock()
	path := filepath.Join(s.Dir, s.Name)
	known, err := readFits(path)
	var refused *system.Untrusted
	if errors.As(err, &refused) || errors.Is(err, errNewer) {
		return err
	}
	text, err := encode(change(known))
	if err != nil {
		return err
	}
	if err := system.WriteFile(path, text, system.PrivateMode); err != nil {
		return fmt.Errorf("write the remembered plans: %w", err)
	}
	return trim(s.Dir, s.Name)
}

// lockPatience bounds the wait for the lock: its holder writes one small file.
const lockPatience = 5 * time.Second

// lock locks the folder. On a file system without locks, if two runs end at once, one may be forgotten; files
// are still replaced as a whole.
func lock(path string) (unlock func(), err error) {
	f, err := system.OpenFile(path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, fmt.Errorf("lock the remembered plans: %w", err)
	}
	for until := time.Now().Add(lockPatience); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil, errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOLCK),
			errors.Is(err, unix.EINVAL):
			return func() { _ = f.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR), time.Now().After(until):
			return nil, errors.Join(fmt.Errorf("lock the remembered plans, %s: %w", path, err), f.Close())
		}
	}
}

// trim removes the oldest files while there are too many or they are too large, and temporary
// files of killed writers. The file named keep stays.
func trim(dir, keep string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list the remembered plans: %w", err)
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
	slices.SortStableFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for left := len(files); len(files) > 0 && (left > mostFiles || sum > largestStore); files = files[1:] {
		if oldest := files[0]; oldest.Name() != keep {
			if err := os.Remove(filepath.Join(dir, oldest.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove the oldest remembered plans: %w", err)
			}
			left, sum = left-1, sum-oldest.Size()
		}
	}
	return nil
}

// ErrNoStateFolder means that the user has no state directory.
var ErrNoStateFolder = errors.New("neither XDG_STATE_HOME nor HOME names a folder")

// FitsFolder returns the folder of fits: $XDG_STATE_HOME/gpurun/fits, else ~/.local/state/gpurun/fits. By the XDG
// Base Directory Specification, a relative path counts as none.
func FitsFolder(variable func(name string) string) (string, error) {
	if state := variable("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "gpurun", "fits"), nil
	}
	if home := variable("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "gpurun", "fits"), nil
	}
	return "", ErrNoStateFolder
}

// FitName returns the file name for a job, from the words that identify it.
func FitName(words ...string) string {
	h := sha256.New()
	for _, w := range words {
		fmt.Fprintf(h, "%d:%s", len(w), w) // a hash never returns an error
	}
	return hex.EncodeToString(h.Sum(nil)[:16]) + ".json"
}

// version is the version of the file format. A file of a later version is not changed: the gpurun that wrote
// it may still need it.
const version = 1

type content struct {
	Version int   `json:"v"`
	Fits    []Fit `json:"fits"` // the newest first
}

// errNewer means a file of a later version of gpurun.
var errNewer = errors.New("a newer gpurun wrote it")

// readFits reads a file of fits; none if there is no file. The error is a *system.Untrusted if the file must not be
// used.
func readFits(path string) ([]Fit, error) {
	text, err := readOwn(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the job's remembered plans: %w", err)
	}
	fits, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return fits, nil
}

func readOwn(path string) ([]byte, error) {
	f, err := system.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := system.CheckShared(path); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, largestFits+1))
}

// decode accepts only what encode can have written.
func decode(text []byte) ([]Fit, error) {
	if len(text) > largestFits {
		return nil, fmt.Errorf("it has more than %d bytes", largestFits)
	}
	var head struct {
		Version int `json:"v"`
	}
	if json.Unmarshal(text, &head) == nil && head.Version > version {
		return nil, errNewer
	}
	var c content
	err := json.Unmarshal(text, &c)
	switch {
	case err != nil:
	case c.Version != version:
		err = fmt.Errorf("there is no version %d", c.Version)
	default:
		for _, f := range c.Fits {
			err = errors.Join(err, f.check())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	return bounded(c.Fits), nil
}

// check returns an error for impossible values in a fit.
func (f Fit) check() error {
	if err := f.Written.Validate(); err != nil {
		return err
	}
	for _, t := range f.Tried {
		if err := t.Plan.Validate(); err != nil {
			return err
		}
		if t.At.IsZero() || t.Training.Words("") == "" {
			return fmt.Errorf("the plan %s has no time or no class of training", t.Plan)
		}
		for _, a := range t.InPlace {
			if !slices.Contains(strategy.DeviceRemedies, a.Remedy) {
				return fmt.Errorf("the plan %s needed the remedy %q in place, which does not exist", t.Plan, a.Remedy)
			}
		}
	}
	return nil
}

// encode writes the newest fits, as many as fit into a file.
func encode(fits []Fit) ([]byte, error) {
	for fits = bounded(fits); ; fits = fits[:len(fits)-1] {
		text, err := json.Marshal(content{Version: version, Fits: fits})
		if err != nil {
			return nil, fmt.Errorf("encode the remembered plans: %w", err)
		}
		if len(text) < largestFits {
			return append(text, '\n'), nil
		}
		if len(fits) == 1 {
			return nil, fmt.Errorf("the remembered plans of one job have more than %d bytes", largestFits)
		}
	}
}

// bounded drops the oldest entries. It keeps the plan of the job as written, whose failure shows that another
// one is needed.
func bounded(fits []Fit) []Fit {
	fits = fits[:min(len(fits), mostFits)]
	for i, f := range fits {
		kept := f.Tried[:min(len(f.Tried), mostTried)]
		if at := f.plan(f.Written); at >= mostTried {
			kept = append(kept[:mostTried-1:mostTried-1], f.Tried[at])
		}
		for k := range kept {
			kept[k].Measured = kept[k].Measured[:min(len(kept[k].Measured), mostMeasured)]
		}
		fits[i].Tried = kept
	}
	return fits
}
