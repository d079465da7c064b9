package strategy

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/memory"
)

// The remedy for an out-of-memory error in an evaluation depends on the source of the
// evaluation's batch.
func TestOutOfMemoryInEvaluation(t *testing.T) {
	plan := Plan{MicroBatchSize: "32", GradientAccumulationSteps: "4"}
	calls := func(training, evaluation int) []memory.Measurement {
		return []memory.Measurement{{Batch: training, EvaluationBatch: evaluation}}
	}
	for name, test := range map[string]struct {
		of       Range
		plan     Plan
		measured []memory.Measurement
		want     string // the change, or why there is none
	}{
		"its batch is the training's":        {Range{Absent: "as the training's", Follows: MicroBatchSize}, plan, nil, "micro batch 32→16, accumulation 4→8"},
		"it has a batch of its own":          {Range{Min: 1}, plan.With(Plan{EvalBatchSize: "8"}), nil, "eval batch 8→4"},
		"one that it had with equal numbers": {Range{Min: 1}, plan.With(Plan{EvalBatchSize: "32"}), calls(32, 32), "eval batch 32→16"},
		"nothing is known":                   {Range{Absent: "up to the code"}, plan, nil, "up to the code"},
		"the process shows the training's":   {Range{Absent: "up to the code"}, plan, calls(32, 32), "micro batch 32→16, accumulation 4→8"},
		"the process shows another":          {Range{Absent: "up to the code"}, plan, calls(32, 1), "up to the code"},
	} {
		j := Job{Written: test.plan, Ranks: 1, DataParallel: 1, Knobs: map[Knob]Range{MicroBatchSize: {Min: 1}, GradientAccumulationSteps: {Min: 1}, EvalBatchSize: test.of}}
		d := Decide(Policy{Mode: Predict, MaxAttempts: 20}, j, []Attempt{{Plan: test.plan, Diagnosis: oom("eval"), Measured: test.measured}}, Inventory{Accelerator: "cuda"})
		got := d.Changed.String()
		for _, skip := range d.Skipped {
			if skip.Rung == RungMicroBatch {
				got = skip.Reason
			}
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s (%s)", name, got, test.want, d.Reason)
		}
	}
	// The evaluation did not follow another micro batch.
	second := plan.With(Plan{MicroBatchSize: "16", GradientAccumulationSteps: "8"})
	j := Job{Written: plan, Ranks: 1, DataParallel: 1, Knobs: map[Knob]Range{MicroBatchSize: {Min: 1}, GradientAccumulationSteps: {Min: 1}}}
	history := []Attempt{{Plan: plan, Diagnosis: oom("eval"), Measured: calls(32, 32)}, {N: 1, Plan: second, Rung: RungMicroBatch, Diagnosis: oom("eval"), Measured: calls(16, 32)}}
	if d := Decide(Policy{Mode: Predict, MaxAttempts: 20}, j, history, Inventory{Accelerator: "cuda"}); d.Relaunch && strings.Contains(d.Changed.String(), "micro batch 16→") {
		t.Errorf("the micro batch does not follow: %s", d.Reason)
	}
}
