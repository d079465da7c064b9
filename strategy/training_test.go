package strategy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// unprovenLoss ends a sentence about a smaller micro batch of a job with an unknown loss.
const unprovenLoss = "; equal on average: the process has not confirmed it"

// meanLoss is a job whose source proves that its loss is a mean.
func meanLoss() Job {
	return proven(Job{
		Written: Plan{MicroBatchSize: "8", GradientAccumulationSteps: "1", ActivationCheckpointing: "none", Precision: "fp32", Sharding: "none", OffloadOptimizer: "none", EvalBatchSize: "8"},
	})
}

func TestPlanHasTheClassOfItsWeakestRemedy(t *testing.T) {
	smaller := Plan{MicroBatchSize: "4", GradientAccumulationSteps: "2"}
	kept := LossSeen{Scale: ScaleKept, Uniform: "yes"}
	unproven := func(j *Job) { j.Loss = Loss{} }
	own := func(j *Job) { j.Loss.Own = true }
	with := func(rows, reason string, numbers map[string]float64) LossSeen {
		return LossSeen{Scale: ScaleKept, Uniform: "yes", Rows: rows, RowsReason: reason, ModelRows: "yes", Numbers: numbers}
	}
	samples := func(n, batch int64) LossSeen {
		return LossSeen{Scale: ScaleKept, Uniform: "yes", ModelRows: "yes", Samples: n, Batch: batch}
	}
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
		{"fewer workers", Plan{DataloaderWorkers: "1"}, nil, nil, Average, "random augmentation draws other numbers"},
		{"fewer workers, lower precision", Plan{DataloaderWorkers: "1", Precision: "bf16"}, nil, nil, Changed, ""},
		{"evaluation alone", Plan{EvalBatchSize: "4"}, unproven, nil, Exact, ""},
		{"precision", Plan{Precision: "bf16"}, nil, nil, Changed, ""},
		{"before a run", smaller, nil, nil, Exact, "the loss is a mean; to be confirmed by the process"},
		{"confirmed", smaller, nil, []LossSeen{kept}, Exact, "confirmed by the process"},
		{"nothing known before, shown at the failure", smaller, unproven, []LossSeen{with("", "", nil)}, Average, "the job's own loop"},
		{"nothing known before the run", smaller, unproven, nil, Average, askedAtFailure},
		{"not confirmed", smaller, nil, []LossSeen{{}}, Average, "has not confirmed"},
		{"padded", smaller, nil, []LossSeen{{Scale: ScaleKept, Uniform: "no"}}, Average, padded},
		{"padded in one attempt of two", smaller, nil, []LossSeen{{Scale: ScaleKept, Uniform: "no"}, kept}, Average, padded},
		{"no batch seen", smaller, nil, []LossSeen{{Scale: ScaleKept}}, Average, "whether the batches are padded"},
		{"weighted by tokens", smaller, func(j *Job) { j.Loss.Weighted = true }, []LossSeen{{Scale: ScaleKept, Uniform: "no"}}, Exact, ""},
		{"wrong in one attempt of two", smaller, nil, []LossSeen{{Scale: ScaleWrong, Reason: "num_items_in_batch is ignored"}, kept}, Changed, "num_items_in_batch is ignored"},
		{"samples depend on each other in the second attempt", smaller, nil, []LossSeen{with("", "", nil), with("no", "sort mixes the samples", nil)}, Average, "sort mixes the samples"},
		{"the model computes rows from others", smaller, nil, []LossSeen{{Scale: ScaleKept, Uniform: "yes", ModelRows: "no", ModelRowsReason: "Net has BatchNorm1d"}}, Average, "Net has BatchNorm1d"},
		{"the model was not asked", smaller, own, []LossSeen{{Scale: ScaleKept, Uniform: "yes"}}, Average, "the model was not asked"},
		{"the loss is known of one attempt, the model of another", smaller, own, []LossSeen{{ModelRows: "yes"}, {Scale: ScaleKept, Uniform: "yes"}}, Average, "the job's own loop"},
		{"something else changes between two steps", smaller, own, []LossSeen{with("", "", nil), {Differs: "the job changes parameters"}}, Average, "the job changes parameters"},
		{"a number follows from the batch", smaller, own, []LossSeen{with("", "", map[string]float64{"decay": .32}), with("", "", map[string]float64{"decay": .16})}, Average, "decay is 0.16, and was 0.32"},
		{"the samples follow from the batch", smaller, own, []LossSeen{{Scale: ScaleKept, Samples: 80, Batch: 8}, {Scale: ScaleKept, Samples: 40, Batch: 4}}, Changed, "the data set has 40 with 4, and had 80 with 8"},
		{"the same samples", smaller, own, []LossSeen{samples(80, 8), samples(80, 4)}, Average, "the job's own loop"},
		{"samples rounded to whole batches", smaller, own, []LossSeen{samples(96, 8), samples(100, 4)}, Average, "the job's own loop"},
		{"another data set", smaller, own, []LossSeen{samples(80, 8), samples(40, 8)}, Average, "the job's own loop"},
		{"the same numbers", smaller, own, []LossSeen{with("", "", map[string]float64{"decay": .32}), with("", "", map[string]float64{"decay": .32, "rate": 1})}, Average, "the job's own loop"},
		{"the weakest counts", smaller.With(Plan{Precision: "bf16"}), unproven, nil, Changed, ""},
		{"average beside checkpointing", smaller.With(Plan{ActivationCheckpointing: "full"}), unproven, nil, Average, askedAtFailure},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := meanLoss()
			if test.of != nil {
				test.of(&j)
			}
			var history []Attempt
			for i, seen := range test.seen {
				history = append(history, Attempt{N: i, Plan: j.Written, Loss: seen, Diagnosis: oom(cause.Forward)})
			}
			class, reason := j.Training(j.Written.With(test.changes), history)
			if class != test.class || !strings.Contains(reason, test.reason) || test.reason == "" && class != Exact && reason != "" {
				t.Errorf("%s, %q, want %s, %q", class, reason, test.class, test.reason)
			}
		})
	}
}

