package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/host"
	"github.com/gpurun/gpurun/launcher/job"
)

// nvmeChecks: the folder that optimizer states and weights can be offloaded to, how fast
// it is, and the library that DeepSpeed reaches it by.
var nvmeChecks = []check{
	{name: "speed", look: nvmeSpeed, bound: 20 * time.Second, late: diskHangs},
	{name: "libaio", torch: true, look: libaio},
}

const (
	// needed is how fast offload to NVMe reads and writes where the GPU is not to wait for
	// it, in bytes a second.
	needed = 3e9
	// largestTrial is how much is written at most, and trialTime for how long each way.
	largestTrial = 4 << 30
	trialTime    = 2 * time.Second
	// depth is how many blocks are under way at once.
	depth     = 16
	blockSize = 4 << 20
)

// noNVMe is why nothing is said of NVMe.
const noNVMe = "no folder is named: recovery.nvme_path, or gpurun doctor --nvme DIR"

func nvmeSpeed(ctx context.Context, p *patient) Result {
	if p.nvme == "" {
		return skip(noNVMe)
	}
	const fix = "name a folder on a local NVMe drive: recovery.nvme_path, or --nvme DIR"
	if lack := host.LackOfNVMe(p.nvme); lack != "" {
		return problem(fix, "%s", strings.TrimPrefix(lack, "recovery.nvme_path "))
	}
	write, read, err := measure(ctx, existing(p.nvme), largestTrial)
	switch {
	case errors.Is(err, unix.EINVAL):
		return problem(fix, "%s: its file system has no direct input and output (O_DIRECT)", p.nvme)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return problem("free some, or name another folder", "%s is full", p.nvme)
	case err != nil:
		return problem(fix, "%s: %v", p.nvme, err)
	}
	return fastEnough(p.nvme, write, read)
}

// fastEnough judges what was measured, in bytes a second.
func fastEnough(path string, write, read float64) Result {
	text := fmt.Sprintf("%s: writes %s, reads %s", path, speed(write), speed(read))
	if write < needed || read < needed {
		return warn("name a folder on a local NVMe drive, or on several as RAID 0", "%s; offload waits for less than %s", text, speed(needed))
	}
	return found("%s", text)
}

// speed is a number of bytes a second for people.
func speed(bytes float64) string { return fmt.Sprintf("%.1f GB/s", bytes/1e9) }

// measure writes a file of at most so many bytes that no cache holds, and reads it back,
// in bytes a second.
func measure(ctx context.Context, dir string, most int64) (write, read float64, err error) {
	f, err := scratch(dir, unix.O_DIRECT)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	disk, err := host.DiskAt(dir)
	if err != nil {
		return 0, 0, err
	}
	t := trial{blocks: min(most, disk.Free/2) / blockSize}
	if t.blocks == 0 {
		return 0, 0, unix.ENOSPC
	}
	memory, err := unix.Mmap(-1, 0, depth*blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return 0, 0, fmt.Errorf("map buffers: %w", err)
	}
	defer unix.Munmap(memory) //nolint:errcheck // it was mapped above
	rand.Read(memory[:blockSize])
	for at := blockSize; at < len(memory); at += blockSize {
		copy(memory[at:at+blockSize], memory) // what compresses would be moved faster
	}
	if write, err = t.run(ctx, memory, f.WriteAt); err != nil {
		return 0, 0, err
	}
	t.blocks = t.done.Load() // what was written
	if read, err = t.run(ctx, memory, f.ReadAt); err != nil {
		return 0, 0, err
	}
	return write, read, nil
}

// A trial moves the blocks of a file, several at once.
type trial struct {
	blocks int64        // to move
	done   atomic.Int64 // that were moved, from the first on without a gap
}

// run moves blocks between the file and buffers until all are moved or the time is over,
// and returns bytes a second.
func (t *trial) run(ctx context.Context, memory []byte, move func(block []byte, at int64) (int, error)) (float64, error) {
	var next atomic.Int64
	var moving sync.WaitGroup
	t.done.Store(0)
	errs := make([]error, depth)
	begin := time.Now()
	for i := range depth {
		block := memory[i*blockSize : (i+1)*blockSize]
		moving.Go(func() {
			for errs[i] == nil && ctx.Err() == nil && time.Since(begin) < trialTime {
				at := next.Add(1) - 1
				if at >= t.blocks {
					return
				}
				if _, errs[i] = move(block, at*blockSize); errs[i] == nil {
					t.done.Add(1)
				}
			}
		})
	}
	moving.Wait()
	took := time.Since(begin).Seconds()
	if err := errors.Join(errs...); err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			return 0, path.Err
		}
		return 0, err
	}
	return float64(t.done.Load()*blockSize) / took, ctx.Err()
}

func libaio(_ context.Context, p *patient) Result {
	if p.nvme == "" {
		return skip(noNVMe)
	}
	facts, err := p.torch()
	switch {
	case err != nil:
		return skip("the interpreter does not say what it has")
	case !facts.Libaio:
		return problem("install it: apt-get install libaio-dev, or dnf install libaio-devel", "the interpreter cannot load it, and DeepSpeed reaches NVMe through it")
	case !job.HasLibaio(p.python.Path(), environ.Vars(p.env)):
		return warn("install it: apt-get install libaio-dev, or dnf install libaio-devel", "it loads, but libaio.h and libaio.so are not there: DeepSpeed cannot build its access to NVMe")
	}
	return found("it loads, and can be linked with")
}
