package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/host"
)

// diskChecks: where the run directory and the checkpoints will lie.
var diskChecks = []check{
	{name: "run directory", look: runDirectory, late: diskHangs},
	{name: "checkpoints", look: checkpoints, late: diskHangs},
}

const diskHangs = "its file system does not answer: ask who runs it, or use another one"

const (
	// little is what is left on a disk that is as good as full, in bytes.
	little = 1 << 30
	// runRoom is what a run's logs may take, and checkpoints of which none is there yet.
	runRoom = 5 << 30
	// copies is how many checkpoints of the newest one's size there must be room for: one
	// is written before another one is removed.
	copies = 3
)

func runDirectory(_ context.Context, p *patient) Result {
	return room(p.runDir, runRoom, "free some, or name another folder: --run-dir, launch.log_dir")
}

func checkpoints(ctx context.Context, p *patient) Result {
	if p.prepared == nil {
		return skip("they are a job's: gpurun doctor train.toml looks where they go")
	}
	c := p.prepared.Checkpoints()
	glob := c.Glob
	if glob == "" {
		glob = c.Pointer
	}
	if glob == "" {
		return skip("nothing is known of the job's checkpoints: [resume] in train.toml says where they are")
	}
	if at := strings.IndexAny(glob, "*?[{"); at >= 0 {
		glob = glob[:at] + "x"
	}
	least := int64(runRoom)
	if newest := c.Newest(time.Time{}); newest != "" {
		least = copies * c.Size(ctx, newest)
	}
	return room(filepath.Dir(absolute(p.dir, glob)), least, "free some, or have the job write its checkpoints elsewhere")
}

// room says whether a folder, which may still be to be made, can be written, and holds
// at least so many bytes.
func room(path string, least int64, fix string) Result {
	dir := existing(path)
	var disk host.Disk
	err := tryWriting(dir)
	if err == nil {
		disk, err = host.DiskAt(dir)
	}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return problem(fix, "%s is full: %v", dir, err)
	case err != nil:
		return problem("make it writable, or name another folder", "%s cannot be written: %v", dir, err)
	}
	text := fmt.Sprintf("%s: %s free", dir, size(disk.Free))
	switch {
	case disk.Free < little:
		return problem(fix, "%s", text)
	case disk.Free < least:
		return warn(fix, "%s, of at least %s that may be needed", text, size(least))
	}
	return found("%s", text)
}

// existing is the nearest folder that is there.
func existing(path string) string {
	for {
		info, err := os.Stat(path)
		if err == nil && info.IsDir() || path == filepath.Dir(path) {
			return path
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return path // whoever uses it is told why not
		}
		path = filepath.Dir(path)
	}
}

// tryWriting writes a little into a folder, down to the disk.
func tryWriting(dir string) error {
	f, err := scratch(dir, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 64<<10)); err != nil {
		return errors.Unwrap(err)
	}
	if err := f.Sync(); err != nil {
		return errors.Unwrap(err)
	}
	return nil
}

// scratch opens a new file without a name, which is gone when it is closed, however this
// process ends. Where the file system has no such files it has a name for a moment.
func scratch(dir string, flags int) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC|flags, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(dir, "a file without a name")), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EINVAL) {
		return nil, err
	}
	named, err := os.CreateTemp(dir, ".gpurun-doctor-*")
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer named.Close()
	defer os.Remove(named.Name())
	fd, err = unix.Open(named.Name(), unix.O_RDWR|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), named.Name()), nil
}
