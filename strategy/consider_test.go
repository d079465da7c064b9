package strategy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/strategy/cause"
	_ "github.com/gpurun/gpurun/test/testenv"
)

// TestSurveysAndWalksAgree: before the first attempt, a survey has the same result for each
// remedy as the first walk with an unknown phase. A walk has more information only with a
// failure: about waiting, and about the free remedies that are applied together with another.
func TestSurveysAndWalksAgree(t *testing.T) {
	asked := 0
	rapid.Check(t, func(t *rapid.T) {
		job, plan, policy := drawJob(t)
		inv := Inventory{Accelerator: "cuda", BF16: rapid.Bool().Draw(t, "bf16"), Missing: map[Remedy]string{}}
		for _, r := range []Remedy{RemedyAttention, RemedyCheckpointing, RemedyShard, RemedyOffloadActivations} {
			if rapid.IntRange(0, 3).Draw(t, "missing "+string(r)) == 0 {
				inv.Missing[r] = "a part of " + string(r)
			}
		}
		got := Decide(policy, job, []Attempt{ended(0, plan, oom(cause.NoPhase))}, inv)
		for _, o := range Survey(policy, job, plan, inv) {
			i := slices.IndexFunc(got.Skipped, func(k Skip) bool { return k.Remedy == o.Remedy })
			switch {
			case o.Remedy == RemedyWait || i < 0 && !slices.Contains(append(got.Riders, got.Remedy), o.Remedy):
				continue // the walk ended before it
			case i < 0:
				if !o.Available {
					t.Errorf("%s is taken, and the survey says: %s", o.Remedy, o.Reason)
				}
			case o.Remedy.row().free && o.Available:
				if !slices.Contains(got.Riders, o.Remedy) {
					t.Errorf("%s is free and does not ride along: %s", o.Remedy, got.Skipped[i].Reason)
				}
			case o.Available:
				if got.Skipped[i].Reason != "every plan that it offers has run out of memory before" {
					t.Errorf("the survey offers %s, and the walk says: %s", o.Remedy, got.Skipped[i].Reason)
				}
			case got.Skipped[i].Reason != o.Reason:
				t.Errorf("%s: the walk says %q, the survey %q", o.Remedy, got.Skipped[i].Reason, o.Reason)
			}
			asked++
		}
	})
	least := 100
	if testing.Short() {
		least /= 5 // as rapid does
	}
	if asked < least {
		t.Errorf("only %d rungs were compared", asked)
	}
}
