package strategy

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// A model of 24 blocks as a process reports it: 400 million parameters in fp32, and for each
// sample and block 100 MiB that its backward needs.
var (
	small = memory.TrainedModel{
		Class: "GPTForPreTraining", Parameters: 400e6, Trainable: 400e6, Bytes: map[string]int64{"float32": 1600e6}, Outside: 50e6, Cast: 390e6, CastOutside: 50e6,
		Largest: 50e6, Embedding: 50e6, Tied: true, Vocabulary: 50000, Hidden: 1024,
		Blocks: []memory.BlockList{{Path: "h", Class: "Block", Count: 24, Parameters: 350e6}},
	}
	block = int64(100 << 20) // for each sample
)

// ranOutInForward is the measurement of a process that ran out of memory under a cap in its first
// forward.
func ranOutInForward(micro int, allowed int64) memory.Measurement {
	m := memory.Measurement{
		Model: &small, Batch: micro, Longest: int64(micro) * 1024, Shape: []int{micro, 1024}, Optimizer: "AdamW",
		Start: 1600e6, Failed: "forward", Allowed: allowed, Total: 80 << 30, Outside: 600 << 20,
	}
	marks := memory.Marks{Path: "h", Input: int64(micro) * 1024 * 1024 * 4}
	for held := m.Start; held < allowed && len(marks.Bytes) < 24; held += block * int64(micro) {
		marks.Bytes = append(marks.Bytes, held)
		m.Allocated, m.Requested = held, allowed-held+1
	}
	m.Marks = []memory.Marks{marks}
	m.Peak, m.Reserved = m.Allocated, allowed
	return m
}

// predicting is a policy that predicts.
func predicting(change func(*Policy)) Policy {
	p := defaults
	p.Mode = Predict
	if change != nil {
		change(&p)
	}
	return p
}

// failedAt is an attempt of a plan that ran out of memory under a cap in its forward.
func failedAt(n int, plan Plan, allowed int64) Attempt {
	a := ended(n, plan, oom(cause.Forward))
	micro, _ := plan.Number(MicroBatchSize)
	a.Measured = []memory.Measurement{ranOutInForward(micro, allowed)}
	return a
}

// proven is a job whose source proves that its loss is a mean.
func proven(j Job) Job {
	j.Loss = Loss{Class: Exact, Reason: "the loss is a mean"}
	return j
}

var sixteen = Plan{MicroBatchSize: "16", GradientAccumulationSteps: "1", ActivationCheckpointing: "none", Precision: "fp32", Allocator: "default"}

