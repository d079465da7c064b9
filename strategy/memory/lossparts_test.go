package memory

import "testing"

// A cross entropy in parts needs less where the logits are the most of a job's memory: the logits,
// their gradient, both in their own type, and one part. It needs no less where a model has none.
func TestLossInPartsNeedsLessForItsLogits(t *testing.T) {
	words := TrainedModel{
		Class: "GPTForPreTraining", Parameters: 124e6, Bytes: map[string]int64{"float32": 496e6}, Embedding: 39e6, Outside: 39e6, Cast: 124e6, Tied: true,
		Vocabulary: 50257, Hidden: 768, Attention: true, Blocks: []BlockList{{Path: "h", Class: "Block", Count: 12, Parameters: 85e6}},
	}
	outside, images := words, words
	outside.Class = "GPT" // its loss is outside of the model, and the job holds the logits until the next step
	causal := words
	causal.Class = "GPT2LMHeadModel" // which converts its logits to fp32 itself
	images.Vocabulary, images.Hidden, images.Embedding = 1000, 768, 0
	device := DeviceMemory{Name: "H100", Total: 80 << 30}
	for _, test := range []struct {
		model         TrainedModel
		compute       string
		checkpointing string
		least, most   float64 // what parts save, in units of the logits in fp32
	}{
		{words, "fp32", "full", .9, 1},
		{outside, "fp32", "full", 1.9, 2},
		{words, "bf16", "full", 1.3, 1.5},
		{causal, "fp32", "full", .9, 1},
		{causal, "bf16", "full", 1.8, 2},
		{images, "fp32", "full", 0, 0},
	} {
		whole := RankPlan{MicroBatch: 16, Accumulation: 1, Weights: "fp32", Compute: test.compute, Checkpointing: test.checkpointing, Sequence: 1024, Optimizer: "adamw"}
		parts := whole
		parts.LossParts = "on"
		seen := Measurement{Plan: whole, Model: &test.model, Batch: 16, Start: 1 << 30, Failed: "forward", Allocated: 2 << 30}
		input := int64(16 * 1024 * 768 * 4)
		seen.Marks = []Marks{{Path: "h", Bytes: []int64{1 << 30, 1<<30 + input, 1<<30 + 2*input}, Input: input}}
		f := NewPredictor(test.model, device, []Measurement{seen})
		a, b := f.Predict(whole), f.Predict(parts)
		fused := parts
		if fused.LossParts = "fused"; test.least > 0 && f.Predict(fused).Mean >= b.Mean {
			t.Errorf("%s: fused it needs %d bytes, in parts %d", test.compute, f.Predict(fused).Mean, b.Mean)
		}
		saved := float64(a.Mean-b.Mean) / (4 * 50257 * 1024 * 16)
		if saved < test.least || saved > test.most {
			t.Errorf("%s %s %s: %d and %d bytes: saves %.2f logits, want %.1f to %.1f", a.Unknown, test.compute, test.checkpointing, a.Mean, b.Mean, saved, test.least, test.most)
		}
		if a.Seconds != b.Seconds {
			t.Errorf("%s: %g and %g seconds", test.compute, a.Seconds, b.Seconds)
		}
	}
}

// What a process measured of a whole loss scales the prediction of one in parts, and the blocks
// are the same in both.
func TestMeasuredLossScalesLossInParts(t *testing.T) {
	compared := 0
	for _, l := range readLandscape(t, "testdata/landscape.jsonl") {
		if l.head.Conv || l.model().Vocabulary < 10000 {
			continue
		}
		for s := range l.rows {
			if s.Ckpt != "none" || s.Accum != 1 {
				continue
			}
			m, ok := l.seen(s, 1, 140<<30)
			if !ok || m.First.BackwardPeak == 0 {
				continue
			}
			compared++
			f := NewPredictor(l.model(), DeviceMemory{Total: 1 << 40}, []Measurement{m})
			whole := m.Plan
			parts := whole
			parts.LossParts = "on"
			a, b := f.shape(&whole), f.shape(&parts)
			if b.temporary >= a.temporary || b.head+b.temporary >= a.head+a.temporary {
				t.Errorf("%s %+v: whole %.0f + %.0f, in parts %.0f + %.0f", l.head.Model, s, a.head, a.temporary, b.head, b.temporary)
			}
			if near := b.blocks / a.blocks; near < .99 || near > 1.01 {
				t.Errorf("%s %+v: the blocks hold %.0f and %.0f", l.head.Model, s, a.blocks, b.blocks)
			}
		}
	}
	if compared < 10 {
		t.Errorf("only %d plans were compared", compared)
	}
}
