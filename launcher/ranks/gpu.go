package ranks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// These files know the node's GPUs and watch their critical events, through NVML.
//
// NVML is the driver's own library, which OpenNVML loads. Where it is missing, or gpurun was built
// without cgo, the caller records a gap instead of a failure. Counting the GPUs that a job
// would see (VisibleDevices) works without it.

// ErrNoNVML is wrapped by the error of OpenNVML where there is no NVML: no driver, no library, or a
// build without cgo. Other errors mean a driver that does not work.
var ErrNoNVML = errors.New("no NVML")

// A Device is one GPU, or one MIG instance of a GPU, at one moment.
type Device struct {
	Index int    // NVML's number, in the order of the PCI bus; of a MIG instance, its GPU's
	UUID  string // "GPU-…" or "MIG-…"
	Name  string // "NVIDIA H200"
	Total int64  // bytes
	Used  int64  // bytes in use by all processes, without the driver's own reserve where that is known
	// Capability is the compute capability, major and minor: 9, 0 for Hopper.
	Capability [2]int
	// MIG: the GPU is cut into instances, or this is one of them.
	MIG bool
}

// BF16 reports whether the GPU computes in bfloat16, which began with compute
// capability 8.0 (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities).
func (d Device) BF16() bool { return d.Capability[0] >= 8 }

// A DeviceProcess is one that holds memory on a device.
type DeviceProcess struct {
	PID   int   // as the driver's namespace numbers it, which in a container is not ours
	Bytes int64 // 0 if the driver does not report it
}

// driver is what this package needs of NVML. Its methods may be called from
// several goroutines. Devices are named by UUID, since a number may come to
// mean another GPU when one is lost.
type driver interface {
	devices() ([]Device, error)
	device(uuid string) (Device, error)
	instances(index int) ([]Device, error) // the MIG instances of a GPU, in order
	processes(uuid string) ([]DeviceProcess, error)
	versions() (driver string, cuda int)
	health(uuid string) (strategy.Health, error)
	subscribe(uuids []string) (subscription, error)
	close() error
}

// subscription is a set of devices whose alarms the driver keeps for us.
type subscription interface {
	// next waits for one alarm, errQuiet after the bound. Only one goroutine calls it.
	next(bound time.Duration) (alarm, error)
	close() error
}

// alarm is one critical event of one device.
type alarm struct {
	uuid string // empty if the driver does not report it
	kind alarmKind
	xid  int // for kind xid
}

type alarmKind int

const (
	xidAlarm alarmKind = iota
	eccAlarm           // a double-bit ECC error: memory that could not be corrected
)

var (
	errQuiet = errors.New("no alarm")
	errLost  = errors.New("GPU is lost")
)

// A silentGPU is one that did not answer when GPUs were listed.
type silentGPU struct {
	index int // NVML's number
	err   error
}

func (s *silentGPU) Error() string { return fmt.Sprintf("GPU %d: %v", s.index, s.err) }
func (s *silentGPU) Unwrap() error { return s.err }

// NVML is an open connection to the driver. Its methods may be called from
// several goroutines.
type NVML struct {
	driver   driver
	watching sync.WaitGroup // goroutines of watches
}

// HasNVML reports whether this gpurun was built with NVML.
func HasNVML() bool { return builtIn }

// OpenNVML loads NVML and connects to the driver. The caller closes the result.
func OpenNVML() (*NVML, error) {
	d, err := openDriver("")
	if err != nil {
		return nil, fmt.Errorf("open NVML: %w", err)
	}
	return &NVML{driver: d}, nil
}

// Close ends the connection, at most alarmBound after the last watch was stopped.
func (n *NVML) Close() error {
	n.watching.Wait()
	if err := n.driver.close(); err != nil {
		return fmt.Errorf("close NVML: %w", err)
	}
	return nil
}

// Versions are the driver's, such as "580.65.06", and the major version of the newest CUDA that
// it knows; "" and 0 where it does not answer.
func (n *NVML) Versions() (driver string, cuda int) { return n.driver.versions() }

