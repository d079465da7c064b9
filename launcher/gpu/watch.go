package gpu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	// alarmBound is how long one wait for an alarm may last. The driver cannot be
	// interrupted, so this is also how long the end of a watch may take.
	alarmBound = 200 * time.Millisecond
	// lostPause keeps a watch from spinning: once a GPU is lost the driver answers
	// at once instead of waiting.
	lostPause = time.Second
)

// Watch emits a fact for each critical event, an Xid or an uncorrectable memory
// error, on the given devices: those of a View, so that device k is called
// cuda:k. It has subscribed when it returns, so that nothing is missed that
// happens afterwards. emit is called from one goroutine, which lives until ctx
// ends; wait returns when it has ended. A device that cannot be watched, and a
// driver that stops answering, are emitted as gaps.
func (n *NVML) Watch(ctx context.Context, devices []Device, emit func(strategy.Fact)) (wait func()) {
	if len(devices) == 0 {
		return func() {}
	}
	w := &watch{names: map[string]string{}, emit: emit}
	var uuids []string
	for k, d := range devices {
		w.names[d.UUID] = fmt.Sprintf("cuda:%d", k)
		uuids = append(uuids, d.UUID)
	}
	sub, err := n.driver.subscribe(uuids)
	if err != nil {
		w.gap(fmt.Sprintf("GPU alarms are not heard: %v", err))
	}
	if sub == nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer sub.close() //nolint:errcheck // nothing is lost with a set of alarms
		w.listen(ctx, sub)
	}()
	return func() { <-done }
}

// watch turns alarms into facts.
type watch struct {
	names map[string]string // UUID to cuda:k
	lost  bool              // a lost GPU has been reported
	emit  func(strategy.Fact)
}

func (w *watch) listen(ctx context.Context, sub subscription) {
	for ctx.Err() == nil {
		a, err := sub.next(alarmBound)
		switch {
		case err == nil:
			w.sight(a)
		case errors.Is(err, errQuiet):
		case errors.Is(err, errLost):
			w.loss()
			sleep(ctx, lostPause)
		default:
			w.gap(fmt.Sprintf("GPU alarms are no longer heard: %v", err))
			return
		}
	}
}

func (w *watch) sight(a alarm) {
	device := w.names[a.uuid]
	if device == "" && a.uuid != "" {
		return // somebody else's GPU
	}
	gpu := "a GPU"
	if a.uuid != "" {
		gpu = "GPU " + a.uuid
	}
	s := cause.Finding{Code: cause.GPUHardware, Rank: -1, Device: device}
	switch a.kind {
	case eccAlarm:
		s.Text = "uncorrectable ECC error on " + gpu
	case xidAlarm:
		code, meaning := cause.XID(a.xid)
		s.Code = code
		s.Text = fmt.Sprintf("Xid %d on %s", a.xid, gpu)
		if meaning != "" {
			s.Text += ": " + meaning
		}
	}
	w.emit(fact(strategy.Fact{Finding: &s}))
}

func (w *watch) loss() {
	if w.lost {
		return
	}
	w.lost = true
	w.emit(fact(strategy.Fact{Finding: &cause.Finding{
		Code: cause.GPUHardware, Rank: -1, Text: "the driver has lost a GPU",
	}}))
}

func (w *watch) gap(text string) { w.emit(fact(strategy.Fact{Gap: text})) }

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