// A process's report of a knob that no plan sets describes the job as it is written.
func TestReportedSettingsAreNotChanges(t *testing.T) {
	j := meanLoss()
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
	j := meanLoss()
	j.Knobs = map[Knob]Range{MicroBatchSize: {Min: 1}, GradientAccumulationSteps: {Min: 1}}
	p := Policy{Mode: Predict, MaxAttempts: 20, Numerics: MixedPrecision}
	attempt := Attempt{Plan: j.Written, Diagnosis: oom("backward"), Loss: LossSeen{Scale: ScaleWrong, Reason: "the loss ignores num_items_in_batch"}}
	d := Decide(p, j, []Attempt{attempt}, Inventory{Accelerator: "cuda"})
	if d.Relaunch {
		t.Fatalf("relaunched with %s", d.Changed)
	}
	for _, skip := range d.Skipped {
		if skip.Remedy == RemedyMicroBatch && strings.Contains(skip.Reason, "num_items_in_batch") {
			return
		}
	}
	t.Errorf("micro-batch is not skipped with the process's reason: %+v", d.Skipped)
}

// A loss that selects among the samples of a micro batch bars every accumulation, also where the attempt that
// shows it already has another one.
func TestSelectingLossBarsAccumulation(t *testing.T) {
	why := "topk selects among the samples of a micro batch, in the loss of train.py:9"
	refused := map[Knob]string{MicroBatchSize: why, GradientAccumulationSteps: why}
	j := meanLoss()
	j.Knobs = map[Knob]Range{MicroBatchSize: {Min: 1}, GradientAccumulationSteps: {Min: 1}}
	four := j.Written.With(Plan{MicroBatchSize: "4", GradientAccumulationSteps: "2"})
	p := Policy{Mode: Predict, MaxAttempts: 20, Numerics: MixedPrecision}
	for name, history := range map[string][]Attempt{
		"before a change": {{Plan: j.Written, Diagnosis: oom("backward"), Refused: refused}},
		"after a change":  {{Plan: j.Written, Diagnosis: oom("forward")}, {N: 1, Plan: four, Remedy: RemedyMicroBatch, Halted: true, Refused: refused}},
	} {
		d := Decide(p, j, history, Inventory{Accelerator: "cuda"})
		skipped := slices.ContainsFunc(d.Skipped, func(s Skip) bool { return s.Remedy == RemedyMicroBatch && s.Reason == why })
		if d.Relaunch || !skipped {
			t.Errorf("%s: %v, %s, skipped %+v", name, d.Next, d.Reason, d.Skipped)
		}
		if class, reason := j.Training(four, history); class != Changed || reason != why {
			t.Errorf("%s: %s, %s", name, class, reason)
		}
	}
}

