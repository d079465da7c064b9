// Package system creates and opens gpurun's own files and folders, reads /proc (procfs.go), and does work that a run
// must not wait for (background.go).
//
// Files and folders are private. Their modes are 0600 and 0700, because
// command lines, outputs and configurations may have content that other users must not read. It follows no
// links, because a link that a job, or another user, put in place of a file must not make gpurun write
// elsewhere. On a volume of Kubernetes that a group shares, the modes are 0660 and 2770 (owner.go).
//
// Links above the run directory are allowed: .gpurun may be a link to a larger disk.
package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/lazy"
)

// PrivateMode is the mode of a file that gpurun creates, unless it is a copy of another.
const PrivateMode fs.FileMode = 0o600

const dirMode fs.FileMode = 0o700

// MkdirAll creates a folder and the missing folders above it.
func MkdirAll(dir string) error {
	above := filepath.Dir(dir)
	if _, err := os.Stat(above); above != dir && errors.Is(err, fs.ErrNotExist) {
		if err := MkdirAll(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, dirMode); err == nil {
		return shareFolder(dir)
	}
	return os.MkdirAll(dir, dirMode) // it exists, or cannot be made
}

// Mkdir creates one folder. If the path exists, it must be a folder that CheckOwner accepts, and not a link.
// The error is an *os.PathError.
func Mkdir(dir string) error {
	err := os.Mkdir(dir, dirMode)
	if err == nil {
		return shareFolder(dir)
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return &os.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
	}
	return CheckOwner(dir)
}

// MkdirTemp creates a folder with a new name, as os.MkdirTemp does.
func MkdirTemp(dir, pattern string) (string, error) {
	made, err := os.MkdirTemp(dir, pattern)
	if err != nil {
		return "", err
	}
	return made, shareFolder(made)
}

// MkdirBelow creates a folder below root, and the folders between, as Mkdir does.
func MkdirBelow(root, dir string) error {
	below, err := filepath.Rel(root, dir)
	if err != nil || !filepath.IsLocal(below) {
		return fmt.Errorf("%s is not below %s", dir, root)
	}
	at := root
	for name := range strings.SplitSeq(below, string(filepath.Separator)) {
		if at = filepath.Join(at, name); name == "." {
			continue
		}
		if err := Mkdir(at); err != nil {
			return err
		}
	}
	return nil
}

// ErrNotRegular is the error for a pipe, a device or a folder in place of a file.
var ErrNotRegular = errors.New("it is not a regular file")

// OpenFile opens a regular file, with the flags of os.OpenFile. It neither follows
// a link nor waits for the other end of a pipe. The error is an *os.PathError.
func OpenFile(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, PrivateMode)
	if errors.Is(err, unix.ELOOP) {
		err = &os.PathError{Op: "open", Path: path, Err: errors.New("a symbolic link, which is not followed here")}
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	if err == nil && flag&os.O_CREATE != 0 && info.Mode().Perm() == PrivateMode && sharedByGroup(filepath.Dir(path)) {
		err = f.Chmod(PrivateMode | forGroup)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// mostRead bounds, in bytes, the files that gpurun reads as a whole.
const mostRead = 16 << 20

// ReadFile reads a file as OpenFile opens it. A file of more than 16 MiB is an error: a job may have written
// it.
func ReadFile(path string) ([]byte, error) {
	text, err := ReadHead(path, mostRead+1)
	if err == nil && len(text) > mostRead {
		err = &os.PathError{Op: "read", Path: path, Err: errors.New("it has more than 16 MiB")}
	}
	return text, err
}

// ReadHead reads the beginning of a file, up to so many bytes, as OpenFile opens it.
func ReadHead(path string, most int64) ([]byte, error) {
	f, err := OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// ReadJSON decodes a file as OpenFile opens it, up to so many bytes, and returns the time when it was
// written.
func ReadJSON(path string, most int64, into any) (written time.Time, err error) {
	f, err := OpenFile(path, os.O_RDONLY)
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return time.Time{}, err
	}
	if err := json.NewDecoder(io.LimitReader(f, most)).Decode(into); err != nil {
		return time.Time{}, fmt.Errorf("read %s: %w", path, err)
	}
	return info.ModTime(), nil
}

// patience bounds the wait for a disk that may hang.
const patience = 15 * time.Second

// ErrSlow is the error for a write that took too long.
var ErrSlow = fmt.Errorf("it took longer than %s", patience)

// InTime calls write, and stops waiting for it after a while.
func InTime(write func() error) error {
	if err, over := Within(patience, write); over {
		return err
	}
	return ErrSlow
}

// Within calls a function, and returns its result if it comes in time. A call that hangs is left behind.
func Within[T any](patience time.Duration, do func() T) (result T, over bool) {
	done := make(chan T, 1)
	go func() { done <- do() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case result = <-done:
		return result, true
	case <-timer.C:
		return result, false
	}
}

// WriteFile writes a file atomically: a temporary file in the same folder is synced, then renamed over the
// old file or link. mode is Mode, or the mode of the file that it copies. The owner can always read it, and the
// group that shares a volume a file of Mode.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	if err := replace(path, content, mode, (*os.File).Sync); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// WriteCopy is like WriteFile, but does not wait for the disk: it is for content that also exists elsewhere.
func WriteCopy(path string, content []byte, mode fs.FileMode) error {
	return replace(path, content, mode, func(*os.File) error { return nil })
}

// WriteForOwner is like WriteCopy with Mode, but gives a file that root writes to the owner and group of the folder,
// who could not read it otherwise.
func WriteForOwner(path string, content []byte) error {
	return replace(path, content, PrivateMode, func(f *os.File) error { return giveAway(f, filepath.Dir(path)) })
}

// giveAway gives a new file of root to the owner and group of its folder.
func giveAway(f *os.File, dir string) error {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 {
		return f.Chown(int(owner.Uid), int(owner.Gid))
	}
	return nil
}

func replace(path string, content []byte, mode fs.FileMode, finish func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".gpurun-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if mode == PrivateMode && sharedByGroup(filepath.Dir(path)) {
		mode |= forGroup
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o400|mode.Perm()), finish(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}

// syncDir makes a rename durable: a crash could lose the folder's entry.
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

// ListFolder returns at most so many entries of a folder, in no order. With an error it returns the entries read
// before.
func ListFolder(dir string, most int) ([]fs.DirEntry, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(most)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// Bounds of Sweep: a job may have filled the folder.
const (
	sweptEntries = 10_000
	sweptDepth   = 8
	sweptAtOnce  = 256
)

// temporary matches the names of files that WriteFile and WriteCopy have not finished.
var temporary = lazy.Regexp(`^\.gpurun-[0-9]+$`)

// SweepFiles removes unfinished files of killed writers that are older than age, in a folder and the folders
// below, top down, without following links. A living writer must not take longer than age. Files that cannot
// be removed do no harm.
func SweepFiles(dir string, age time.Duration) {
	left := sweptEntries
	for level, depth := []string{dir}, 0; len(level) > 0 && depth < sweptDepth; depth++ {
		var below []string
		for _, folder := range level {
			below = append(below, sweepOne(folder, age, &left)...)
		}
		level = below
	}
}

// SweepFolder is like Sweep, but only for one folder.
func SweepFolder(dir string, age time.Duration) {
	left := sweptEntries
	sweepOne(dir, age, &left)
}

// sweepOne sweeps a folder, and returns the folders in it.
func sweepOne(dir string, age time.Duration, left *int) (folders []string) {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	for *left > 0 {
		entries, err := f.ReadDir(min(*left, sweptAtOnce))
		*left -= len(entries)
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if e.IsDir() {
				folders = append(folders, path)
				continue
			}
			if !temporary().MatchString(e.Name()) || !e.Type().IsRegular() {
				continue
			}
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) >= age {
				_ = os.Remove(path)
			}
		}
		if err != nil {
			break
		}
	}
	return folders
}
