package launcher

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A broken GPU is a cause: ranks that only suffer from it need not be waited for
// until something else explains them. An event that says nothing of the end, and
// one alone while the ranks train, stop nobody.
func TestDriverEventNamesACause(t *testing.T) {
	now := time.Now()
	timeout := strategy.Fact{Rank: 0, Source: "stderr", Sighting: &cause.Sighting{Code: cause.NCCLTimeout, Symptom: true, Stream: "stderr", Seq: 1}}
	exit := strategy.Fact{Rank: 0, Source: "exit", Exit: &strategy.Exit{Code: 134, Signal: 6}}
	for _, c := range []struct {
		xid    int
		window time.Duration
	}{{79, collectWindow}, {45, symptomWindow}, {63, symptomWindow}} {
		o := newOutlook()
		o.add(strategy.Fact{Rank: -1, Source: "nvml", DriverEvent: &cause.DriverEvent{Kind: cause.XIDEvent, XID: c.xid}}, now)
		if at := o.deadline(); !at.IsZero() {
			t.Errorf("Xid %d alone stops the ranks", c.xid)
		}
		o.add(timeout, now)
		o.add(exit, now)
		if got := o.deadline().Sub(now); got != c.window {
			t.Errorf("after Xid %d the ranks have %s, want %s", c.xid, got, c.window)
		}
	}
}
