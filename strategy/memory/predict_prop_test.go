package memory

import (
	"testing"

	"pgregory.net/rapid"
)

// A world is a fully known model, from which the measurements of gpurun's hook are generated.
type world struct {
	params       int64
	blocks       int
	block, input int64 // bytes per sample
	conv         bool
	classes      string
}

// anyWorld draws a model between 10 million and 3 billion parameters.
func anyWorld(t *rapid.T) world {
	w := world{params: rapid.Int64Range(1e7, 3e9).Draw(t, "parameters"), blocks: rapid.IntRange(1, 64).Draw(t, "blocks"),
		input: rapid.Int64Range(1<<16, 1<<24).Draw(t, "input"), conv: rapid.Bool().Draw(t, "convolutional"), classes: "Net"}
	w.block = w.input * rapid.Int64Range(3, 60).Draw(t, "held by a block, in inputs")
	return w
}

// model is the report of gpurun's hook about the world's model.
func (w world) model() *TrainedModel {
	return &TrainedModel{Class: w.classes, Parameters: w.params, Trainable: w.params, Outside: w.params / 10, Cast: w.params, CastOutside: w.params / 10,
		Bytes: map[string]int64{"float32": 4 * w.params}, Convolutional: w.conv,
		Blocks: []BlockList{{Path: "blocks", Class: "Block", Count: w.blocks, Parameters: w.params - w.params/10}}}
}

// failed is what gpurun's hook would measure of a plan in fp32 that ran out of memory at a cap
// after some blocks.
func (w world) failed(micro, reached int, cap int64) Measurement {
	p := RankPlan{MicroBatch: micro, Accumulation: 1, Weights: "fp32", Compute: "fp32", Checkpointing: "none", Attention: "sdpa", Optimizer: "adamw"}
	m := Measurement{Plan: p, Model: w.model(), Batch: micro, Start: 4 * w.params, Failed: "forward", Allowed: cap, Allocated: cap, Optimizer: "AdamW"}
	marks := Marks{Path: "blocks", Input: w.input * int64(micro)}
	for i := 0; i <= min(reached, w.blocks-1); i++ {
		marks.Bytes = append(marks.Bytes, m.Start+int64(i)*w.block*int64(micro))
	}
	if reached >= w.blocks {
		marks.After = m.Start + int64(w.blocks)*w.block*int64(micro)
		m.Failed = "loss"
	}
	m.Marks = []Marks{marks}
	return m
}

// rankPlan draws a plan of one rank.
func rankPlan(t *rapid.T) RankPlan {
	p := RankPlan{MicroBatch: rapid.IntRange(1, 64).Draw(t, "micro batch"), Accumulation: rapid.IntRange(1, 3).Draw(t, "accumulation"), Weights: "fp32",
		Compute:       rapid.SampledFrom([]string{"fp32", "bf16"}).Draw(t, "compute"),
		Checkpointing: rapid.SampledFrom([]string{"none", "selective", "full"}).Draw(t, "checkpointing"),
		Attention:     rapid.SampledFrom([]string{"sdpa", "eager"}).Draw(t, "attention"),
		Optimizer:     rapid.SampledFrom([]string{"adamw", "sgd", "adafactor", "adamw-8bit"}).Draw(t, "optimizer"),
		Sharding:      rapid.SampledFrom([]string{"none", "zero1", "zero2", "zero3", "fsdp"}).Draw(t, "sharding"), DataParallel: rapid.IntRange(1, 8).Draw(t, "ranks")}
	p.DeepSpeed = len(p.Sharding) == 5
	if p.DeepSpeed {
		p.OffloadOptimizer = rapid.SampledFrom([]string{"none", "cpu", "nvme"}).Draw(t, "offload optimizer")
	}
	p.OffloadActivations = rapid.SampledFrom([]string{"none", "cpu"}).Draw(t, "offload activations")
	return p
}

