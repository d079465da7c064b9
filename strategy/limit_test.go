package strategy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The order of two policies does not matter: of each key, the stricter value counts.
func TestStrictestPolicyHasTheStricterValueOfEachKey(t *testing.T) {
	a := Policy{MaxAttempts: 3, Numerics: Any, RestartFromZero: 60, Never: []string{"nvme"}, InPlace: true, Mode: Predict}
	b := Policy{MaxAttempts: 9, Numerics: Preserve, RestartFromZero: 30, Never: []string{"shard"}, InPlace: false, Mode: Predict}
	want := Policy{MaxAttempts: 3, Numerics: Preserve, RestartFromZero: 30, Never: []string{"nvme", "shard"}, Mode: Predict}
	if diff := cmp.Diff(want, a.Strictest(b)); diff != "" {
		t.Error(diff)
	}
	want.Never = []string{"shard", "nvme"}
	if diff := cmp.Diff(want, b.Strictest(a)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(a, a.Strictest(a)); diff != "" {
		t.Error(diff)
	}
	if len(a.Never) != 1 || len(b.Never) != 1 {
		t.Error("a policy has changed")
	}
}

func TestStricterPolicyForbidsPlans(t *testing.T) {
	j := Job{Written: Plan{MicroBatchSize: "8", Precision: "fp32"}, Knobs: map[Knob]Range{MicroBatchSize: {}, Precision: {Values: []Value{"fp32", "bf16"}}}}
	half := j.Written.With(Plan{Precision: "bf16"})
	small := j.Written.With(Plan{MicroBatchSize: "4"})
	for name, test := range map[string]struct {
		policy Policy
		plan   Plan
		want   bool
	}{
		"allowed":          {Policy{Numerics: MixedPrecision, NumericsSaid: true}, half, false},
		"preserve":         {Policy{Numerics: Preserve}, half, true},
		"never":            {Policy{Numerics: Any, Never: []string{"micro-batch"}}, small, true},
		"never, of a knob": {Policy{Numerics: Any, Never: []string{"micro_batch_size"}}, small, true},
		"another remedy":   {Policy{Numerics: Preserve, Never: []string{"nvme"}}, small, false},
		"as written":       {Policy{Numerics: Preserve, Never: []string{"micro-batch", "precision"}}, j.Written, false},
	} {
		if why := test.policy.Forbids(j, test.plan); (why != "") != test.want {
			t.Errorf("%s: %q", name, why)
		}
	}
}
