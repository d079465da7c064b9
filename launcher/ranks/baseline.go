package ranks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
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

// DeviceFindings describe the health of a job's devices.
type DeviceFindings struct {
	// Unfit are the devices that nothing should be trained on.
	Unfit []cause.DriverEvent
	// Notable are sentences about the others, for people.
	Notable []string
}

// Findings waits until the devices' health was read, or for ctx. There are none without NVML.
func (b *DeviceBaseline) Findings(ctx context.Context) DeviceFindings {
	select {
	case <-b.examined:
		return b.findings
	case <-ctx.Done():
		return DeviceFindings{}
	}
}

// report emits the findings once, and warns of the notable ones.
func (b *DeviceBaseline) report(ctx context.Context, emit func(strategy.Fact)) {
	found := b.Findings(ctx)
	b.mu.Lock()
	first := !b.reported && ctx.Err() == nil
	b.reported = b.reported || first
	b.mu.Unlock()
	if !first {
		return
	}
	for _, text := range found.Notable {
		if b.Warn != nil {
			b.Warn(text)
		}
	}
	for _, event := range found.Unfit {
		emit(fact(strategy.Fact{Content: (*strategy.DriverEvent)(&event)}))
	}
}

// examine reads the health of each device. A fault of one that the job may not use is notable.
func (b *DeviceBaseline) examine(used int) DeviceFindings {
	var found DeviceFindings
	if b.lost != nil {
		found.add(len(b.devices) < used, b.unlisted())
	}
	healths, links := map[int]strategy.Health{}, map[string]int{}
	for k, d := range b.devices {
		h, err := b.nvml.driver.health(d.UUID)
		if err != nil && !errors.Is(err, errLost) {
			found.Notable = append(found.Notable, fmt.Sprintf("%s does not report its health: %v", named(k, d), err))
			continue
		}
		if event := b.judge(k, h, err); event.Fault != "" {
			found.add(k < used, event)
		}
		if err == nil {
			healths[k], links[d.Name] = h, max(links[d.Name], h.Links)
		}
	}
	for k, d := range b.devices {
		if h, known := healths[k]; known {
			for _, text := range h.Notable(links[d.Name]) {
				found.Notable = append(found.Notable, named(k, d)+": "+text)
			}
		}
	}
	return found
}

// add adds the fault of a device.
func (f *DeviceFindings) add(used bool, event cause.DriverEvent) {
	if used {
		f.Unfit = append(f.Unfit, event)
	} else {
		f.Notable = append(f.Notable, event.Text())
	}
}

// unlisted is the event of a GPU that does not answer.
func (b *DeviceBaseline) unlisted() cause.DriverEvent {
	return cause.DriverEvent{
		Kind: cause.UnfitEvent, Index: b.lost.index, Recovery: cause.RecoverByReboot,
		Fault: fmt.Sprintf("the driver lists GPU %d and gets no answer from it: %v", b.lost.index, b.lost.err),
	}
}

// judge is the event of device k, without a fault where it is fit to train on. err: the driver
// has lost it.
func (b *DeviceBaseline) judge(k int, h strategy.Health, err error) cause.DriverEvent {
	event := b.unfit(k, h.Unfit())
	event.Bus, event.Recovery = h.Bus, h.Recovery
	switch {
	case err != nil:
		event.Fault, event.Recovery = "the driver has lost it", cause.RecoverByReboot
	case h.Pending && h.Recovery == "" && !h.Failed:
		event.Recovery = cause.RecoverByReset
	}
	return event
}

// unfit is the event of device k with a fault. It is called once the level is read.
func (b *DeviceBaseline) unfit(k int, fault string) cause.DriverEvent {
	e := cause.DriverEvent{Kind: cause.UnfitEvent, Device: deviceName(k), Fault: fault}
	if k < len(b.devices) {
		e.UUID, e.Index = b.devices[k].UUID, b.devices[k].Index
	}
	return e
}

func named(k int, d Device) string { return fmt.Sprintf("%s (%s)", deviceName(k), d.UUID) }
