package probe

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// repeating is a trial of a script whose processes may repeat a step that ran out of memory.
func repeating(t *testing.T, script string, rungs ...strategy.Rung) *trial {
	t.Helper()
	needs(t)
	r := newTrial(t)
	r.orders.Script, r.orders.Hooks = testdata(t, script), true
	r.orders.InPlace = &strategy.InPlaceOrders{Rungs: rungs}
	return r
}

// A job that does not fit under its ceiling trains to its end in one process, with the losses and
// weights that it has without a ceiling. Only batches as large as the smallest that failed are
// recomputed.
func TestStepIsRepeatedUnderCeiling(t *testing.T) {
	rows := "1,1,1,1,1,6,1,1,6,4,7"
	r := repeating(t, "loops.py")
	r.orders.InPlace = nil
	want := r.warmed(t, r.orders.Script, rows, "0")
	r = repeating(t, "loops.py", strategy.RungCheckpointing)
	if got := r.warmed(t, r.orders.Script, rows, "110"); got != want {
		t.Errorf("trained to %s, want %s", got, want)
	}
	said, _ := r.told(t)
	if len(said.InPlace) != 1 || said.InPlaceRefused != nil {
		t.Fatalf("repeated %+v, refused %+v", said.InPlace, said.InPlaceRefused)
	}
	one := said.InPlace[0]
	if one.Rung != strategy.RungCheckpointing || one.Phase != "forward" || one.Step != 5 || one.Times != 1 || one.LastStep != 5 || one.Requested == 0 || one.Seconds <= 0 || one.Elements != 6<<18 || one.Longest != 1<<18 || one.At.IsZero() {
		t.Errorf("repeated %+v", one)
	}
	if strings.Contains(want, "gpurun") {
		t.Errorf("printed %s", want)
	}
}
