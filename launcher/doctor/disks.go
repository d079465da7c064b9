package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/ranks"
)

const (
	// little is the free space of a disk that counts as full, in bytes.
	little = 1 << 30
	// runRoom is the space for a run's logs, and for checkpoints before the size of the first is known.
	runRoom = 5 << 30
	// copies is how many checkpoints of the newest one's size must fit: one is written before another is
	// removed.
	copies = 3
)

func runDirectory(_ context.Context, p *patient) Result {
	return room(p.runDir, runRoom, "free some, or name another folder: --run-dir, launch.log_dir")
}

func checkpoints(ctx context.Context, p *patient) Result {
	if p.prepared == nil {
		return skip("they depend on the job: gpurun doctor train.toml checks its folder")
	}
	c := p.prepared.Checkpoints()
	glob := c.Glob
	if glob == "" {
		glob = c.Pointer
	}
	if glob == "" {
		return skip("the job's checkpoints are not known: set [resume] in train.toml")
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

// room checks that a folder, which need not exist yet, can be written and has space for at least so many
// bytes.
func room(path string, least int64, fix string) Result {
	dir := existing(path)
	var disk ranks.Disk
	err := tryWriting(dir)
	if err == nil {
		disk, err = ranks.DiskAt(dir)
	}
	text := fmt.Sprintf("%s: %s free", dir, size(disk.Free))
	switch {
	case isFull(err):
		return problem(fix, "%s is full: %v", dir, err)
	case err != nil:
		return problem("make it writable, or name another folder", "%s cannot be written: %v", dir, err)
	case disk.Free < little:
		return problem(fix, "%s", text)
	case disk.Free < least:
		return warn(fix, "%s, of at least %s that may be needed", text, size(least))
	}
	return found("%s", text)
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// existing returns the nearest existing folder above a path.
func existing(path string) string {
	for {
		info, err := os.Stat(path)
		if err == nil && info.IsDir() || path == filepath.Dir(path) {
			return path
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return path // its use will report the reason
		}
		path = filepath.Dir(path)
	}
}

// tryWriting writes a little into a folder, and syncs it to the disk.
func tryWriting(dir string) error {
	f, err := scratch(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.Write(make([]byte, 64<<10)); err == nil {
		err = f.Sync()
	}
	return errors.Unwrap(err)
}

// scratch opens a new file, and removes its name: the file is gone once it is closed, however this process ends.
func scratch(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".gpurun-doctor-*")
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

const (
	// needed is the speed of reads and writes at which the GPU does not wait for offload to NVMe, in bytes
	// per second.
	needed = 3e9
	// largestTrial bounds how much is written, and trialTime the time for writing and for reading.
	largestTrial = 4 << 30
	trialTime    = 2 * time.Second
	// depth is the number of blocks in flight.
	depth     = 16
	blockSize = 4 << 20
)

func nvmeNamed(p *patient) string {
	if p.nvme == "" {
		return "no folder is named: recovery.nvme_path, or gpurun doctor --nvme DIR"
	}
	return ""
}

func nvmeSpeed(ctx context.Context, p *patient) Result {
	const fix = "name a folder on a local NVMe drive: recovery.nvme_path, or --nvme DIR"
	if lack := ranks.LackOfNVMe(p.nvme); lack != "" {
		return problem(fix, "%s", strings.TrimPrefix(lack, "recovery.nvme_path "))
	}
	write, read, err := measure(ctx, existing(p.nvme), largestTrial)
	switch {
	case errors.Is(err, unix.EINVAL):
		return problem(fix, "%s: its file system has no direct input and output (O_DIRECT)", p.nvme)
	case isFull(err):
		return problem("free some, or name another folder", "%s is full", p.nvme)
	case err != nil:
		return problem(fix, "%s: %v", p.nvme, err)
	}
	return fastEnough(p.nvme, write, read)
}

// fastEnough judges measured speeds, in bytes per second.
func fastEnough(path string, write, read float64) Result {
	text := fmt.Sprintf("%s: writes %s, reads %s", path, speed(write), speed(read))
	if write < needed || read < needed {
		return warn("name a folder on a local NVMe drive, or on several as RAID 0", "%s; offload waits for less than %s",
			text, speed(needed))
	}
	return found("%s", text)
}

// speed formats bytes a second.
func speed(bytes float64) string { return fmt.Sprintf("%.1f GB/s", bytes/1e9) }

// measure writes a file of at most so many bytes, bypassing caches, and reads it back. It returns bytes per
// second.
func measure(ctx context.Context, dir string, most int64) (write, read float64, err error) {
	f, err := scratch(dir)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFL, unix.O_DIRECT); err != nil {
		return 0, 0, err
	}
	disk, err := ranks.DiskAt(dir)
	if err != nil {
		return 0, 0, err
	}
	blocks := min(most, disk.Free/2) / blockSize
	if blocks == 0 {
		return 0, 0, unix.ENOSPC
	}
	memory, err := unix.Mmap(-1, 0, depth*blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return 0, 0, fmt.Errorf("map buffers: %w", err)
	}
	defer unix.Munmap(memory) //nolint:errcheck // it was mapped above
	rand.Read(memory)         // a disk may compress zeros
	written, write, err := moveBlocks(ctx, blocks, memory, f.WriteAt)
	if err == nil {
		_, read, err = moveBlocks(ctx, written, memory, f.ReadAt)
	}
	return write, read, err
}

// moveBlocks moves so many blocks between a file and buffers, several at once, until all are moved or the time is
// over. It returns how many, from the first without a gap, and bytes a second.
func moveBlocks(ctx context.Context, blocks int64, memory []byte,
	move func(block []byte, at int64) (int, error)) (int64, float64, error) {
	var next, done atomic.Int64
	moving, begin := errgroup.Group{}, time.Now()
	for i := range depth {
		block := memory[i*blockSize : (i+1)*blockSize]
		moving.Go(func() error {
			for ctx.Err() == nil && time.Since(begin) < trialTime {
				at := next.Add(1) - 1
				if at >= blocks {
					break
				}
				if _, err := move(block, at*blockSize); err != nil {
					return cmp.Or(errors.Unwrap(err), err)
				}
				done.Add(1)
			}
			return ctx.Err()
		})
	}
	err := moving.Wait()
	return done.Load(), float64(done.Load()*blockSize) / time.Since(begin).Seconds(), err
}

// libaio checks the library with which DeepSpeed accesses NVMe.
func libaio(_ context.Context, p *patient) Result {
	const fix = "install it: apt-get install libaio-dev, or dnf install libaio-devel"
	switch facts, _ := p.torch(); {
	case !facts.Libaio:
		return problem(fix, "the interpreter cannot load it, and DeepSpeed reaches NVMe through it")
	case !job.HasLibaio(p.python.Path(), commandline.Environ(p.env)):
		return warn(fix, "it loads, but libaio.h and libaio.so are missing: DeepSpeed cannot build its access to NVMe")
	}
	return found("it loads, and can be linked with")
}