// The changes that the untouched job makes are those of the latest attempt with its own batch.
func TestUntouchedChanges(t *testing.T) {
	j := meanLoss()
	seen := func(steps int) LossSeen { return LossSeen{Outside: &Outside{Steps: steps, Parameters: steps}} }
	own, changed := j.Written, j.Written.With(Plan{MicroBatchSize: "4"})
	for want, history := range map[int][]Attempt{
		0: {{Plan: own}, {Plan: changed, Loss: seen(9)}},
		5: {{Plan: own, Loss: seen(3)}, {Plan: own.With(Plan{ActivationCheckpointing: "full"}), Loss: seen(5)}, {Plan: changed, Loss: seen(9)}},
	} {
		if got := j.Untouched(history); got == nil && want != 0 || got != nil && got.Steps != want {
			t.Errorf("%+v, want %d steps", got, want)
		}
	}
}

func TestRelaunchNamesAverageChanges(t *testing.T) {
	j := meanLoss()
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

// Each plan of the table comes before the next one, unless the preference treats them alike.
func TestGroupsOfPlans(t *testing.T) {
	j := meanLoss()
	j.Loss = Loss{}
	smaller, bf16 := Plan{MicroBatchSize: "4", GradientAccumulationSteps: "2"}, Plan{Precision: "bf16"}
	host, nvme := Plan{OffloadOptimizer: "cpu", Sharding: "zero2"}, Plan{OffloadOptimizer: "nvme", Sharding: "zero3"}
	order := []Plan{
		{ActivationCheckpointing: "full", Sharding: "zero1"}, smaller, bf16, host, host.With(smaller), host.With(bf16), nvme, nvme.With(smaller), {Optimizer: "adafactor"},
	}
	groups := func(p Policy) []int {
		s := &situation{policy: p, job: j, all: []Attempt{{Plan: j.Written}}}
		classes := j.classifier(s.all)
		all := make([]int, len(order))
		for i, changes := range order {
			all[i] = s.group(j.Written.With(changes), j.Written, &classes)
		}
		return all
	}
	for _, test := range []struct {
		name   string
		policy Policy
		want   []int
	}{
		{"exact plans first", Policy{Prefer: ExactFirst, NumericsSaid: true}, []int{0, 1, 2, 3, 4, 5, 6, 7, 12}},
		{"which is the default", Policy{NumericsSaid: true}, []int{0, 1, 2, 3, 4, 5, 6, 7, 12}},
		{"the fastest", Policy{Prefer: Speed, NumericsSaid: true}, []int{0, 0, 2, 3, 3, 5, 6, 6, 12}},
		{"the order of the tree", Policy{Prefer: Tree}, []int{0, 0, 2, 3, 3, 5, 6, 6, 12}},
		{"a precision that nobody asked for", Policy{}, []int{0, 1, 9, 3, 4, 10, 6, 7, 12}},
	} {
		if got := groups(test.policy); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	j.Loss = Loss{Class: Exact}
	s := &situation{job: j, all: []Attempt{{Plan: j.Written, Loss: LossSeen{Scale: ScaleKept, Uniform: "yes"}}}}
	classes := j.classifier(s.all)
	if got := s.group(j.Written.With(smaller), j.Written, &classes); got != 0 {
		t.Errorf("a proven micro batch is of group %d", got)
	}
}

// A run speeds up only with a plan that trains at least as exactly.
func TestSpeedUpKeepsTheTrainingClass(t *testing.T) {
	j := meanLoss()
	j.Loss = Loss{}
	j.Knobs = map[Knob]Range{MicroBatchSize: {Min: 1}, GradientAccumulationSteps: {Min: 1}, ActivationCheckpointing: {Values: ActivationCheckpointing.words()}}
	full := j.Written.With(Plan{ActivationCheckpointing: "full"})
	for prefer, want := range map[Prefer]bool{ExactFirst: false, Speed: true, Tree: false} {
		s := &situation{policy: Policy{Mode: Predict, Speedup: true, Prefer: prefer}, job: j}
		s.look([]Attempt{{Plan: j.Written, Diagnosis: oom("backward")}, {N: 1, Plan: full}})
		divided := slices.ContainsFunc(s.higher(), func(p Plan) bool { return p[MicroBatchSize] == "4" })
		if divided != want {
			t.Errorf("%s: a smaller micro batch is one to go up to: %v", prefer, divided)
		}
	}
}

// If another accumulation shows a wrong scale later, neither that plan nor one derived from it
// runs again.
func TestLateWrongScaleRestoresTheBatch(t *testing.T) {
	j := meanLoss()
	j.Knobs = map[Knob]Range{
		MicroBatchSize: {Min: 1}, GradientAccumulationSteps: {Min: 1}, ActivationCheckpointing: {Values: ActivationCheckpointing.words()},
		Precision: {Values: Precision.words()},
	}
	p := Policy{Mode: Ladder, MaxAttempts: 20, Numerics: Preserve, Never: []string{"checkpointing"}}
	four, two := j.Written.With(Plan{MicroBatchSize: "4", GradientAccumulationSteps: "2"}), j.Written.With(Plan{MicroBatchSize: "2", GradientAccumulationSteps: "4"})
	wrong := LossSeen{Scale: ScaleWrong, Reason: "the loss ignores num_items_in_batch"}
	history := []Attempt{
		{Plan: j.Written, Diagnosis: oom("backward")}, {N: 1, Plan: four, Remedy: RemedyMicroBatch, Diagnosis: oom("backward")},
		{N: 2, Plan: two, Remedy: RemedyMicroBatch, Halted: true, Loss: wrong},
	}
	if d := Decide(p, j, history, Inventory{Accelerator: "cuda"}); d.Relaunch || !strings.Contains(d.Reason, wrong.Reason) {
		t.Errorf("%v: %s", d.Next, d.Reason)
	}
	p.Never = nil
	d := Decide(p, j, history, Inventory{Accelerator: "cuda"})
	if d.Next[MicroBatchSize] != "8" || d.Next[GradientAccumulationSteps] != "1" || d.Remedy != RemedyCheckpointing || d.Training != Exact {
		t.Errorf("%v: %s", d.Next, d.Reason)
	}
}

// DeepSpeed refuses ZeRO 2 and 3 with a pipeline when it starts, as the process reports.
func TestPipelineAllowsOnlyZeRO1(t *testing.T) {
	j := zero(8)
	j.Knobs = maps.Clone(j.Knobs)
	for _, k := range []Knob{MicroBatchSize, ActivationCheckpointing, Precision, OffloadActivations} {
		j.Knobs[k] = Range{Absent: "none"}
	}
	const pipeline = "DeepSpeed trains the model as a pipeline, which supports ZeRO 1 only"
	for written, want := range map[Value]Value{"none": "zero1", "zero1": ""} {
		plan := Plan{MicroBatchSize: "8", GradientAccumulationSteps: "1", Precision: "bf16", Sharding: written, OffloadOptimizer: "none", OffloadParam: "none"}
		j.Written = plan
		for refused, next := range map[string]Value{pipeline: want, "": "zero2"} {
			if refused == "" && written == "none" {
				next = "zero1"
			}
			d := Decide(Policy{Mode: Ladder, MaxAttempts: 20, Numerics: Preserve}, j, []Attempt{told(ended(0, plan, oom(cause.Backward)), nil, map[Knob]string{Sharding: refused})}, Inventory{Accelerator: "cuda"})
			if d.Next[Sharding] != next {
				t.Errorf("after %s with %q: %s, want %q: %s", written, refused, d.Next, next, d.Reason)
			}
		}
	}
}
