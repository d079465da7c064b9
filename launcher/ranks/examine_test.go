package ranks

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// examined is what a baseline with a look at the devices' health emits and warns of.
func examined(t *testing.T, b *board, env []string, used int) (events []cause.DriverEvent, warned []string) {
	t.Helper()
	c := connect(func() (*NVML, error) { return &NVML{driver: b}, nil })
	defer c.Close()
	before := c.Baseline(env, DeviceView{Count: used}, used)
	before.Warn = func(text string) { warned = append(warned, text) }
	for range 2 { // attempts
		stop := before.Watch(t.Context(), func(f strategy.Fact) {
			if f.DriverEvent() != nil {
				events = append(events, *f.DriverEvent())
			}
		})
		time.Sleep(time.Second)
		stop()
	}
	return events, warned
}

// Each state that a real GPU does not take on demand, by a fake board.
func TestUnfitDevices(t *testing.T) {
	event := func(k int, fault string, recovery cause.RecoveryAction) cause.DriverEvent {
		return cause.DriverEvent{Kind: cause.UnfitEvent, Device: deviceName(k), UUID: uuids[k], Index: k, Bus: "00000000:4B:00.0", Fault: fault, Recovery: recovery}
	}
	lost := event(1, "the driver has lost it", cause.RecoverByReboot)
	lost.Bus = ""
	for name, c := range map[string]struct {
		health strategy.Health
		err    error
		want   []cause.DriverEvent
		warned string
	}{
		"well":              {strategy.Health{Links: 18}, nil, nil, ""},
		"rows wait":         {strategy.Health{Links: 18, Pending: true}, nil, []cause.DriverEvent{event(1, "broken memory waits to be remapped", cause.RecoverByReset)}, ""},
		"no spare rows":     {strategy.Health{Links: 18, Pending: true, Failed: true}, nil, []cause.DriverEvent{event(1, "broken memory, and no spare rows left", "")}, ""},
		"a reset is due":    {strategy.Health{Links: 18, Recovery: cause.RecoverByReset}, nil, []cause.DriverEvent{event(1, "the driver asks for a reset of the GPU", cause.RecoverByReset)}, ""},
		"a restart is due":  {strategy.Health{Links: 18, Recovery: cause.RecoverByReboot}, nil, []cause.DriverEvent{event(1, "the driver asks for a restart of the node", cause.RecoverByReboot)}, ""},
		"lost":              {strategy.Health{}, errLost, []cause.DriverEvent{lost}, ""},
		"silent":            {strategy.Health{Links: 18}, errors.New("Unknown Error"), nil, "cuda:1 (" + uuids[1] + ") does not report its health: Unknown Error"},
		"a link is down":    {strategy.Health{Links: 17}, nil, nil, "cuda:1 (" + uuids[1] + "): 17 NVLinks are up, and 18 on another GPU of its model"},
		"old memory errors": {strategy.Health{Links: 18, Uncorrected: 2}, nil, nil, "2 errors of its memory that ECC could not correct"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBoard(h100(0), h100(1))
				c.health.Bus = "00000000:4B:00.0"
				if c.err != nil {
					c.health.Bus = ""
				}
				b.healths[uuids[0]], b.healths[uuids[1]], b.ill[uuids[1]] = strategy.Health{Links: 18}, c.health, c.err
				got, warned := examined(t, b, nil, 2)
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
				if all := strings.Join(warned, "; "); !strings.Contains(all, c.warned) || c.warned == "" && all != "" {
					t.Errorf("warned %q, want %q", all, c.warned)
				}
			})
		})
	}
}