// TestPredict: one attempt is enough to choose among the plans that would fit.
func TestPredict(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy Policy
		job    Job
		room   int64
		inv    Inventory
		want   func(*testing.T, Decision)
	}{
		{"checkpointing, where a smaller micro batch is faster and equal on average", predicting(nil), gpt(1), 24 << 30, h100, func(t *testing.T, d Decision) {
			if d.Next[MicroBatchSize] != "16" || d.Next[ActivationCheckpointing] == "none" || d.Training != Exact {
				t.Errorf("%v, %s", d.Next, d.Training)
			}
		}},
		{"a smaller micro batch, where nothing exact fits", predicting(func(p *Policy) { p.Never = []string{"checkpointing"} }), gpt(1), 24 << 30, h100, func(t *testing.T, d Decision) {
			if d.Next[MicroBatchSize] == "16" || d.Training != Average || !strings.Contains(d.Reason, "; equal on average: ") {
				t.Errorf("%v, %s: %s", d.Next, d.Training, d.Reason)
			}
		}},
		{"a smaller micro batch that is proven to be exact", predicting(nil), proven(gpt(1)), 24 << 30, h100, func(t *testing.T, d Decision) {
			if d.Next[ActivationCheckpointing] != "none" || d.Remedy != RemedyMicroBatch || d.Training != Exact {
				t.Errorf("%v by %s, %s", d.Next, d.Remedy, d.Training)
			}
		}},
		{"a smaller micro batch without checkpointing, where speed is preferred", predicting(func(p *Policy) { p.Prefer = Speed }), gpt(1), 24 << 30, h100, func(t *testing.T, d Decision) {
			if d.Next[ActivationCheckpointing] != "none" || d.Remedy != RemedyMicroBatch || !slices.Contains(d.Remedies, RemedyMicroBatch) {
				t.Errorf("%v by %s (%v)", d.Next, d.Remedy, d.Remedies)
			}
		}},
		{"numerics are kept where something else fits", predicting(nil), gpt(1), 10 << 30, h100, func(t *testing.T, d Decision) {
			if d.Next[Precision] != "fp32" {
				t.Errorf("%v", d.Next)
			}
		}},
		{"the tree's order, where it is preferred", predicting(func(p *Policy) { p.Prefer = Tree }), gpt(1), 24 << 30, h100, func(t *testing.T, d Decision) {
			if d.Remedy != RemedyCheckpointing || d.Next[MicroBatchSize] != "16" {
				t.Errorf("%v by %s", d.Next, d.Remedy)
			}
		}},
		{"never", predicting(func(p *Policy) { p.Never = []string{"checkpointing"} }), gpt(1), 24 << 30, h100, func(t *testing.T, d Decision) {
			if d.Next[ActivationCheckpointing] != "none" || !slices.ContainsFunc(d.Skipped, func(k Skip) bool { return k.Remedy == RemedyCheckpointing && k.Refused }) {
				t.Errorf("%v, skipped %v", d.Next, d.Skipped)
			}
		}},
		{"what the weights alone do not fit in is never tried", predicting(nil), gpt(1), 5 << 30, h100, func(t *testing.T, d Decision) {
			if d.Relaunch {
				t.Errorf("16 bytes a parameter are 6.0 GiB: %s", d.Reason)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			failed := failedAt(0, sixteen, test.room)
			failed.Loss = LossSeen{Scale: ScaleKept, Uniform: "yes"}
			d := Decide(test.policy, test.job, []Attempt{failed}, test.inv)
			test.want(t, d)
			if !d.Relaunch {
				return
			}
			if d.Expected == nil || d.Expected.Mean <= 0 || d.Expected.Bound > test.room || d.Expected.Bound < d.Expected.Mean {
				t.Errorf("expected: %+v of %s", d.Expected, GiB(test.room))
			}
			if len(d.Outvoted) == 0 || !strings.Contains(d.Reason, "; the next best, ") || !strings.Contains(d.Reason, "predicted ") {
				t.Errorf("reason: %s (outvoted: %v)", d.Reason, d.Outvoted)
			}
			b, _ := batchOf(d.Next, test.job)
			if b.global() != 16 {
				t.Errorf("the global batch is %d: %v", b.global(), d.Next)
			}
		})
	}
}

// TestSlowLaunchesKeepTheMicroBatch: a small micro batch takes no less than its launches, which attempt 0 measures.
func TestSlowLaunchesKeepTheMicroBatch(t *testing.T) {
	for seconds, want := range map[float64][2]Value{0: {"4", "none"}, 3: {"16", "full"}} {
		a := failedAt(0, sixteen, 24<<30)
		a.Loss = LossSeen{Scale: ScaleKept, Uniform: "yes"}
		a.Measured[0].Launch = memory.Launch{Forward: seconds, AtMost: true}
		d := Decide(predicting(nil), proven(gpt(1)), []Attempt{a}, h100)
		if got := [2]Value{d.Next[MicroBatchSize], d.Next[ActivationCheckpointing]}; got != want {
			t.Errorf("launches of %g s: %v, want %v: %s", seconds, got, want, d.Reason)
		}
	}
}

