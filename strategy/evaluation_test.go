package strategy

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
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
			if skip.Remedy == RemedyMicroBatch {
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
	history := []Attempt{{Plan: plan, Diagnosis: oom("eval"), Measured: calls(32, 32)}, {N: 1, Plan: second, Remedy: RemedyMicroBatch, Diagnosis: oom("eval"), Measured: calls(16, 32)}}
	if d := Decide(Policy{Mode: Predict, MaxAttempts: 20}, j, history, Inventory{Accelerator: "cuda"}); d.Relaunch && strings.Contains(d.Changed.String(), "micro batch 16→") {
		t.Errorf("the micro batch does not follow: %s", d.Reason)
	}
}

// An evaluation that ran out of memory before the first step rules out no smaller micro batch that its batch
// follows, whichever rank's error counts. A batch that is not known to follow needs as much with any micro batch.
func TestEvaluationRulesOutOnlyItsOwnBatch(t *testing.T) {
	const room = 14 << 30
	follows, unknown := Range{Absent: "as the training's", Follows: MicroBatchSize}, Range{Absent: "up to the code"}
	for name, test := range map[string]struct {
		evaluation Range
		batch      int
		want       string
	}{
		"follows by the recipe":  {follows, 0, "micro batch 16→1, accumulation 1→16"},
		"and has as many":        {follows, 16, "micro batch 16→1, accumulation 1→16"},
		"follows by the process": {unknown, 16, "micro batch 16→1, accumulation 1→16"},
		"has another":            {unknown, 64, ""},
		"is not known":           {unknown, 0, ""},
	} {
		j := gpt(2)
		j.Knobs = map[Knob]Range{MicroBatchSize: {Min: 1}, GradientAccumulationSteps: {Min: 1}, EvalBatchSize: test.evaluation}
		a := failedAt(0, sixteen, room)
		a.Measured = append(a.Measured, memory.Measurement{Failed: "evaluation", EvaluationBatch: test.batch, Allocated: room - 1<<30, Requested: 2 << 30, Allowed: room})
		for _, phase := range []cause.Phase{cause.Forward, cause.Eval} {
			a.Diagnosis.Phase = phase
			if d := Decide(predicting(nil), j, []Attempt{a}, h100); d.Changed.String() != test.want {
				t.Errorf("%s, %s: %s, want %s (%s)", name, phase, d.Changed, test.want, d.Reason)
			}
		}
	}
}