// A GPU that is not listed any more ends the start of a job that would use it, and what is
// wrong with one that is not used is reported.
func TestUnusedDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0), h100(1))
		b.broken[uuids[1]] = &silentGPU{1, errLost}
		const lost = "the driver lists GPU 1 and gets no answer from it: GPU is lost"
		if got, _ := examined(t, b, nil, 2); len(got) != 1 || got[0].Text() != lost || got[0].Need() != cause.Reboot {
			t.Errorf("%+v", got)
		}
		if got, warned := examined(t, b, nil, 1); got != nil || !slices.Equal(warned, []string{lost}) {
			t.Errorf("a job on the other GPU: %+v, %q", got, warned)
		}
		b = newBoard(h100(0), h100(1))
		b.healths[uuids[1]] = strategy.Health{Pending: true}
		if got, warned := examined(t, b, nil, 1); got != nil || len(warned) != 1 || !strings.Contains(warned[0], "cuda:1 ("+uuids[1]+", index 1): broken memory waits") {
			t.Errorf("a job on the other GPU: %+v, %q", got, warned)
		}
		b.looking = make(chan struct{}) // for good: nobody may ask
		if got, warned := examined(t, b, nil, 0); got != nil || warned != nil {
			t.Errorf("nobody is to look: %+v, %q", got, warned)
		}
	})
}

// The ranks' start, and all that is known of memory, does not wait for what the devices say
// of their health; and who ends meanwhile does not, either.
func TestHealthInParallelWithTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0))
		b.use(uuids[0], 20*gib)
		b.looking = make(chan struct{})
		b.healths[uuids[0]] = strategy.Health{Pending: true}
		c := connect(func() (*NVML, error) { return &NVML{driver: b}, nil })
		before := c.Baseline(nil, DeviceView{Count: 1}, 1)
		var mu sync.Mutex
		var order []string
		happens := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		emit := func(f strategy.Fact) {
			switch {
			case strategy.As[*strategy.Tenant](f) != nil:
				happens("tenant")
			case f.DriverEvent() != nil:
				happens(string(f.DriverEvent().Kind))
			}
		}
		begin := time.Now()
		stop := before.Watch(t.Context(), emit)
		synctest.Wait()
		happens("ranks start")
		b.alarms <- func() (alarm, error) { return alarm{uuid: uuids[0], kind: xidAlarm, xid: 79}, nil }
		synctest.Wait()
		if before.Level(t.Context()) == nil || time.Since(begin) != 0 {
			t.Errorf("after %s the level is not known", time.Since(begin))
		}
		stop()
		stop = before.Watch(t.Context(), emit)
		happens("ranks start")
		synctest.Wait()
		close(b.looking)
		synctest.Wait()
		stop()
		if want := []string{"tenant", "ranks start", "xid", "ranks start", "unfit"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Where the driver says that a GPU needs something else than before, it is asked what.
func TestRecoveryAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0), h100(1))
		b.healths[uuids[1]] = strategy.Health{Recovery: cause.RecoverByReset}
		w := watchBoard(t, b, h100(0), h100(1))
		for _, uuid := range []string{uuids[0], uuids[1], uuids[1], ""} {
			w.raise(alarm{uuid: uuid, kind: xidAlarm, xid: recoveryChanged})
		}
		synctest.Wait()
		var asked []cause.DriverEvent
		for _, f := range w.rest() {
			if f.DriverEvent().Kind == cause.RecoveryEvent {
				asked = append(asked, *f.DriverEvent())
			}
		}
		want := []cause.DriverEvent{{Kind: cause.RecoveryEvent, Device: "cuda:1", UUID: uuids[1], Recovery: cause.RecoverByReset}}
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

// board is a driver with GPUs that a test makes, loses and fills. A real driver
// raises an Xid or loses a GPU only when something breaks, and most machines that
// run these tests have none.
type board struct {
	mu      sync.Mutex
	gpus    []Device
	parts   map[int][]Device           // MIG instances by index
	holders map[string][]DeviceProcess // by UUID
	broken  map[string]error           // by UUID
	healths map[string]strategy.Health
	ill     map[string]error // by UUID: what health answers
	looking chan struct{}    // health waits until it is closed; nil: it does not
	asked   int              // calls of device

	alarms     chan func() (alarm, error)
	subscribed []string
	refuse     error // what subscribe answers
	closed     bool
}

func newBoard(gpus ...Device) *board {
	return &board{
		gpus: gpus, parts: map[int][]Device{}, holders: map[string][]DeviceProcess{}, broken: map[string]error{},
		healths: map[string]strategy.Health{}, ill: map[string]error{},
		alarms: make(chan func() (alarm, error), 8),
	}
}

