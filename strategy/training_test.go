package strategy

import (
	"strings"
	"testing"
)

// unprovenLoss ends a sentence about a smaller micro batch of a job of whose loss nothing is known.
const unprovenLoss = "; equal on average: nothing proves that the loss is a mean that is divided by the accumulation"

// trainedExactly is a job whose source proves that its loss is a mean.
func trainedExactly() Job {
	return Job{
		Written: Plan{MicroBatchSize: "8", GradientAccumulationSteps: "1", ActivationCheckpointing: "none", Precision: "fp32", Sharding: "none", OffloadOptimizer: "none", EvalBatchSize: "8"},
		Loss:    Loss{Class: Exact, Reason: "the loss is a mean (train.py:4)"},
	}
}

func TestPlanHasTheClassOfItsWeakestRung(t *testing.T) {
	smaller := Plan{MicroBatchSize: "4", GradientAccumulationSteps: "2"}
	kept := LossSeen{Scale: ScaleKept, Uniform: "yes"}
	unproven := func(j *Job) { j.Loss = Loss{} }
	for _, test := range []struct {
		name    string
		changes Plan
		of      func(*Job)
		seen    []LossSeen // of attempts
		class   Training
		reason  string
	}{
		{"as written", nil, nil, nil, Exact, ""},
		{"checkpointing", Plan{ActivationCheckpointing: "full"}, nil, nil, Exact, ""},
		{"offload and sharding", Plan{Sharding: "zero3", OffloadOptimizer: "cpu"}, nil, nil, Exact, ""},
		{"evaluation alone", Plan{EvalBatchSize: "4"}, unproven, nil, Exact, ""},
		{"precision", Plan{Precision: "bf16"}, nil, nil, Changed, ""},
		{"before a run", smaller, nil, nil, Exact, "the loss is a mean (train.py:4); to be confirmed by the process"},
		{"confirmed", smaller, nil, []LossSeen{kept}, Exact, "confirmed by the process"},
		{"nothing proves it", smaller, unproven, []LossSeen{kept}, Average, "nothing proves"},
		{"not confirmed", smaller, nil, []LossSeen{{}}, Average, "has not confirmed"},
		{"padded", smaller, nil, []LossSeen{{Scale: ScaleKept, Uniform: "no"}}, Average, padded},
		{"padded in one attempt of two", smaller, nil, []LossSeen{{Scale: ScaleKept, Uniform: "no"}, kept}, Average, padded},
		{"no batch seen", smaller, nil, []LossSeen{{Scale: ScaleKept}}, Average, "whether the batches are padded"},
		{"weighted by tokens", smaller, func(j *Job) { j.Loss.Weighted = true }, []LossSeen{{Scale: ScaleKept, Uniform: "no"}}, Exact, ""},
		{"wrong in one attempt of two", smaller, nil, []LossSeen{{Scale: ScaleWrong, Reason: "num_items_in_batch is ignored"}, kept}, Changed, "num_items_in_batch is ignored"},
		{"the weakest counts", smaller.With(Plan{Precision: "bf16"}), unproven, nil, Changed, ""},
		{"average beside checkpointing", smaller.With(Plan{ActivationCheckpointing: "full"}), unproven, nil, Average, "nothing proves"},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := trainedExactly()
			if test.of != nil {
				test.of(&j)
			}
			var history []Attempt
			for i, seen := range test.seen {
				history = append(history, Attempt{N: i, Plan: j.Written, Loss: seen})
			}
			class, reason := j.Training(j.Written.With(test.changes), history)
			if class != test.class || !strings.Contains(reason, test.reason) || test.reason == "" && class != Exact && reason != "" {
				t.Errorf("%s, %q, want %s, %q", class, reason, test.class, test.reason)
			}
		})
	}
}

// What a process says of a knob that no plan sets is how the job is written.
func TestSettingsThatAProcessReportsAreNoChange(t *testing.T) {
	j := trainedExactly()
	delete(j.Written, Precision)
	history := []Attempt{{Plan: j.Written, Observed: Plan{Precision: "bf16"}}, {Plan: j.Written.With(Plan{Precision: "fp16"}), Observed: Plan{Precision: "fp16"}}}
	if class, _ := j.Training(j.Written.With(Plan{Precision: "bf16"}), history); class != Exact {
		t.Errorf("the precision that the process reports is %s", class)
	}
	if class, _ := j.Training(history[1].Plan, history); class != Changed {
		t.Errorf("another precision is %s", class)
	}
}

func TestWrongScaleBarsAccumulation(t *testing.T) {
	j := trainedExactly()
	j.Knobs = map[Knob]Range{MicroBatchSize: {Min: 1}, GradientAccumulationSteps: {Min: 1}}
	p := Policy{Mode: Predict, MaxAttempts: 20, Numerics: MixedPrecision}
	attempt := Attempt{Plan: j.Written, Diagnosis: oom("backward"), Loss: LossSeen{Scale: ScaleWrong, Reason: "the loss ignores num_items_in_batch"}}
	d := Decide(p, j, []Attempt{attempt}, Inventory{Accelerator: "cuda"})
	if d.Relaunch {
		t.Fatalf("relaunched with %s", d.Changed)
	}
	for _, skip := range d.Skipped {
		if skip.Rung == RungMicroBatch && strings.Contains(skip.Reason, "num_items_in_batch") {
			return
		}
	}
	t.Errorf("micro-batch is not skipped with the process's reason: %+v", d.Skipped)
}

func TestRelaunchSaysWhatIsEqualOnAverage(t *testing.T) {
	j := trainedExactly()
	j.Knobs = map[Knob]Range{MicroBatchSize: {Min: 1}, GradientAccumulationSteps: {Min: 1}}
	p := Policy{Mode: Predict, MaxAttempts: 20, Numerics: MixedPrecision}
	attempt := Attempt{Plan: j.Written, Diagnosis: oom("backward"), Loss: LossSeen{Scale: ScaleKept, Uniform: "no"}}
	d := Decide(p, j, []Attempt{attempt}, Inventory{Accelerator: "cuda"})
	if d.Training != Average || !strings.Contains(d.Reason, "; equal on average: "+padded) {
		t.Errorf("%s: %s", d.Training, d.Reason)
	}
	attempt.Loss.Uniform = "yes"
	d = Decide(p, j, []Attempt{attempt}, Inventory{Accelerator: "cuda"})
	if d.Training != Exact || strings.Contains(d.Reason, "average") {
		t.Errorf("%s: %s", d.Training, d.Reason)
	}
}
