package strategy

import "testing"

func TestGlobalBatch(t *testing.T) {
	plan := Plan{MicroBatchSize: "8", GradientAccumulationSteps: "4"}
	scoped := func(scope string) map[Knob]Range { return map[Knob]Range{GradientAccumulationSteps: {Scope: scope}} }
	for _, test := range []struct {
		job  Job
		plan Plan
		want int
	}{
		{Job{DataParallel: 2}, plan, 64},
		{Job{}, plan, 32},
		{Job{DataParallel: 2}, Plan{MicroBatchSize: "8"}, 16},
		{Job{DataParallel: 2, Knobs: scoped(ScopeGlobal)}, plan, 32},
		{Job{DataParallel: 2, Knobs: scoped(ScopeDerived)}, plan, 0},
		{Job{DataParallel: 2}, Plan{}, 0},
	} {
		if got := test.job.GlobalBatch(test.plan); got != test.want {
			t.Errorf("%+v of %v: %d, want %d", test.plan, test.job, got, test.want)
		}
	}
}
