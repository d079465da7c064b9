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
			w.report(fact(strategy.Fact{Content: &strategy.DriverEvent{Kind: cause.LostEvent, Device: deviceName(k), UUID: uuid}}))
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
