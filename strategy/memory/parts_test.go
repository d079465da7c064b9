package memory

import "testing"

// Parts of the batch divide what is held for the backward, and cost a forward.
func TestForwardPartsDivideActivations(t *testing.T) {
	plan := RankPlan{MicroBatch: 32, Accumulation: 1, Weights: "fp32", DataParallel: 1}
	measured := Measurement{
		Plan: plan, Batch: 32, Longest: 8388608, Shape: []int{32, 256, 1024}, Optimizer: "AdamW", Foreach: true, States: 805797888, Calls: 1, Start: 402898944,
		Model: &TrainedModel{Class: "Sequential", Parameters: 100724736, Trainable: 100724736, Largest: 4194304, Blocks: []BlockList{{Class: "Block", Count: 12, Parameters: 100724736}}},
		Marks: []Marks{{Bytes: []int64{402898944, 1402898944, 2402898944}, Input: 33554432}},
		Peak:  2402898944, Failed: "forward", Allocated: 2402898944, Requested: 1000000000, Allowed: 3 << 30, Total: 80 << 30,
	}
	inParts := func(k int) RankPlan { p := plan; p.ForwardParts = k; return p }
	fit := NewPredictor(TrainedModel{}, DeviceMemory{Total: 80 << 30}, []Measurement{measured}).WithoutFailures()
	whole, states := fit.Predict(plan), int64(4*402898944)
	before := whole
	for _, k := range []int{2, 4, 8, 16, 32} {
		p := fit.Predict(inParts(k))
		if least := (whole.Mean - states) / int64(k); p.Mean >= before.Mean || p.Mean < states || p.Mean-states > 2*least {
			t.Errorf("%d parts: predicted %.2f GB, the whole %.2f GB, states %.2f GB", k, float64(p.Mean)/1e9, float64(whole.Mean)/1e9, float64(states)/1e9)
		}
		if times := p.Seconds / whole.Seconds; times < 1.2 || times > 2.4*float64(k) {
			t.Errorf("%d parts: %.2f times the step", k, times)
		}
		before = p
	}

	// The marks of a run in parts show nothing that is held: other plans are predicted as before.
	parts := measured
	parts.Plan.ForwardParts, parts.Failed, parts.Marks = 4, "", []Marks{{Bytes: []int64{402898944, 402898944, 402898944}, Input: 8388608}}
	parts.Peak, parts.Steps, parts.StepSeconds = 5e9, 3, .1
	both := NewPredictor(TrainedModel{}, DeviceMemory{Total: 80 << 30}, []Measurement{parts, measured}).WithoutFailures()
	if p := both.Predict(plan); p.Mean != whole.Mean {
		t.Errorf("a run in parts changes the prediction of the whole from %d to %d bytes", whole.Mean, p.Mean)
	}
	if p := both.Predict(inParts(4)); p.Mean != 5e9 {
		t.Errorf("4 parts: predicted %d bytes, and measured 5 GB", p.Mean)
	}
}

// What a failed backward needed beyond its prediction is the loss's: parts of the batch do not
// divide it. The figures are those of a small GPT with 384 MiB of logits, on a CPU.
func TestForwardPartsKeepTheLossWhole(t *testing.T) {
	plan := RankPlan{MicroBatch: 64, Accumulation: 1, Weights: "fp32", DataParallel: 1}
	failed := Measurement{
		Plan: plan, Batch: 64, Longest: 6144, Shape: []int{64, 96}, Calls: 1, Start: 335757312,
		Model: &TrainedModel{
			Class: "GPT", Parameters: 603648, Trainable: 603648, Largest: 524288, Vocabulary: 16384, Hidden: 32, Attention: true, Tied: true, Outside: 527424, Embedding: 527360,
			Blocks: []BlockList{{Path: "blocks", Class: "Block", Count: 6, Parameters: 76224}},
		},
		Marks:  []Marks{{Path: "blocks", Bytes: []int64{336547840, 358875136, 380940288, 403005440, 425070592, 447135744}, Input: 786432, After: 469200896}},
		First:  StepMemory{Longest: 6144, Forward: 872648704, ForwardPeak: 872648704},
		Failed: "backward", Allocated: 1677963264, Requested: 402653184, Allowed: 1824522240, Total: 25276502016, Peak: 1677963264,
	}
	parts := plan
	parts.ForwardParts = 4
	fit := NewPredictor(*failed.Model, DeviceMemory{Total: 25276502016, CPU: true}, []Measurement{failed})
	// 4 parts were run: memory ran out in the loss, with 1,938 MB wanted.
	if p := fit.Predict(parts); p.Mean < 1824522240 {
		t.Errorf("predicted %d MB for 4 parts", p.Mean/1e6)
	}
}