// TestUnpredictableFailuresFollowTheOrderOfRemedies: a failure that does not follow from the plan
// is handled without a prediction.
func TestUnpredictableFailuresFollowTheOrderOfRemedies(t *testing.T) {
	for name, change := range map[string]func(*Attempt){
		"late":              func(a *Attempt) { a.Diagnosis.Late = true },
		"a leak":            func(a *Attempt) { a.Diagnosis.Growth = &cause.Growth{} },
		"evaluation":        func(a *Attempt) { a.Diagnosis.Phase = cause.Eval },
		"save":              func(a *Attempt) { a.Diagnosis.Phase = cause.Save },
		"nothing was heard": func(a *Attempt) { a.Measured = nil },
	} {
		a := failedAt(0, sixteen, 24<<30)
		change(&a)
		if d, ladder := Decide(predicting(nil), gpt(1), []Attempt{a}, h100), Decide(defaults, gpt(1), []Attempt{a}, h100); d.Remedy != ladder.Remedy || d.Next.String() != ladder.Next.String() || d.Outvoted != nil {
			t.Errorf("%s: %s %q, the ladder says %q", name, d.Remedy, d.Reason, ladder.Reason)
		}
	}
}

// TestFragmentationChangesOnlyTheAllocator: the allocator is changed alone if that may be enough,
// and only then.
func TestFragmentationChangesOnlyTheAllocator(t *testing.T) {
	for room, want := range map[int64]Remedy{55 << 30: RemedyAllocator, 52 << 30: RemedyMicroBatch, 24 << 30: RemedyMicroBatch} {
		a := failedAt(0, sixteen, room)
		a.Diagnosis.Fragmented = true
		a.Measured[0].Requested = 64 << 20 // the free pieces are larger than that together
		if d := Decide(predicting(func(p *Policy) { p.Prefer = Speed }), gpt(1), []Attempt{a}, h100); d.Remedy != want {
			t.Errorf("%s: %s: %s", GiB(room), d.Remedy, d.Reason)
		}
	}
}

// TestFreeRemediesAreKept: every later plan keeps the free remedies.
func TestFreeRemediesAreKept(t *testing.T) {
	first, second := failedAt(0, sixteen, 24<<30), failedAt(1, sixteen.With(Plan{Allocator: "expandable"}), 24<<30)
	second.Remedy = RemedyAllocator
	d := Decide(predicting(nil), gpt(1), []Attempt{first, second}, h100)
	if d.Next[Allocator] != "expandable" {
		t.Errorf("%v: %s", d.Next, d.Reason)
	}
	for _, o := range d.Outvoted {
		if o.Plan[Allocator] != "expandable" {
			t.Errorf("outvoted: %v", o.Plan)
		}
	}
}

// TestFailedPredictionIsCorrected: the next plan needs less, and none is tried twice.
func TestFailedPredictionIsCorrected(t *testing.T) {
	room := int64(12 << 30)
	history := []Attempt{failedAt(0, sixteen, room)}
	var tried []Plan
	for n := 1; n < 20; n++ {
		d := Decide(predicting(nil), gpt(1), history, h100)
		if !d.Relaunch {
			return
		}
		for _, p := range tried {
			if p.String() == d.Next.String() {
				t.Fatalf("attempt %d runs %v again", n, d.Next)
			}
		}
		tried = append(tried, d.Next)
		a := failedAt(n, d.Next, room)
		a.Remedy, a.Expected = d.Remedy, d.Expected
		history = append(history, a)
	}
	t.Errorf("it never ends: %v", tried)
}

// Where processes would do a step again that runs out of memory, a plan is chosen by its expected peak with a margin; by
// the bound after one did not, and where nothing is done again.
func TestExpectedPeakDecidesWhereMistakesAreCaught(t *testing.T) {
	job := proven(gpt(1))
	job.Knobs[OffloadActivations] = Range{By: ByHook, Values: []Value{"none", "cpu"}}
	count := func(phase cause.Phase, change func(*Policy)) (n int) {
		for room := int64(9 << 30); room < 30<<30; room += 1 << 28 {
			a := failedAt(0, sixteen, room)
			marks := &a.Measured[0].Marks[0]
			a.Diagnosis.Phase, marks.Bytes = phase, marks.Bytes[:1] // no block was seen to its end: the bound is wide
			d := Decide(predicting(change), job, []Attempt{a}, h100)
			if !d.Relaunch || !d.ByMean {
				continue
			}
			if n++; d.Expected.Bound <= room*9/10 || d.Expected.Mean > room || d.Margin != marginUnproven || !strings.Contains(d.Reason, ", by its expected peak and 2 %: a step that needs more would be done again in place") {
				t.Errorf("%+v of %d: %s", d.Expected, room, d.Reason)
			}
		}
		return n
	}
	inPlace := func(p *Policy) { p.InPlace = true }
	if n := count(cause.Optimizer, inPlace); n == 0 {
		t.Error("no plan is chosen by its mean")
	}
	for name, n := range map[string]int{
		"it was not caught": count(cause.Forward, inPlace), "switched off": count(cause.Optimizer, nil),
		"the remedy is barred": count(cause.Optimizer, func(p *Policy) {
			p.InPlace, p.Never = true, []string{"checkpointing", "offload-activations", "split", "loss-parts"}
		}),
	} {
		if n > 0 {
			t.Errorf("%s: %d plans are chosen by their mean", name, n)
		}
	}
}

