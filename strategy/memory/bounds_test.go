package memory

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
)

// outOfBounds makes measurements and plans with figures that no machine has.
type outOfBounds struct{ *rand.Rand }

func (r outOfBounds) figure() int64 {
	return []int64{0, 1, 2, 1000, 1 << 30, 1 << 40, 1e15}[r.IntN(7)]
}

func (r outOfBounds) word(w ...string) string { return w[r.IntN(len(w))] }

func (r outOfBounds) plan() RankPlan {
	n := func() int { return int(r.figure()) }
	return RankPlan{
		MicroBatch: n(), Accumulation: n(), Evaluation: n(), Sequence: n(), Weights: r.word("", "fp32", "bf16"), Compute: r.word("", "fp32", "bf16", "fp8"),
		Checkpointing: r.word("", "none", "full", "selective"), Attention: r.word("", "eager", "sdpa"), Sharding: r.word("", "none", "zero1", "zero2", "zero3", "fsdp"),
		DataParallel: n() % 9000, OffloadOptimizer: r.word("", "cpu", "nvme"), OffloadParam: r.word("", "cpu", "nvme"), OffloadActivations: r.word("", "cpu"),
		Allocator: r.word("", "expandable"), DeepSpeed: r.IntN(3) == 0, ForwardParts: n(),
	}
}

func (r outOfBounds) model() *TrainedModel {
	n := r.figure
	m := &TrainedModel{
		Class: r.word("", "XForCausalLM", "TForConditionalGeneration"), Parameters: n(), Trainable: n(), Buffers: n(), Outside: n(), Cast: n(), CastOutside: n(),
		Largest: n(), Embedding: n(), Tied: r.IntN(2) == 0, Vocabulary: n(), Hidden: n(), Convolutional: r.IntN(2) == 0,
	}
	for range r.IntN(3) {
		m.Blocks = append(m.Blocks, BlockList{Path: r.word("h", "d", "x"), Class: "B", Count: int(n()), Parameters: n()})
	}
	if r.IntN(2) == 0 {
		m.Bytes = map[string]int64{r.word("float32", "bfloat16", "int8", ""): n()}
	}
	return m
}

func (r outOfBounds) measurement() Measurement {
	n := r.figure
	m := Measurement{
		Plan: r.plan(), Model: r.model(), Batch: int(n()), Longest: n(), Optimizer: r.word("", "AdamW", "SGD"), Foreach: r.IntN(2) == 0, States: n(), Calls: int(n()),
		Start: n(), Evaluation: n(), EvaluationBatch: int(n()), Peak: n(), Reserved: n(), Outside: n(), Total: n(), Host: n(),
		Failed: r.word("", "", "forward", "backward", "loss", "load", "evaluation", "optimizer"), Allocated: n(), Requested: n(), Allowed: n(), Steps: int(n()),
		StepSeconds: []float64{0, 1e-300, 1e-3, 1, 1e300}[r.IntN(5)], Autocast: r.word("", "", "bfloat16", "weird"),
	}
	for _, s := range []*StepMemory{&m.First, &m.Second, &m.Longer} {
		*s = StepMemory{n(), n(), n(), n(), n(), n(), n(), n(), n()}
	}
	for range r.IntN(3) {
		k := Marks{Path: r.word("h", "d", "x"), Input: n(), After: n()}
		for range r.IntN(4) {
			k.Bytes = append(k.Bytes, n())
		}
		m.Marks = append(m.Marks, k)
	}
	return m
}

// TestFiguresOutOfBounds: for any reports of a job's processes, a prediction is bytes and seconds
// that can be written down, and too much never looks like little.
func TestFiguresOutOfBounds(t *testing.T) {
	r := outOfBounds{rand.New(rand.NewPCG(1, 2))}
	for range 5000 {
		var seen []Measurement
		for range r.IntN(4) {
			seen = append(seen, r.measurement())
		}
		d := DeviceMemory{Name: r.word("", "H200"), Total: r.figure(), Others: r.figure(), Allowed: r.figure(), CPU: r.IntN(4) == 0, Host: r.figure(), NVMe: r.figure(), LocalRanks: r.IntN(16)}
		f := NewPredictor(TrainedModel{}, d, seen)
		candidates := []PlanCandidate{{Plan: r.plan()}, {Plan: r.plan(), Group: 1}, {Plan: r.plan()}, {Plan: r.plan(), Group: 2}}
		if _, err := json.Marshal(Choose(f, candidates, "")); err != nil {
			t.Fatalf("a choice that cannot be written down: %v", err)
		}
		if len(seen) > 0 {
			FindSpeedup(f, candidates[0].Plan, seen[0], candidates, false)
		}
		for _, c := range candidates {
			p := f.Predict(c.Plan)
			if least := min(p.Mean, p.Bound, p.Least, p.Host, p.Pinned, p.NVMe); least < 0 || p.Bound < p.Mean || !(p.Seconds >= 0) {
				t.Fatalf("%+v of %+v", p, c.Plan)
			}
		}
	}
}
