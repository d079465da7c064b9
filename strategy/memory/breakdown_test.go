package memory

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"testing"
)

// measurements reads the measurements of a file, one per line.
func measurements(t *testing.T, path string) []Measurement {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []Measurement
	for line := range bytes.Lines(text) {
		var m Measurement
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// Measurements of real processes on H200s, divided by hand: parameters × width, Adam's state as
// the process counted it, and the blocks' activations by their marks.
func TestBreakdownOfRealJobs(t *testing.T) {
	const mb = 1e6
	lightning := measurements(t, "testdata/h200-lightning.jsonl")
	rescues := measurements(t, "testdata/h200-rescues.jsonl")
	for name, test := range map[string]struct {
		m    Measurement
		want Breakdown // in units of 10⁶ bytes
	}{
		// 14 of 16 blocks were begun: 1347 of weights and as much of 650 of copies; a block holds 570.
		"Lightning, in the first forward": {lightning[0], Breakdown{"forward", 1916, 0, 0, 7482, 34, 20}},
		// The loss is made outside the module, when the gradients of the step before still exist.
		"Lightning, trained":    {lightning[1], Breakdown{"backward", 1368, 1347, 2694, 1915, 0, 0}},
		"Accelerate, forward":   {rescues[0], Breakdown{"forward", 1672, 0, 0, 6490, 15, 100}},
		"Accelerate, two calls": {rescues[1], Breakdown{"forward", 1910, 1299, 2597, 1921, 0, 0}},
		// Weights in bf16; half of the master copy, which exists from the start.
		"DeepSpeed, forward": {rescues[2], Breakdown{"forward", 709, 0, 709, 5364, 0, 50}},
		"DeepSpeed, trained": {rescues[3], Breakdown{"backward", 709, 0, 2127, 1277, 906, 0}},
	} {
		b, known := test.m.Breakdown()
		w := test.want
		if !known || b.Instant != w.Instant || b.Held() != max(test.m.Allocated, test.m.Peak*boolean(test.m.Failed == "")) {
			t.Errorf("%s: %+v, held %d", name, b, b.Held())
		}
		for part, pair := range map[string][2]int64{"weights": {b.Weights, w.Weights}, "gradients": {b.Gradients, w.Gradients}, "optimizer": {b.Optimizer, w.Optimizer},
			"activations": {b.Activations, w.Activations}, "other": {b.Other, w.Other}, "requested": {b.Requested, w.Requested}} {
			if math.Abs(float64(pair[0])/mb-float64(pair[1])) > 8 {
				t.Errorf("%s: %s is %.0f, want %d", name, part, float64(pair[0])/mb, pair[1])
			}
		}
	}
}

func boolean(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// A process that continued under DeepSpeed, DDP or fully_shard held weights and optimizer after
// its first step, so the breakdown has to assign these bytes to the two.
func TestBreakdownOfEngineRows(t *testing.T) {
	heads, rows := readEngineRows(t, "testdata/h200-deepspeed.jsonl")
	for _, r := range rows {
		m := r.seen(heads[r.Model])
		m.Failed, m.Allocated = "", 0
		m.First = StepMemory{Forward: r.Forward, After: r.Step1}
		m.Second = StepMemory{Forward: r.Forward + r.Step1 - r.Static, BackwardPeak: r.Peak}
		b, known := m.Breakdown()
		if !known || b.Held() != r.Peak || min(b.Weights, b.Gradients, b.Optimizer, b.Activations, b.Other) < 0 {
			t.Errorf("%s %+v: %+v", r.Model, r.plan(), b)
		}
		if r.OffloadOptim != "" && r.OffloadOptim != "none" || r.OffloadParam != "" && r.OffloadParam != "none" {
			continue // a buffer stays
		}
		held := b.Weights + b.Optimizer
		if unsharded(m.Plan) && r.Ranks > 1 {
			held += 4 * heads[r.Model].parametersCount // DDP's buckets
		}
		if low, high := .85*float64(r.Step1), 1.35*float64(r.Step1); float64(held) < low || float64(held) > high {
			t.Errorf("%s %+v: states %d, measured after a step %d: %+v", r.Model, r.plan(), held, r.Step1, b)
		}
	}
}

// For any measurements that a job writes, the parts are not negative and add up.
func TestBreakdownAddsUp(t *testing.T) {
	figures := []int64{0, 1, -5, 1 << 30, 1 << 40, math.MaxInt64 / 4}
	at := func(i int) int64 { return figures[i%len(figures)] }
	for i := range 20000 {
		m := Measurement{Model: &TrainedModel{Parameters: at(i), Buffers: at(i / 6)}, Start: at(i / 36), Allocated: at(i / 7), Requested: at(i / 5), Linger: i%2 == 0, Calls: i % 3,
			First: StepMemory{Forward: at(i / 11), After: at(i / 13), BackwardPeak: at(i / 17)}, Second: StepMemory{Forward: at(i / 19), OptimizerPeak: at(i / 23), LaterPeak: at(i / 29)},
			Plan:   RankPlan{MicroBatch: 1, Weights: "fp32", Compute: "bf16", Sharding: []string{"", "zero1", "zero3", "fsdp"}[i%4], DataParallel: i % 5},
			Failed: []string{"", "forward", "load", "backward", "optimizer", "evaluation", "loss", "x"}[i/3%8]}
		m.Plan.DeepSpeed = i%4 == 1
		b, known := m.Breakdown()
		if !known {
			continue
		}
		if held := m.moment().held; b.Held() != held || min(b.Weights, b.Gradients, b.Optimizer, b.Activations, b.Other) < 0 {
			t.Fatalf("%+v of %+v, held %d", b, m, held)
		}
	}
}

// In a backward pass gradients grow as activations shrink.
func TestBreakdownInTheBackward(t *testing.T) {
	const gib = 1 << 30
	m := Measurement{Model: &TrainedModel{Parameters: gib, Bytes: map[string]int64{"float32": 4 * gib}}, Plan: RankPlan{MicroBatch: 1, Weights: "fp32", Compute: "fp32"},
		Start: 4 * gib, First: StepMemory{Forward: 14 * gib}, Failed: "backward"} // 10 GiB of activations, 4 of gradients
	for _, test := range []struct{ held, gradients, activations int64 }{{15, 0, 11}, {14, 0, 10}, {11, 2, 5}, {8, 4, 0}, {7, 3, 0}} {
		m.Allocated = test.held * gib
		b, _ := m.Breakdown()
		if b.Weights != 4*gib || b.Gradients != test.gradients*gib || b.Activations != test.activations*gib {
			t.Errorf("%d GiB held: %+v", test.held, b)
		}
	}
	m.Allocated, m.Failed = 12*gib, "optimizer" // weights, gradients, and no state before the first step
	if b, _ := m.Breakdown(); b.Gradients != 4*gib || b.Activations != 0 || b.Optimizer+b.Other != 4*gib {
		t.Errorf("in the optimizer's step: %+v", b)
	}
	if _, known := (Measurement{Failed: "forward", Allocated: gib}).Breakdown(); known {
		t.Error("nothing is known of the model, and it was taken apart")
	}
}

// Bytes that existed before the first call are an optimizer's state that a resumed run has loaded
// only if the optimizer certainly has one: plain SGD has none.
func TestNoOptimizerBeforeTheFirstStep(t *testing.T) {
	m := measurements(t, "testdata/h200-lightning.jsonl")[0]
	m.States = 0
	m.Start += 4 * m.Model.Parameters * 2 // the data set is on the device, too
	m.Allocated += 4 * m.Model.Parameters * 2
	for name, want := range map[string]bool{"sgd": false, "": false, "adamw": true} {
		m.Optimizer, m.Plan.Optimizer = "", name
		if b, known := m.Breakdown(); !known || b.Optimizer > 0 != want || b.Held() != m.Allocated {
			t.Errorf("%q: %+v", name, b)
		}
	}
}