// The measurement of a job as written stays one without checkpointing after gpurun's hook has
// turned that on in a later attempt: the process reports checkpointing only while it is on.
func TestHookCheckpointingKeepsMeasurementsWithoutIt(t *testing.T) {
	job := codeOnly()
	job.Knobs[MicroBatchSize] = Range{}
	settings := Plan{MicroBatchSize: "16", Precision: "fp32"}
	first := asked(told(failedAt(0, Plan{MicroBatchSize: "16"}, 24<<30), settings, nil))
	turned := Plan{MicroBatchSize: "16", ActivationCheckpointing: "full"}
	second := told(ended(1, turned, Diagnosis{Cause: cause.None, Rank: -1}), settings.With(turned), nil)
	second.Measured = []memory.Measurement{recomputed(16)}
	predict := func(history ...Attempt) memory.Prediction {
		s := &situation{policy: predicting(nil), job: job, inventory: h100}
		s.look(history)
		p, why := s.predictor()
		if why != "" {
			t.Fatal(why)
		}
		return p.predict(turned.With(Plan{ActivationCheckpointing: "none"}))
	}
	before, after := predict(first), predict(first, second)
	if off := float64(after.Mean) / float64(before.Mean); off < .97 || off > 1.03 || after.Evidence == "prior" {
		t.Errorf("%s after attempt 0, %s after a success with checkpointing (%s)", Interval(before.Mean, before.Bound), Interval(after.Mean, after.Bound), after.Evidence)
	}
}

// recomputed is the measurement of a process that trained with checkpointing in all blocks.
func recomputed(micro int) memory.Measurement {
	m := ranOutInForward(micro, 80<<30)
	input := m.Marks[0].Input
	for i := range m.Marks[0].Bytes {
		m.Marks[0].Bytes[i] = m.Start + int64(i)*input
	}
	end := m.Start + 24*input
	head := int64(micro) * 1024 * 50000 * 4
	m.Failed, m.Allocated, m.Requested, m.Steps, m.States = "", 0, 0, 5, 3200e6
	m.Marks[0].After = end
	m.First = memory.StepMemory{Forward: end + head, ForwardPeak: end + head, BackwardPeak: end + 3*head, Before: 2 * m.Start, OptimizerPeak: 4 * m.Start, After: 4 * m.Start}
	m.Second = memory.StepMemory{Forward: end + head + 3200e6, ForwardPeak: end + head + 3200e6, BackwardPeak: end + 3*head + 3200e6, Before: 4 * m.Start, OptimizerPeak: 4 * m.Start, After: 4 * m.Start}
	m.Peak, m.Reserved = m.Second.BackwardPeak, m.Second.BackwardPeak
	return m
}