func TestBoundNeverFallsAsBytesAreAdded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, p := anyWorld(t), rankPlan(t)
		micro, reached := rapid.IntRange(1, 64).Draw(t, "failed micro batch"), rapid.IntRange(0, 70).Draw(t, "reached")
		cap := 4*w.params + int64(reached+1)*w.block*int64(micro)
		seen := []Measurement{w.failed(micro, reached, cap)}
		now := NewPredictor(TrainedModel{}, DeviceMemory{Total: cap}, seen).Predict(p)
		more := p
		more.MicroBatch += rapid.IntRange(1, 64).Draw(t, "more samples")
		if next := NewPredictor(TrainedModel{}, DeviceMemory{Total: cap}, seen).Predict(more); next.Bound < now.Bound {
			t.Fatalf("the bound falls from %d to %d with the micro batch from %d to %d", now.Bound, next.Bound, p.MicroBatch, more.MicroBatch)
		}
		larger := w
		larger.params += rapid.Int64Range(0, w.params).Draw(t, "more parameters")
		cap += 4 * (larger.params - w.params)
		if next := NewPredictor(TrainedModel{}, DeviceMemory{Total: cap}, []Measurement{larger.failed(micro, reached, cap)}).Predict(p); next.Bound < now.Bound-now.Bound/1e6 { // a tenth of them is outside the blocks, rounded
			t.Fatalf("the bound falls from %d to %d with the parameters from %d to %d", now.Bound, next.Bound, w.params, larger.params)
		}
	})
}

func TestAFailedPlanIsNeverPredictedToFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, p := anyWorld(t), rankPlan(t)
		cap := rapid.Int64Range(1<<30, 200<<30).Draw(t, "cap")
		m := w.failed(p.MicroBatch, rapid.IntRange(0, 70).Draw(t, "reached"), cap)
		m.Plan = p
		m.Failed = rapid.SampledFrom([]string{"load", "forward", "loss", "backward", "optimizer", "evaluation"}).Draw(t, "instant")
		good := w.failed(max(p.MicroBatch/2, 1), 70, cap)
		good.Failed, good.Plan, good.Plan.MicroBatch, good.Steps, good.Peak = "", p, max(p.MicroBatch/2, 1), 3, cap/2
		seen := []Measurement{m}
		if p.MicroBatch > 1 && rapid.Bool().Draw(t, "another plan trained") {
			seen = append(seen, good)
		}
		for _, allocator := range []string{"default", "expandable"} {
			p.Allocator = allocator
			f := NewPredictor(TrainedModel{}, DeviceMemory{Total: 1 << 40, Allowed: cap}, seen)
			got := f.Predict(p)
			if got.Unknown == "" && got.Mean <= f.Room(p) {
				t.Fatalf("a plan that ran out of memory at %d is predicted to need %d", cap, got.Mean)
			}
			p.MicroBatch++
			if got := f.Predict(p); got.Unknown == "" && got.Mean <= f.Room(p) {
				t.Fatalf("a larger plan than one that ran out of memory at %d is predicted to need %d", cap, got.Mean)
			}
			p.MicroBatch--
		}
	})
}

func TestMoreEvidenceNeverWidensTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// A block that holds exactly the prior's bytes, so that only the uncertainty changes.
		w, p := anyWorld(t), rankPlan(t)
		w.block = w.input * blockInputs
		micro := rapid.IntRange(1, 64).Draw(t, "failed micro batch")
		device := DeviceMemory{Total: 1 << 50}
		margin := func(seen ...Measurement) float64 {
			got := NewPredictor(TrainedModel{}, device, seen).Predict(p)
			return float64(got.Bound)/float64(got.Mean) - 1
		}
		before, reached := 0., -1
		for _, r := range []int{0, 1, 2, w.blocks / 2, w.blocks} {
			if r < reached || r > w.blocks || r == 0 && (p.Attention == "eager" || p.Compute != "fp32") {
				continue // the prior is for fused attention in fp32
			}
			m := w.failed(micro, r, 1)
			m.Allocated = 0
			now := margin(m)
			if reached >= 0 && now > before+.002 {
				t.Fatalf("the margin grows from %.4f to %.4f with the blocks seen from %d to %d", before, now, reached, r)
			}
			before, reached = now, r
		}
		m := w.failed(micro, w.blocks, 1)
		ran := m
		ran.Failed, ran.Plan, ran.Steps, ran.Batch = "", p, 3, p.MicroBatch
		ran.Peak = NewPredictor(TrainedModel{}, device, []Measurement{m}).Predict(p).Mean
		ran.Marks, ran.Start = nil, 0
		if now := margin(m, ran); now > before+.002 {
			t.Fatalf("the margin grows from %.4f to %.4f when the plan itself was measured", before, now)
		}
	})
}
