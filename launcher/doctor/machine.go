package doctor

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/host"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/strategy"
)

// machineChecks: host memory, shared memory, the clock.
var machineChecks = []check{
	{name: "memory", look: memory},
	{name: "shared memory", look: sharedMemory, late: "/dev/shm does not answer: restart the container or the machine"},
	{name: "clock", look: clock},
}

const (
	// littleMemory is what PyTorch and its libraries need of host memory in one rank, more
	// or less.
	littleMemory = 2 << 30
	// littleShared is what containers have where nobody says more: two batches of images.
	littleShared = 64 << 20
	// enoughShared is what data loaders with several workers hold at times.
	enoughShared = 1 << 30
)

const moreMemory = "Slurm: --mem; docker: --memory; Kubernetes: resources.limits.memory"

func memory(_ context.Context, p *patient) Result {
	m, err := p.host.Memory()
	if err != nil {
		return problem("mount /proc", "%v", err)
	}
	text := fmt.Sprintf("%s available of %s", strategy.GiB(m.Available), strategy.GiB(m.Total))
	if m.Limit > 0 && m.Limit < m.Total {
		text += fmt.Sprintf(", at most %s (cgroup %s)", strategy.GiB(m.Limit), m.Group)
	}
	ranks := int64(p.ranks())
	if m.Available < littleMemory/2*ranks {
		return problem(moreMemory, "%s, for %s", text, counted(int(ranks), "rank"))
	}
	if m.Available < littleMemory*ranks {
		return warn(moreMemory, "%s, for %s", text, counted(int(ranks), "rank"))
	}
	var largest int64
	for _, d := range p.cards().view.Devices {
		largest = max(largest, d.Total)
	}
	if m.Available < largest {
		return warn(moreMemory, "%s, less than a GPU has (%s): offload and checkpoints may not fit", text, strategy.GiB(largest))
	}
	return found("%s", text)
}

// ranks is how many ranks there will be on this machine: the job's, or one a GPU.
func (p *patient) ranks() int {
	if p.prepared != nil {
		return max(p.prepared.Ranks(), 1)
	}
	return max(p.cards().count(), 1)
}

const moreShared = python.MoreShared

func sharedMemory(_ context.Context, p *patient) Result {
	disk, err := host.DiskAt(p.shm)
	if err == nil {
		err = unix.Access(p.shm, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return problem(moreShared, "%s cannot be used: %v", p.shm, err)
	}
	text := fmt.Sprintf("%s free of %s", size(disk.Free), size(disk.Total))
	switch {
	case !disk.RAM:
		return warn("mount a tmpfs there", "%s is on a disk: NCCL and data loaders are slow", p.shm)
	case disk.Free <= littleShared:
		return problem(moreShared, "%s: NCCL and data loaders end with a bus error", text)
	case disk.Free < enoughShared:
		return warn(moreShared, "%s: data loaders with several workers need more", text)
	}
	return found("%s", text)
}

// size is a number of bytes for people, in MiB where GiB would be too coarse.
func size(bytes int64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return strategy.GiB(bytes)
}

func clock(context.Context, *patient) Result {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return skip("the kernel does not say whether it is set: %v", err)
	}
	return clockOf(state, t)
}

// clockOf reads the kernel's answer (adjtimex(2)).
func clockOf(state int, t unix.Timex) Result {
	if state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0 {
		return warn("start chrony or systemd-timesyncd: timedatectl set-ntp true", "not synchronised: times in logs of several machines do not compare, certificates may fail")
	}
	return found("synchronised, within %s", (time.Duration(t.Maxerror) * time.Microsecond).Round(time.Millisecond))
}
