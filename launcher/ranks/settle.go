package ranks

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

const (
	// settleStep is the last pause of Settle, and firstStep its first, each longer than the
	// one before: the memory of ended ranks is freed within milliseconds, or not soon. NVML
	// announces no change of memory.
	settleStep = 100 * time.Millisecond
	firstStep  = 2 * time.Millisecond
	// idleLevel is how much memory may be in use on a free GPU: contexts of monitoring, and the driver's own
	// growth once it is awake. NVIDIA's ft_launcher tolerates as much before it relaunches
	// (nvidia-resiliency-ext, docs/source/fault_tolerance/usage_guide.rst).
	idleLevel = 512 << 20
)

// Settle waits until the memory in use on each device is back at its level in baseline,
// View.Devices before attempt 0, or at a few hundred MiB where that is more. It compares the
// level and not process ids, which a container may not see. After the bound, or when ctx ends,
// it returns a Tenant for each device that is still above: Bytes is all that is in use there,
// PIDs are the holders where the driver names them. A device that does not answer is a gap.
// A nil result: all is free again.
func (n *NVML) Settle(ctx context.Context, baseline []Device, bound time.Duration) []strategy.Fact {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for pause := firstStep; ; pause = min(pause*3/2, settleStep) {
		facts := n.held(baseline)
		held := slices.ContainsFunc(facts, func(f strategy.Fact) bool { return strategy.As[*strategy.Tenant](f) != nil })
		if !held || ctx.Err() != nil { // a device that does not answer will not do so within seconds
			return facts
		}
		sleep(ctx, pause)
	}
}

// held compares the devices with their baseline once.
func (n *NVML) held(baseline []Device) []strategy.Fact {
	var facts []strategy.Fact
	for k, before := range baseline {
		now, err := n.driver.device(before.UUID)
		if err != nil {
			facts = append(facts, fact(strategy.Fact{
				Content: strategy.Gap(fmt.Sprintf("cannot read the memory use of %s: %v", deviceName(k), err)),
			}))
			continue
		}
		if now.Used <= max(before.Used, idleLevel) {
			continue
		}
		tenant := &strategy.Tenant{Device: deviceName(k), Bytes: now.Used}
		processes, _ := n.Processes(before) // for people; the level alone decides
		for _, p := range processes {
			tenant.PIDs = append(tenant.PIDs, p.PID)
		}
		facts = append(facts, fact(strategy.Fact{Content: tenant}))
	}
	return facts
}

// followPause is how often Follow reads the devices' memory.
const followPause = 2 * time.Second

// Follow reads the memory of the job's devices again and again until stop is called. now
// returns the last figures at once, none before NVML is up; those of a device that does not
// answer stay. stop does not wait for the driver.
func (b *DeviceBaseline) Follow(ctx context.Context) (now func() []Device, stop func()) {
	var mu sync.Mutex
	var latest []Device
	ctx, cancel := context.WithCancel(ctx)
	var starting sync.WaitGroup
	starting.Go(func() {
		if !b.await(ctx) || b.nvml == nil || len(b.devices) == 0 {
			return
		}
		b.nvml.watching.Go(func() {
			devices := slices.Clone(b.devices)
			for ctx.Err() == nil {
				for i, d := range devices {
					if read, err := b.nvml.driver.device(d.UUID); err == nil {
						devices[i] = read
					}
				}
				mu.Lock()
				latest = slices.Clone(devices)
				mu.Unlock()
				sleep(ctx, followPause)
			}
		})
	})
	now = func() []Device {
		mu.Lock()
		defer mu.Unlock()
		return latest
	}
	return now, func() { cancel(); starting.Wait() }
}

// initialNamespace is the kernel's own namespace of process numbers
// (PROC_PID_INIT_INO in include/linux/proc_ns.h): the driver numbers processes by it.
const initialNamespace = "pid:[4026531836]"

// Used is the memory of a process on the job's devices by the driver's account: PyTorch's,
// the context, the libraries and all else outside its allocator. It is 0 where that is not
// known: in a container the driver's process numbers are those of another namespace. It does
// not wait for NVML.
func (b *DeviceBaseline) Used(pid int) int64 {
	if own, err := os.Readlink("/proc/self/ns/pid"); err != nil || own != initialNamespace {
		return 0
	}
	select {
	case <-b.read:
		return b.usedBy(pid)
	default:
		return 0
	}
}

func (b *DeviceBaseline) usedBy(pid int) (bytes int64) {
	if b.nvml == nil {
		return 0
	}
	for _, d := range b.devices {
		processes, err := b.nvml.Processes(d)
		if err != nil {
			return 0 // half of it would be a wrong figure
		}
		for _, p := range processes {
			if p.PID == pid {
				bytes += p.Bytes
			}
		}
	}
	return bytes
}
