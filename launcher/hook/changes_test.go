package hook

import (
	"fmt"
	"math"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// What a job changes beside its optimizer is counted with its own batch, and compared in every step where gpurun
// has changed it: a change that follows the micro batches is reported, one that follows the steps is not.
func TestChangesBesideTheOptimizer(t *testing.T) {
	path := needs(t)
	changes := func(t *testing.T, kind, accumulation, steps string, batch bool, before *strategy.Outside) *strategy.LossSeen {
		t.Helper()
		r := newTrial(t)
		r.orders = Orders{Script: testdata(t, "changes.py"), Batch: batch, Changes: before}
		cmd := r.job(t, path, r.orders.Script, kind, accumulation, steps)
		if err := r.installed.Go(); err != nil {
			t.Fatal(err)
		}
		if out, errs, code := testenv.Warmed(t, cmd); code != 0 {
			t.Fatalf("exit code %d:\n%s%s", code, out, errs)
		}
		said, _ := r.told(t)
		if said == nil || said.Loss == nil || said.Loss.Outside == nil {
			t.Fatalf("told %+v", said)
		}
		return said.Loss
	}
	for _, test := range []struct {
		kind    string
		kept    bool // where the untouched job was seen
		unknown bool // where it was not
	}{
		{"nothing", true, true},
		{"clip each step", true, false},
		{"clip each micro batch", false, false},
		{"schedule each step", true, true},
		{"schedule each micro batch", false, false},
		{"every eighth, data", false, false},
		{"every fourth", false, false},
		{"buffer each micro batch", false, false},
		{"data each step", false, false}, // no version shows how often the untouched job does it
	} {
		t.Run(test.kind, func(t *testing.T) {
			t.Parallel()
			own := changes(t, test.kind, "1", "24", false, nil)
			if test.kind == "every fourth" {
				// Most of these steps are only counted. Each look is at four of six parameters.
				many := changes(t, test.kind, "1", "240", false, nil).Outside
				if often := float64(many.Parameters) / float64(many.Steps); many.Steps > 60 || math.Abs(often-.25*4/6) > .06 {
					t.Errorf("in 240 steps %+v", *many)
				}
			}
			if own.Differs != "" || own.Outside.Steps < 8 {
				t.Errorf("untouched: %+v %+v", own, own.Outside)
			}
			for _, known := range []bool{true, false} {
				before, want := own.Outside, test.kept
				if !known {
					before, want = nil, test.unknown
				}
				if got := changes(t, test.kind, "2", "24", true, before); (got.Differs == "") != want {
					t.Errorf("known %v: %q, %+v, before %+v", known, got.Differs, *got.Outside, fmt.Sprint(before))
				}
			}
		})
	}
}
