package hook

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// An optimizer whose first step does not fit under its ceiling steps a few parameters at a time, in the
// same process: with the weights that it has without a ceiling. Without permission it fails.
func TestOptimizersFirstStepIsRepeatedUnderCeiling(t *testing.T) {
	run := func(permitted bool, ceiling, way string) (string, *strategy.ProcessReport, bool) {
		r := repeating(t, "short.py")
		if r.orders.InPlace.Optimizer = permitted; !permitted {
			r.orders.InPlace = nil
		}
		out, _, code := testenv.Warmed(t, r.job(t, testenv.Python(t), r.orders.Script, ceiling, way))
		said, _ := r.told(t)
		return out, said, code == 0
	}
	want, _, trained := run(false, "0", "singly")
	if !trained {
		t.Fatal("it does not train without a ceiling")
	}
	want = strings.Replace(want, "[false]", "[true]", 1) // the job sees its own setting
	if out, _, trained := run(false, "88", "all"); trained {
		t.Fatalf("it fits: %s", out)
	}
	got, said, _ := run(true, "88", "all")
	if got != want {
		t.Errorf("trained to %s, want %s", got, want)
	}
	if len(said.InPlace) != 1 || said.InPlaceRefused != nil {
		t.Fatalf("repeated %+v, refused %+v", said.InPlace, said.InPlaceRefused)
	}
	if one := said.InPlace[0]; one.Phase != "optimizer" || one.Remedy != "" || one.Step != 0 || one.Times != 1 || one.Requested != 0 { // it is foreseen
		t.Errorf("repeated %+v", one)
	}
}
