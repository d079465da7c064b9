package gpu

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

const (
	// alarmBound is how long one wait for an alarm may last. The driver cannot be
	// interrupted: a watch that was stopped goes on in it, and emits nothing more.
	alarmBound = 100 * time.Millisecond
	// lostPause keeps a watch from spinning: once a GPU is lost the driver answers
	// at once instead of waiting.
	lostPause = time.Second
	// alarmLimit is how often the same event of the same device becomes a fact: a
	// failing GPU may raise one many times a second.
	alarmLimit = 3
)

// Watch emits a fact for each critical event, an Xid or an uncorrectable memory
// error, on the given devices: those of a View, so that device k is called
// cuda:k. It has subscribed when it returns, so that nothing is missed that
// happens afterwards. emit is called from one goroutine, which ends soon after stop is
// called or ctx ends, and which Close waits for; it may block. stop returns when emit will
// not be called any more, and may be called more than once; it does not wait for the driver. The same event of the same device is
// emitted at most alarmLimit times. A device that cannot be watched, and a driver
// that stops answering, are emitted as gaps. Without NVML (a nil n) or devices
// nothing is started.
func (n *NVML) Watch(ctx context.Context, devices []Device, emit func(strategy.Fact)) (stop func()) {
	if n == nil || len(devices) == 0 {
		return func() {}
	}
	w := &alarmWatch{driver: n.driver, told: map[cause.DriverEvent]int{}, emit: emit}
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
	return func() { cancel(); w.end() }
}

// end returns when nothing is emitted any more.
func (w *alarmWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

// tell emits a fact while the watch lasts.
func (w *alarmWatch) tell(f strategy.Fact) {
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
	told   map[cause.DriverEvent]int // how often each was raised
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
			w.report(a)
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

func (w *alarmWatch) report(a alarm) {
	event := cause.DriverEvent{Kind: cause.XIDEvent, XID: a.xid, UUID: a.uuid}
	if a.uuid != "" {
		k := slices.Index(w.uuids, a.uuid)
		if k < 0 {
			return // somebody else's GPU
		}
		event.Device = deviceName(k)
	}
	if a.kind == eccAlarm {
		event.Kind, event.XID = cause.ECCEvent, 0
	}
	if w.told[event]++; w.told[event] <= alarmLimit {
		w.tell(fact(strategy.Fact{DriverEvent: &event}))
	}
	if event.XID == recoveryChanged && a.uuid != "" {
		w.recovery(event)
	}
}

// recoveryChanged is the Xid by which the driver tells that a GPU needs something else than
// before; NVML tells what.
const recoveryChanged = 154

// recovery tells what the driver says that the GPU of an event needs, once.
func (w *alarmWatch) recovery(event cause.DriverEvent) {
	h, err := w.driver.health(event.UUID)
	if err != nil || h.Recovery == "" {
		return
	}
	event.Kind, event.XID, event.Recovery = cause.RecoveryEvent, 0, h.Recovery
	if w.told[event]++; w.told[event] == 1 {
		w.tell(fact(strategy.Fact{DriverEvent: &event}))
	}
}

// loss tells of the GPUs that do not answer. The driver does not say which it has
// lost, and it may be none of the job's.
func (w *alarmWatch) loss() {
	if w.lost {
		return
	}
	w.lost = true
	found := false
	for k, uuid := range w.uuids {
		if _, err := w.driver.device(uuid); err != nil {
			found = true
			w.tell(fact(strategy.Fact{DriverEvent: &cause.DriverEvent{Kind: cause.LostEvent, Device: deviceName(k), UUID: uuid}}))
		}
	}
	if !found {
		w.gap("the driver reports a lost GPU, and it is none of this job's")
	}
}

func deviceName(k int) string { return fmt.Sprintf("cuda:%d", k) }

func (w *alarmWatch) gap(text string) { w.tell(fact(strategy.Fact{Gap: text})) }

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
