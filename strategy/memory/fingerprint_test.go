package memory

import "testing"

func measured(change func(*Measurement)) Measurement {
	m := Measurement{
		Plan: RankPlan{Weights: "fp32", Compute: "fp32"}, Batch: 4, Marks: []Marks{{Path: "h", Input: 4 * 1000}},
		Model: &TrainedModel{Class: "GPT", Parameters: 100, Bytes: map[string]int64{"float32": 400}, Blocks: []BlockList{{Path: "h", Class: "Block", Count: 12, Parameters: 90}}},
	}
	if change != nil {
		change(&m)
	}
	return m
}

func TestFingerprintsDiffer(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Measurement)
		same   bool
	}{
		{"nothing", nil, true},
		{"another batch", func(m *Measurement) { m.Batch, m.Marks[0].Input = 8, 8*1000 }, true},
		{"a somewhat longer sample", func(m *Measurement) { m.Marks[0].Input = 4 * 1900 }, true},
		{"another class", func(m *Measurement) { m.Model.Class = "Llama" }, false},
		{"more parameters", func(m *Measurement) { m.Model.Parameters++ }, false},
		{"more blocks", func(m *Measurement) { m.Model.Blocks[0].Count++ }, false},
		{"a second list of blocks", func(m *Measurement) { m.Model.Blocks = append(m.Model.Blocks, BlockList{}) }, false},
		{"another dtype by itself", func(m *Measurement) { m.Model.Bytes = map[string]int64{"bfloat16": 200} }, false},
		{"another dtype by another precision", func(m *Measurement) {
			m.Plan.Weights, m.Plan.Compute = "bf16", "bf16"
			m.Model.Bytes, m.Marks[0].Input = map[string]int64{"bfloat16": 200}, 4*500
		}, true},
		{"samples of twice the size", func(m *Measurement) { m.Marks[0].Input = 4 * 2000 }, false},
		{"samples of half the size", func(m *Measurement) { m.Marks[0].Input = 4 * 500 }, false},
		{"no block reached", func(m *Measurement) { m.Marks = nil }, true},
	} {
		a, knownA := measured(nil).Fingerprint()
		b, knownB := measured(c.change).Fingerprint()
		if !knownA || !knownB || a.Same(b) != c.same || b.Same(a) != c.same {
			t.Errorf("%s: same %v and %v, want %v", c.name, a.Same(b), b.Same(a), c.same)
		}
	}
	if _, known := (Measurement{}).Fingerprint(); known {
		t.Error("a measurement without a model has a fingerprint")
	}
}