// Health reads a device's state; of an MIG instance its GPU's.
func (n *NVML) Health(d Device) (strategy.Health, error) {
	h, err := n.driver.health(d.UUID)
	if err != nil {
		return h, fmt.Errorf("read the health of GPU %d: %w", d.Index, err)
	}
	return h, nil
}

// Devices returns every GPU that this process may use, whether the job sees it
// or not, in NVML's order. With an error, which names GPUs that do not answer,
// it returns the others.
func (n *NVML) Devices() ([]Device, error) {
	devices, err := n.driver.devices()
	if err != nil {
		err = fmt.Errorf("list GPUs: %w", err)
	}
	return devices, err
}

// Processes returns who holds memory on a device, ordered by process id. The
// list may be empty while memory is held, in a container above all.
func (n *NVML) Processes(d Device) ([]DeviceProcess, error) {
	processes, err := n.driver.processes(d.UUID)
	if err != nil {
		return nil, fmt.Errorf("list processes on GPU %d: %w", d.Index, err)
	}
	slices.SortStableFunc(processes, func(a, b DeviceProcess) int { return a.PID - b.PID })
	return slices.CompactFunc(processes, func(a, b DeviceProcess) bool { return a.PID == b.PID }), nil
}

// NVMLCloseBound is how long Close waits for a driver that does not come up; a healthy one
// takes part of a second, or a few seconds where it has to wake the GPUs.
const NVMLCloseBound = 5 * time.Second

// An NVMLConnection is NVML that comes up while the caller does something else: loading the
// driver's library takes longer than all other work before ranks run. A nil Connection has no
// NVML. Its methods may be called from several goroutines.
type NVMLConnection struct {
	up      chan struct{} // closed when nvml and err are set
	nvml    *NVML
	err     error
	reading sync.WaitGroup // baselines
}

// ConnectNVML begins to open NVML. The caller closes the result.
func ConnectNVML() *NVMLConnection { return connect(OpenNVML) }

func connect(open func() (*NVML, error)) *NVMLConnection {
	c := &NVMLConnection{up: make(chan struct{})}
	c.reading.Go(func() {
		defer close(c.up)
		c.nvml, c.err = open()
	})
	return c
}

// NVML waits until it is up. The result is nil if there is none. The error then is the reason, and nil if
// that is no fault of the machine (ErrAbsent).
func (c *NVMLConnection) NVML() (*NVML, error) {
	if c == nil {
		return nil, nil
	}
	<-c.up
	if errors.Is(c.err, ErrNoNVML) {
		return nil, nil
	}
	return c.nvml, c.err
}

// Close ends the connection once it is up, and what reads through it. Watches must have
// been stopped before.
func (c *NVMLConnection) Close() error {
	if c == nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.reading.Wait()
	}()
	select {
	case <-done:
	case <-time.After(NVMLCloseBound):
		return errors.New("close NVML: the driver does not answer")
	}
	if c.nvml == nil {
		return nil
	}
	return c.nvml.Close()
}

const (
	// alarmBound is how long one wait for an alarm may last. It cannot be interrupted: a
	// watch that was stopped stays in it, and emits nothing more.
	alarmBound = 100 * time.Millisecond
	// lostPause is between two waits once a GPU is lost: the driver then answers at once.
	lostPause = time.Second
	// alarmLimit is how often the same event of the same device becomes a fact: a
	// failing GPU may raise one many times a second.
	alarmLimit = 3
)

