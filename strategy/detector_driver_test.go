package strategy

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A broken GPU is a cause: for ranks that only suffer from it, the detector does not wait for
// another explanation. An event that does not explain the end, or one alone while the ranks
// train, stops no rank.
func TestDriverEventNamesACause(t *testing.T) {
	now := time.Now()
	timeout := Fact{Rank: 0, Source: "stderr", Content: &Finding{Code: cause.NCCLTimeout, Weight: cause.WeightSymptom, Stream: "stderr", Seq: 1}}
	exit := Fact{Rank: 0, Source: "exit", Content: &Exit{Code: 134, Signal: 6}}
	for _, c := range []struct {
		xid    int
		window time.Duration
	}{{79, CollectWindow}, {45, SymptomWindow}, {63, SymptomWindow}} {
		d := NewDetector(&Evidence{Ranks: 2})
		d.Add(Fact{Rank: -1, Source: "nvml", Content: &DriverEvent{Kind: cause.XIDEvent, XID: c.xid}}, now)
		if at := d.Next(); !at.IsZero() {
			t.Errorf("Xid %d alone stops the ranks", c.xid)
		}
		d.Add(timeout, now)
		d.Add(exit, now)
		if got := d.Next().Sub(now); got != c.window {
			t.Errorf("after Xid %d the ranks have %s, want %s", c.xid, got, c.window)
		}
	}
}
