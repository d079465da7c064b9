package strategy

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A plan that fitted for another element of the array comes next, where the policy allows it and this run has not
// tried it or one that needs less.
func TestPlanOfAnotherElementComesNext(t *testing.T) {
	small := plain.With(Plan{MicroBatchSize: "2", GradientAccumulationSteps: "8"})
	smaller := plain.With(Plan{MicroBatchSize: "1", GradientAccumulationSteps: "16"})
	for name, test := range map[string]struct {
		policy  Policy
		history []Attempt
		taken   bool
	}{
		"after the job as written": {Policy{Mode: Ladder, MaxAttempts: 9, Numerics: MixedPrecision}, []Attempt{ended(0, plain, oom(cause.Backward))}, true},
		"it was tried":             {Policy{Mode: Ladder, MaxAttempts: 9, Numerics: MixedPrecision}, []Attempt{ended(0, plain, oom(cause.Backward)), ended(1, small, oom(cause.Backward))}, false},
		"a smaller one was tried":  {Policy{Mode: Ladder, MaxAttempts: 9, Numerics: MixedPrecision}, []Attempt{ended(0, plain, oom(cause.Backward)), ended(1, smaller, oom(cause.Backward))}, false},
		"never":                    {Policy{Mode: Ladder, MaxAttempts: 9, Numerics: MixedPrecision, Never: []string{"micro-batch"}}, []Attempt{ended(0, plain, oom(cause.Backward))}, false},
		"no attempt is left":       {Policy{Mode: Ladder, MaxAttempts: 1, Numerics: MixedPrecision}, []Attempt{ended(0, plain, oom(cause.Backward))}, false},
		"another failure":          {Policy{Mode: Ladder, MaxAttempts: 9, Numerics: MixedPrecision}, []Attempt{ended(0, plain, Diagnosis{Cause: cause.UserError, Fatal: true})}, false},
	} {
		j := gpt(2)
		j.Written = plain
		test.policy.RestartFromZero = Seconds(1 << 60)
		inv := Inventory{Accelerator: "cuda", Meanwhile: &Recalled{Plan: small}}
		d := Decide(test.policy, j, test.history, inv)
		taken := d.Relaunch && len(d.Next.Changed(small)) == 0
		if taken != test.taken || strings.Contains(d.Reason, "another element") != test.taken {
			t.Errorf("%s: %+v", name, d)
		}
		if taken && (d.Rung != RungMicroBatch || d.Changed[MicroBatchSize][1] != "2") {
			t.Errorf("%s: %s, %v", name, d.Rung, d.Changed)
		}
	}
}
