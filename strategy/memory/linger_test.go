package memory

import (
	"math"
	"testing"
)

// If the gradients of a step are held until after the next forward, the peak includes them and
// the logits: measured with Lightning's automatic optimization on an H200, once out of memory in
// the first forward, once trained with full checkpointing. It is not known by then whether the
// loss is made inside the root, so the prediction is above it.
func TestLingeringGradientsCount(t *testing.T) {
	seen := measurements(t, "testdata/h200-lightning.jsonl")
	failed, trained := seen[0], seen[1]
	actual := float64(trained.Peak)
	p := NewPredictor(TrainedModel{}, DeviceMemory{}, []Measurement{failed}).Predict(trained.Plan)
	if off := math.Abs(float64(p.Mean)-actual) / actual; off > .1 || float64(p.Mean) < actual {
		t.Errorf("predicted %d–%d in %s, measured %.0f", p.Mean, p.Bound, p.Instant, actual)
	}
	failed.Linger = false
	if without := NewPredictor(TrainedModel{}, DeviceMemory{}, []Measurement{failed}).Predict(trained.Plan); without.Mean >= p.Mean {
		t.Errorf("without gradients that linger %d, with them %d", without.Mean, p.Mean)
	}
}

// A model that is called twice for one loss, as by a contrastive one, has all gradients of the later call held until
// the backward of the earlier one; where gradients are set to zero and not let go, in addition to those of the step
// before. Measured on a CPU with torch 1.13: out of memory as written, then trained with recomputed blocks.
func TestGradientsOfSeveralCallsCount(t *testing.T) {
	seen := measurements(t, "testdata/cpu-contrastive.jsonl")
	failed, trained := seen[0], seen[1]
	predicted := func(change func(*Measurement)) Prediction {
		m, plan := failed, trained.Plan
		change(&m)
		plan.Optimizer = m.Plan.Optimizer
		return NewPredictor(TrainedModel{}, DeviceMemory{CPU: true}, []Measurement{m}).Predict(plan)
	}
	p := predicted(func(*Measurement) {})
	if off := float64(p.Mean)/float64(trained.Peak) - 1; math.Abs(off) > .03 || p.Bound < trained.Peak {
		t.Errorf("predicted %d–%d in %s, measured %d", p.Mean, p.Bound, p.Instant, trained.Peak)
	}
	// SGD may have a momentum, but its first step has shown that this one has none.
	named := predicted(func(m *Measurement) { m.Plan.Optimizer = "sgd" })
	if named.Mean != p.Mean {
		t.Errorf("with the optimizer's name %d, without it %d", named.Mean, p.Mean)
	}
	gradients := 4 * failed.Model.Trainable
	for name, change := range map[string]func(*Measurement){"called once": func(m *Measurement) { m.Together = 1 }, "let go": func(m *Measurement) { m.Kept = false }} {
		if less := predicted(change); p.Mean-less.Mean < gradients*8/10 {
			t.Errorf("%s: predicted %d, otherwise %d, and the gradients are %d bytes", name, less.Mean, p.Mean, gradients)
		}
	}
}

// A process that did a step again, and ran out of memory once more, shows with its first failure what the plan needs
// without the remedies. Measured on a CPU with torch 1.13: 64 samples ran out of memory in both ways; 16 samples, as
// written, needed 627 MB at least.
func TestFirstFailureOfARepeatedStepCounts(t *testing.T) {
	seen := measurements(t, "testdata/cpu-again.jsonl")
	again, smaller := seen[0], seen[1]
	first, ok := again.WithoutRemedies()
	if !ok || first.Failed != "forward" || again.Failed != "backward" {
		t.Fatalf("%+v", first)
	}
	p := NewPredictor(TrainedModel{}, DeviceMemory{CPU: true}, []Measurement{again, first}).Predict(smaller.Plan)
	if least := float64(smaller.Allocated + smaller.Requested); math.Abs(float64(p.Mean)/least-1) > .05 {
		t.Errorf("predicted %d–%d in %s, needed %.0f at least", p.Mean, p.Bound, p.Instant, least)
	}
}
