package ranks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// lateBaseline is how long after the first ranks' start the memory in use is still that of
// others: creating a CUDA context alone takes longer, so that no rank holds more than
// idleLevel by then.
const lateBaseline = 250 * time.Millisecond

// A DeviceBaseline is the memory in use on a job's devices before its first attempt, which is read
// as soon as NVML is up, in parallel with the ranks' start.
//
// Where NVML comes up so late that the memory may be the ranks', nothing counts as in use
// before: a driver that is slow to come up had no GPU awake. The memory in use after the
// first attempt, without ranks, is the level from then on.
type DeviceBaseline struct {
	// Warn receives sentences about the driver for people, unless it is nil. It is set
	// before the first Watch.
	Warn func(text string)

	read    chan struct{} // closed when what follows is known
	nvml    *NVML         // nil where there is none
	devices []Device
	at      time.Time       // of reading
	facts   []strategy.Fact // the memory of others, and gaps
	lost    *silentGPU      // a GPU that does not answer; nil for none

	examined chan struct{} // closed when what follows is known
	findings DeviceFindings

	mu       sync.Mutex
	began    time.Time // when the first ranks were about to start
	emitted  bool      // the facts
	reported bool      // the findings
	level    []Device  // nil until it is first needed
	late     bool
}

// Baseline begins to read the level of the devices that a job with this environment
// sees. Known are the devices that the job was prepared with: where they are from the
// kernel's list, differences to NVML are gaps. After that the health of the devices is read,
// unless used is 0: the number of those, the first, that the job uses for certain.
func (c *NVMLConnection) Baseline(env []string, known DeviceView, used int) *DeviceBaseline {
	b := &DeviceBaseline{read: make(chan struct{}), examined: make(chan struct{})}
	if c == nil {
		close(b.read)
		close(b.examined)
		return b
	}
	c.reading.Go(func() {
		defer close(b.examined)
		b.readLevel(c, env, known)
		close(b.read)
		if used > 0 {
			b.findings = b.examine(used)
		}
	})
	return b
}

func (b *DeviceBaseline) readLevel(c *NVMLConnection, env []string, known DeviceView) {
	n, err := c.NVML()
	var view DeviceView
	if n != nil {
		var failed error
		view, failed = VisibleDevices(env, n)
		err = errors.Join(err, failed)
	}
	listed := known.Model != ""
	if listed && err != nil {
		b.gap(err.Error())
	}
	if n == nil {
		return
	}
	if listed && view.Count != known.Count {
		b.gap(fmt.Sprintf("the job was prepared with %d GPUs, and NVML knows %d that it can use", known.Count, view.Count))
	}
	b.nvml, b.devices, b.at = n, view.Devices, time.Now()
	errors.As(err, &b.lost)
	b.facts = append(b.facts, n.held(unused(b.devices))...)
}

func (b *DeviceBaseline) gap(text string) {
	b.facts = append(b.facts, fact(strategy.Fact{Content: strategy.Gap(text)}))
}

// await waits for the level, or for ctx.
func (b *DeviceBaseline) await(ctx context.Context) bool {
	select {
	case <-b.read:
		return true
	case <-ctx.Done():
		return false
	}
}

// Devices are the job's devices as they were before the first attempt. It waits for
// NVML; without it, or where ctx ends before, there are none.
func (b *DeviceBaseline) Devices(ctx context.Context) []Device {
	if !b.await(ctx) {
		return nil
	}
	return b.devices
}

// Level is the job's devices with the memory that is in use on them without ranks. It waits
// for NVML; without it, or where ctx ends before, there are none.
func (b *DeviceBaseline) Level(ctx context.Context) []Device {
	if !b.await(ctx) {
		return nil
	}
	return slices.Clone(b.levels())
}

// Settle waits until the devices' memory is back at its level, as NVML.Settle does, whose
// result it returns. It waits for NVML first, within the bound.
func (b *DeviceBaseline) Settle(ctx context.Context, bound time.Duration) []strategy.Fact {
	begin := time.Now()
	up, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if !b.await(up) || b.nvml == nil || len(b.devices) == 0 {
		return nil
	}
	facts := b.nvml.Settle(ctx, b.levels(), bound-time.Since(begin))
	if ctx.Err() == nil {
		b.adopt(facts)
	}
	return facts
}

// levels are the devices that Settle compares with.
func (b *DeviceBaseline) levels() []Device {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.level == nil {
		b.level = b.devices
		if b.tooLate() {
			b.level, b.late = unused(b.devices), true
		}
	}
	return b.level
}

// tooLate reports whether ranks may have held memory when the level was read. The caller
// holds mu.
func (b *DeviceBaseline) tooLate() bool { return !b.began.IsZero() && b.at.Sub(b.began) > lateBaseline }

// adopt makes the memory in use after the first attempt the level, where it was not known.
func (b *DeviceBaseline) adopt(facts []strategy.Fact) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.late {
		return
	}
	b.late = false
	for _, f := range facts {
		for k := range b.level {
			if t := strategy.As[*strategy.Tenant](f); t != nil && t.Device == deviceName(k) {
				b.level[k].Used = t.Bytes
			}
		}
	}
}

// Watch begins to emit the driver's critical events, as NVML.Watch does, once NVML is up,
// and returns at once. The first time it also emits the memory that others hold on the
// devices, gaps, and the devices that are not fit to train on. Ranks are started after the
// call. stop is that of NVML.Watch.
func (b *DeviceBaseline) Watch(ctx context.Context, emit func(strategy.Fact)) (stop func()) {
	b.mu.Lock()
	if b.began.IsZero() {
		b.began = time.Now()
	}
	b.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	var starting sync.WaitGroup
	inner := func() {}
	starting.Go(func() {
		if !b.await(ctx) {
			return
		}
		for _, f := range b.first() {
			if gap := strategy.As[strategy.Gap](f); gap != "" && b.Warn != nil {
				b.Warn(string(gap))
			}
			emit(f)
		}
		inner = b.nvml.Watch(ctx, b.devices, emit)
		b.report(ctx, emit)
	})
	return func() { cancel(); starting.Wait(); inner() }
}

// first are the facts of the level, once.
func (b *DeviceBaseline) first() []strategy.Fact {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.emitted {
		return nil
	}
	b.emitted = true
	var facts []strategy.Fact
	for _, f := range b.facts {
		if strategy.As[*strategy.Tenant](f) == nil || !b.tooLate() { // else it may be the ranks'
			facts = append(facts, f)
		}
	}
	return facts
}

// unused are devices on which nothing counts as in use.
func unused(devices []Device) []Device {
	empty := slices.Clone(devices)
	for i := range empty {
		empty[i].Used = 0
	}
	return empty
}