// TestCPUKeepsItsPrecision: a CPU may compute in 16 bits several times as slowly as in 32, so that no plan changes the
// precision there, whatever else fails to fit.
func TestCPUKeepsItsPrecision(t *testing.T) {
	for accelerator, want := range map[string]bool{"cuda": true, "cpu": false} {
		inv := Inventory{Accelerator: accelerator, BF16: true, HostAvailable: 64 << 30, HostTotal: 64 << 30}
		a := failedAt(0, sixteen, 24<<30)
		if accelerator == "cpu" {
			a.Diagnosis.Cause, a.Diagnosis.Device = cause.HostOOM, "cpu"
		}
		s := &situation{policy: predicting(nil), job: gpt(1), inventory: inv, plan: sixteen, history: []Attempt{a}, diagnosis: a.Diagnosis}
		s.look(s.history)
		w, why := s.weigh()
		if why != "" {
			t.Fatal(why)
		}
		if got := slices.ContainsFunc(w.plans, func(p Plan) bool { return p[Precision] != "fp32" }); got != want || len(w.plans) == 0 {
			t.Errorf("%s: another precision among %d plans: %v; skipped %v", accelerator, len(w.plans), got, w.skips)
		}
	}
}

// TestMarginIsLearned: the margin on an expected peak follows the errors of this run's own predictions.
func TestMarginIsLearned(t *testing.T) {
	predicted := func(mean int64, m memory.Measurement) Attempt {
		return Attempt{Expected: &memory.Prediction{Mean: mean << 20, Evidence: "blocks seen"}, Measured: []memory.Measurement{m}}
	}
	trained := func(peak int64) memory.Measurement { return memory.Measurement{Steps: 5, Peak: peak << 20} }
	measured := predicted(1000, trained(2000))
	measured.Expected.Evidence = "measured"
	for name, test := range map[string]struct {
		history []Attempt
		want    float64
	}{
		"nothing was predicted":         {[]Attempt{{Measured: []memory.Measurement{trained(1000)}}}, marginUnproven},
		"a measured plan proves little": {[]Attempt{measured}, marginUnproven},
		"it needed less":                {[]Attempt{predicted(1000, trained(900))}, marginProven},
		"it needed more":                {[]Attempt{predicted(1000, trained(1060)), predicted(1000, trained(990))}, .07},
		"it ran out of memory":          {[]Attempt{predicted(1000, memory.Measurement{Failed: "backward", Allocated: 1000 << 20, Requested: 40 << 20})}, .05},
		"it was done again in place":    {[]Attempt{predicted(1000, memory.Measurement{Steps: 5, Peak: 500 << 20, RanOut: &memory.RanOut{Allocated: 1050 << 20, Requested: 50 << 20}})}, .11},
	} {
		s := situation{history: test.history}
		if got := s.margin(); got < test.want-1e-9 || got > test.want+1e-9 {
			t.Errorf("%s: %g, want %g", name, got, test.want)
		}
	}
}

// TestTooLowBoundWidensAllBounds: a plan that needed more than its bound widens the bounds of all
// other plans of the job. One that did not changes none.
func TestTooLowBoundWidensAllBounds(t *testing.T) {
	job := codeOnly()
	job.Knobs[MicroBatchSize] = Range{}
	first := asked(told(failedAt(0, Plan{MicroBatchSize: "16"}, 24<<30), Plan{MicroBatchSize: "16", Precision: "fp32"}, nil))
	turned := Plan{MicroBatchSize: "16", ActivationCheckpointing: "full"}
	second := told(ended(1, turned, Diagnosis{Cause: cause.None, Rank: -1}), turned, nil)
	second.Measured = []memory.Measurement{recomputed(16)}
	other := turned.With(Plan{MicroBatchSize: "12", ActivationCheckpointing: "none"})
	bound := func(promised int64) int64 {
		second.Expected = &memory.Prediction{Mean: promised, Bound: promised}
		s := &situation{policy: predicting(nil), job: job, inventory: h100}
		s.look([]Attempt{first, second})
		p, why := s.predictor()
		if why != "" {
			t.Fatal(why)
		}
		return p.predict(other).Bound
	}
	peak := second.needed()
	kept, wider := bound(peak), bound(peak-peak/8)
	if bound(peak+1<<30) != kept || float64(wider) < 1.05*float64(kept) {
		t.Errorf("the bound is %s, and %s after a peak of %s above its bound", GiB(kept), GiB(wider), GiB(peak))
	}
}
