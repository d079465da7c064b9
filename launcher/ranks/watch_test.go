package ranks

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// watched is a watch on a board, and what it emits.
type watched struct {
	board *board
	facts chan strategy.Fact
	stop  func()
}

func watchBoard(t *testing.T, b *board, devices ...Device) watched {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	facts := make(chan strategy.Fact, 16)
	n := &NVML{driver: b}
	wait := n.Watch(ctx, devices, func(f strategy.Fact) { facts <- f })
	return watched{b, facts, func() { cancel(); wait(); close(facts); n.watching.Wait() }}
}

func (w watched) raise(a alarm)  { w.board.alarms <- func() (alarm, error) { return a, nil } }
func (w watched) fail(err error) { w.board.alarms <- func() (alarm, error) { return alarm{}, err } }

// rest ends the watch and returns what it emitted.
func (w watched) rest() []strategy.Fact {
	w.stop()
	var facts []strategy.Fact
	for f := range w.facts {
		facts = append(facts, f)
	}
	return facts
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The job sees NVML's 1 and 0, in this order.
		w := watchBoard(t, newBoard(h100(0), h100(1), h100(2)), h100(1), h100(0))
		if diff := cmp.Diff([]string{uuids[1], uuids[0]}, w.board.subscribed); diff != "" {
			t.Errorf("subscribed when Watch returns:\n%s", diff)
		}
		w.raise(alarm{uuid: uuids[0], kind: xidAlarm, xid: 79})
		w.raise(alarm{uuid: uuids[1], kind: eccAlarm})
		w.raise(alarm{uuid: uuids[2], kind: eccAlarm}) // not the job's
		w.raise(alarm{kind: eccAlarm})                 // too dead to say which
		synctest.Wait()
		var got []string
		for _, f := range w.rest() {
			if f.DriverEvent() == nil || f.Rank != -1 || f.Source != "nvml" || f.Time.IsZero() {
				t.Fatalf("%+v", f)
			}
			got = append(got, f.DriverEvent().Device+" "+f.DriverEvent().Text())
		}
		_, meaning := cause.XID(79)
		xid := "cuda:1 Xid 79 on " + uuids[0]
		if meaning != "" {
			xid += ": " + meaning
		}
		want := []string{xid, "cuda:0 uncorrectable ECC error on " + uuids[1], " uncorrectable ECC error on a GPU"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

// After an Xid 79 the driver answers at once, for ever. It is said once, and does
// not keep a core busy.
func TestWatchLostGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0), h100(1))
		b.broken[uuids[1]] = errLost
		w := watchBoard(t, b, h100(0), h100(1))
		for range 8 {
			w.fail(errLost)
		}
		time.Sleep(5 * lostPause / 2)
		if left := len(w.board.alarms); left != 5 {
			t.Errorf("%d of 8 answers are left after 2.5 pauses, want 5", left)
		}
		facts := w.rest()
		want := &cause.DriverEvent{Kind: cause.LostEvent, Device: "cuda:1", UUID: uuids[1]}
		if len(facts) != 1 || !cmp.Equal(facts[0].DriverEvent(), want) {
			t.Errorf("%+v, want the loss of cuda:1", facts)
		}
	})
}

// The driver also answers so where it has lost the GPU of another job.
func TestWatchAnothersLostGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchBoard(t, newBoard(h100(0)), h100(0))
		w.fail(errLost)
		synctest.Wait()
		facts := w.rest()
		if len(facts) != 1 || facts[0].DriverEvent() != nil || strategy.As[strategy.Gap](facts[0]) == "" {
			t.Errorf("%+v, want a gap", facts)
		}
	})
}

// A GPU that raises the same event without end does not fill the journal.
func TestWatchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchBoard(t, newBoard(h100(0)), h100(0))
		for range 2 * alarmLimit {
			w.raise(alarm{uuid: uuids[0], kind: xidAlarm, xid: 92})
		}
		w.raise(alarm{uuid: uuids[0], kind: xidAlarm, xid: 79})
		synctest.Wait()
		facts := w.rest()
		if len(facts) != alarmLimit+1 || facts[alarmLimit].DriverEvent().XID != 79 {
			t.Errorf("%d facts, want %d of Xid 92 and one of Xid 79", len(facts), alarmLimit)
		}
	})
}

// stop ends the watch by itself, and may be called again; emit is not called after it.
func TestWatchStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0))
		n, told, begin := &NVML{driver: b}, 0, time.Now()
		stop := n.Watch(context.Background(), []Device{h100(0)}, func(strategy.Fact) { told++ })
		synctest.Wait() // it listens
		stop()
		stop()
		if took := time.Since(begin); took != 0 {
			t.Errorf("the end of a watch waits %s for the driver", took)
		}
		b.alarms <- func() (alarm, error) { return alarm{uuid: uuids[0], kind: eccAlarm}, nil }
		time.Sleep(10 * alarmBound)
		n.watching.Wait()
		if told != 0 || !b.closed {
			t.Errorf("told %d, closed %t", told, b.closed)
		}
	})
}

func TestWatchGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0), h100(1))
		b.refuse = errors.New("Not Supported")
		none := watchBoard(t, b, h100(0)).rest()
		if len(none) != 1 || !strings.Contains(string(strategy.As[strategy.Gap](none[0])), "Not Supported") {
			t.Errorf("%+v, want a gap", none)
		}
		// One of two devices is covered: a gap, and alarms of the other.
		some := watchBoard(t, b, h100(0), h100(1))
		some.raise(alarm{uuid: uuids[0], kind: eccAlarm})
		synctest.Wait()
		some.fail(errors.New("Unknown Error"))
		synctest.Wait()
		some.raise(alarm{uuid: uuids[0], kind: eccAlarm}) // nobody listens any more
		synctest.Wait()
		facts := some.rest()
		if len(facts) != 3 || strategy.As[strategy.Gap](facts[0]) == "" || facts[1].DriverEvent() == nil || !strings.Contains(string(strategy.As[strategy.Gap](facts[2])), "Unknown Error") {
			t.Errorf("%+v, want a gap, an event and a gap", facts)
		}
	})
}

// Without devices there is nothing to watch and nothing to say.
func TestWatchNothing(t *testing.T) {
	w := watchBoard(t, newBoard(h100(0)))
	if facts := w.rest(); facts != nil || w.board.subscribed != nil {
		t.Errorf("%+v, subscribed to %q", facts, w.board.subscribed)
	}
	var none *NVML // where the machine has no driver
	none.Watch(t.Context(), []Device{h100(0)}, func(f strategy.Fact) { t.Errorf("%+v", f) })()
}