// Watch emits a fact for each critical event, an Xid or an uncorrectable memory error, on the
// given devices: those of a View, so that device k is called cuda:k. It has subscribed when it
// returns, so that no later event is missed. emit is called from one goroutine, which ends
// soon after stop is called or ctx ends, and which Close waits for; it may block. stop returns
// when emit will not be called any more, without waiting for the driver, and may be called
// more than once. The same event of the same device is emitted at most alarmLimit times. A
// device that cannot be watched, and a driver that stops answering, are emitted as gaps.
// Without NVML (a nil n) or devices nothing is started.
func (n *NVML) Watch(ctx context.Context, devices []Device, emit func(strategy.Fact)) (stop func()) {
	if n == nil || len(devices) == 0 {
		return func() {}
	}
	w := &alarmWatch{driver: n.driver, raised: map[cause.DriverEvent]int{}, emit: emit}
	for _, d := range devices {
		w.uuids = append(w.uuids, d.UUID)
	}
	sub, err := n.driver.subscribe(w.uuids)
	if err != nil {
		w.gap(fmt.Sprintf("GPU driver events are not available: %v", err))
	}
	if sub == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	n.watching.Go(func() {
		defer sub.close() //nolint:errcheck // nothing is lost with a set of alarms
		w.listen(ctx, sub)
	})
	return func() {
		cancel()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.over = true
	}
}

// report emits a fact while the watch lasts.
func (w *alarmWatch) report(f strategy.Fact) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.emit(f)
	}
}

// alarmWatch turns alarms into facts.
type alarmWatch struct {
	driver driver
	uuids  []string                  // of cuda:0, cuda:1, …
	raised map[cause.DriverEvent]int // how often
	lost   bool                      // a lost GPU has been reported

	mu   sync.Mutex // held while a fact is emitted
	over bool
	emit func(strategy.Fact)
}

func (w *alarmWatch) listen(ctx context.Context, sub subscription) {
	for ctx.Err() == nil {
		a, err := sub.next(alarmBound)
		switch {
		case err == nil:
			w.alarm(a)
		case errors.Is(err, errQuiet):
		case errors.Is(err, errLost):
			w.loss()
			sleep(ctx, lostPause)
		default:
			w.gap(fmt.Sprintf("GPU driver events are no longer available: %v", err))
			return
		}
	}
}

func (w *alarmWatch) alarm(a alarm) {
	event := cause.DriverEvent{Kind: cause.XIDEvent, XID: a.xid, UUID: a.uuid}
	if a.uuid != "" {
		k := slices.Index(w.uuids, a.uuid)
		if k < 0 {
			return // another user's GPU
		}
		event.Device = deviceName(k)
	}
	if a.kind == eccAlarm {
		event.Kind, event.XID = cause.ECCEvent, 0
	}
	w.count(event, alarmLimit)
	if event.XID == recoveryChanged && a.uuid != "" {
		w.recovery(event)
	}
}

// count reports an event so many times at most.
func (w *alarmWatch) count(event cause.DriverEvent, limit int) {
	if w.raised[event]++; w.raised[event] <= limit {
		w.report(fact(strategy.Fact{Content: (*strategy.DriverEvent)(&event)}))
	}
}

// recoveryChanged is the Xid of a GPU that needs something else than before; NVML knows what.
const recoveryChanged = 154

// recovery reports what the GPU of an event needs, once.
func (w *alarmWatch) recovery(event cause.DriverEvent) {
	if h, err := w.driver.health(event.UUID); err == nil && h.Recovery != "" {
		event.Kind, event.XID, event.Recovery = cause.RecoveryEvent, 0, h.Recovery
		w.count(event, 1)
	}
}

// loss reports the GPUs that do not answer. The driver does not report which one it lost, and the job may not
// use that one.
func (w *alarmWatch) loss() {
	if w.lost {
		return
	}
	w.lost = true
	found := false
	for k, uuid := range w.uuids {
		if _, err := w.driver.device(uuid); err != nil {
			found = true
			w.report(fact(strategy.Fact{Content: &strategy.DriverEvent{Kind: cause.LostEvent, Device: deviceName(k),
				UUID: uuid}}))
		}
	}
	if !found {
		w.gap("the driver reports a lost GPU, which this job does not use")
	}
}

func deviceName(k int) string { return fmt.Sprintf("cuda:%d", k) }

func (w *alarmWatch) gap(text string) { w.report(fact(strategy.Fact{Content: strategy.Gap(text)})) }

// fact fills in who observed it, and when.
func fact(f strategy.Fact) strategy.Fact {
	f.Time, f.Rank, f.Source = time.Now(), -1, "nvml"
	return f
}

// sleep waits, or less if ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