func (b *board) versions() (string, int) { return "580.65.06", 12 }

func (b *board) health(uuid string) (strategy.Health, error) {
	if b.looking != nil {
		<-b.looking
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.healths[uuid], b.ill[uuid]
}

func (b *board) devices() ([]Device, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var usable []Device
	var errs []error
	for _, d := range b.gpus {
		if err := b.broken[d.UUID]; err != nil {
			errs = append(errs, err)
			continue
		}
		usable = append(usable, d)
	}
	return usable, errors.Join(errs...)
}

func (b *board) device(uuid string) (Device, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if err := b.broken[uuid]; err != nil {
		return Device{}, err
	}
	for _, d := range b.all() {
		if d.UUID == uuid {
			return d, nil
		}
	}
	return Device{}, errors.New("not found")
}

func (b *board) all() []Device {
	all := slices.Clone(b.gpus)
	for _, parts := range b.parts {
		all = append(all, parts...)
	}
	return all
}

func (b *board) instances(index int) ([]Device, error) { return b.parts[index], nil }

func (b *board) processes(uuid string) ([]DeviceProcess, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.holders[uuid]), b.broken[uuid]
}

func (b *board) subscribe(uuids []string) (subscription, error) {
	b.subscribed = uuids
	if b.refuse != nil && len(uuids) < 2 {
		return nil, b.refuse
	}
	return b, b.refuse
}

func (b *board) next(bound time.Duration) (alarm, error) {
	select {
	case a := <-b.alarms:
		return a()
	case <-time.After(bound):
		return alarm{}, errQuiet
	}
}

func (b *board) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// use sets how much memory a device holds.
func (b *board) use(uuid string, bytes int64, holders ...DeviceProcess) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.gpus {
		if b.gpus[i].UUID == uuid {
			b.gpus[i].Used = bytes
		}
	}
	b.holders[uuid] = holders
}

const gib = 1 << 30

// h100 is one of a few equal GPUs.
func h100(index int) Device {
	return Device{
		Index: index, UUID: uuids[index], Name: "NVIDIA H100 80GB HBM3",
		Total: 80 * gib, Used: 1 << 20, Capability: [2]int{9, 0},
	}
}

var uuids = []string{
	"GPU-5a2b6c1e-0001-4c6f-9d6b-0f2c1de2a001", "GPU-5a2b6c1e-0002-4c6f-9d6b-0f2c1de2a002",
	"GPU-9f2b6c1e-0003-4c6f-9d6b-0f2c1de2a003", "GPU-e02b6c1e-0004-4c6f-9d6b-0f2c1de2a004",
}

func TestBF16(t *testing.T) {
	for capability, want := range map[[2]int]bool{
		{7, 0}: false, {7, 5}: false, {8, 0}: true, {8, 6}: true, {9, 0}: true, {12, 0}: true, {}: false,
	} {
		if got := (Device{Capability: capability}).BF16(); got != want {
			t.Errorf("capability %v: %v", capability, got)
		}
	}
}

func TestDevices(t *testing.T) {
	b := newBoard(h100(0), h100(1))
	n := &NVML{driver: b}
	devices, err := n.Devices()
	if diff := cmp.Diff([]Device{h100(0), h100(1)}, devices); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	b.broken[uuids[0]] = errLost
	devices, err = n.Devices()
	if diff := cmp.Diff([]Device{h100(1)}, devices); diff != "" || !errors.Is(err, errLost) {
		t.Errorf("one lost: %v\n%s", err, diff)
	}
	if err := n.Close(); err != nil || !b.closed {
		t.Errorf("close: %v", err)
	}
}

// A process with both a compute and a graphics context holds memory once.
func TestProcesses(t *testing.T) {
	b := newBoard(h100(0))
	b.use(uuids[0], gib, DeviceProcess{9, 5}, DeviceProcess{3, 7}, DeviceProcess{9, 5})
	got, err := (&NVML{driver: b}).Processes(h100(0))
	if diff := cmp.Diff([]DeviceProcess{{3, 7}, {9, 5}}, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}
