package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// swapLock is the file in a swap's folder that its gpurun keeps locked.
const swapLock = "gpurun.lock"

// A swap is the folder of one attempt for data offloaded to NVMe.
type swap struct {
	dir  string
	lock *os.File
	made string // the nvme_path itself, if gpurun created it
}

// toNVMe reports whether a plan offloads to NVMe.
func toNVMe(plan strategy.Plan) bool {
	return plan[strategy.OffloadOptimizer] == "nvme" || plan[strategy.OffloadParam] == "nvme"
}

// openSwap makes the folder, and holds it until close.
func openSwap(dir string) (*swap, error) {
	made := ""
	root := filepath.Dir(dir)
	if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
		made = root
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for offload to NVMe: %w", err)
	}
	lock, err := lockSwap(dir)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOLCK) {
		// On a file system without locks, SweepSwaps keeps the folder too.
		lock, err = os.Open(filepath.Join(dir, swapLock))
	}
	if err != nil {
		return nil, fmt.Errorf("lock the folder for offload to NVMe: %w", err)
	}
	return &swap{dir: dir, lock: lock, made: made}, nil
}

func lockSwap(dir string) (*os.File, error) {
	f, err := system.OpenFile(filepath.Join(dir, swapLock), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, os.NewSyscallError("flock", err)
	}
	return f, nil
}

// close removes the folder with all offloaded data. A nil swap has none.
func (s *swap) close() error {
	if s == nil {
		return nil
	}
	err := os.RemoveAll(s.dir)
	if s.made != "" {
		_ = os.Remove(s.made) // fails if another run uses it by now
	}
	return errors.Join(err, s.lock.Close())
}

// SweepSwaps removes the folders below root (recovery.nvme_path) whose gpurun is gone.
func SweepSwaps(root string) error {
	if root == "" {
		return nil
	}
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for files of killed runs on NVMe: %w", err)
	}
	var errs []error
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if !e.IsDir() || !strings.HasPrefix(e.Name(), ranks.SwapPrefix) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, swapLock)); err != nil {
			continue // not ours
		}
		lock, err := lockSwap(dir)
		if err != nil {
			continue // in use, or another user's
		}
		errs = append(errs, (&swap{dir: dir, lock: lock}).close())
	}
	return errors.Join(errs...)
}

// probeSize is the amount of data written to measure a disk's speed, in bytes.
const probeSize = 64 << 20

// speed writes probeSize bytes to the folder, syncs them to the disk, and returns bytes per second.
func (s *swap) speed() (perSecond float64, err error) {
	path := filepath.Join(s.dir, "speed")
	f, err := system.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return 0, fmt.Errorf("measure the disk: %w", err)
	}
	defer os.Remove(path)
	defer f.Close()
	block := make([]byte, 4<<20)
	for i := range block {
		block[i] = byte(i * 7) // not zeros, which some file systems do not write
	}
	began := time.Now()
	for range probeSize / len(block) {
		if _, err := f.Write(block); err != nil {
			return 0, fmt.Errorf("measure the disk: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return 0, fmt.Errorf("measure the disk: %w", err)
	}
	return probeSize / time.Since(began).Seconds(), nil
}

// openSwap makes the folder for the attempt's offloaded data, and notes its speed; nil without offloading.
func (n *Node) openSwap(l launcher.Launch) (*swap, error) {
	dir := ranks.SwapDir(n.opts.NVMePath, l.Dir)
	if dir == "" || !toNVMe(l.Plan) {
		return nil, nil
	}
	s, err := openSwap(dir)
	if err != nil {
		return nil, notOnNVMe(err)
	}
	speed, err := s.speed()
	if err != nil {
		return nil, notOnNVMe(errors.Join(err, s.close()))
	}
	n.log.Note(fmt.Sprintf("offload to NVMe uses %s: %s free, writes %s in a second", dir, strategy.GiB(freeAt(dir)),
		strategy.GiB(int64(speed))))
	return s, nil
}

// notOnNVMe adds a hint and an exit code to an error in the folder: a full disk may have space later.
func notOnNVMe(err error) error {
	err = errext.WithHint(err, "recovery.nvme_path names the folder")
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errext.WithCode(err, strategy.CodeRetry)
	}
	return err
}

// freeAt returns the free space of a folder's disk for this user, in bytes; 0 if not known.
func freeAt(dir string) int64 {
	if dir == "" {
		return 0
	}
	free, err := ranks.FreeSpace(dir)
	if err != nil {
		return 0
	}
	return free
}

// errorFileVariable is torchrun's: the parent of a launcher or a rank names a file in it, for the failing
// rank's error.
const errorFileVariable = "TORCHELASTIC_ERROR_FILE"

// TellParent copies the error.json of the rank where the failure began to the file that gpurun's parent named
// in env, gpurun's environment. Like torchrun (dump_error_file in
// torch/distributed/elastic/multiprocessing/errors/error_handler.py), it adds the rank's exit code as
// message.errorCode, negative for a signal. If that rank has no error.json, it writes nothing. Secrets are masked.
func TellParent(env commandline.Environ, dir string, v launcher.Verdict, last strategy.Evidence, m *mask.Masker) error {
	to := env[errorFileVariable]
	if to == "" || v.Outcome == strategy.Trained || len(v.Attempts) == 0 {
		return nil
	}
	tried := v.Attempts[len(v.Attempts)-1]
	if tried.Rank == nil {
		return nil
	}
	folder := ranks.LogFolder(filepath.Join(dir, fmt.Sprintf("attempt-%d", tried.N)), *tried.Rank)
	text, err := system.ReadFile(filepath.Join(folder, "error.json"))
	if err != nil {
		return nil // most scripts write none
	}
	if err := os.WriteFile(to, m.JSON(withErrorCode(text, exitCodeOf(last, *tried.Rank))),
		system.PrivateMode); err != nil {
		return fmt.Errorf("copy the failing rank's error.json: %w", err)
	}
	return nil
}

// withErrorCode adds the exit code if message is an object, and else returns the text unchanged.
func withErrorCode(text []byte, code int) []byte {
	var outer map[string]json.RawMessage
	var message map[string]json.RawMessage
	if code == 0 || json.Unmarshal(text, &outer) != nil || json.Unmarshal(outer["message"], &message) != nil ||
		message == nil {
		return text
	}
	message["errorCode"] = json.RawMessage(fmt.Sprint(code))
	var err error
	if outer["message"], err = json.Marshal(message); err != nil {
		return text
	}
	whole, err := json.Marshal(outer)
	if err != nil {
		return text
	}
	return whole
}

// exitCodeOf returns a rank's exit code in Python's form, -n for signal n.
func exitCodeOf(ev strategy.Evidence, rank int) int {
	for _, f := range ev.Facts {
		if exit := f.Exit(); exit != nil && f.Rank == rank {
			if exit.Signal != 0 {
				return -exit.Signal
			}
			return exit.Code
		}
	}
	return 0
}
