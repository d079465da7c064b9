package memory

import "testing"

// A job may hold as much memory outside its model as its optimizer's states need. Those states
// are still made in the first step: figures of an H100, where the whole needs 8.73 GB.
func TestFirstStepMakesStates(t *testing.T) {
	plan := RankPlan{MicroBatch: 32, Accumulation: 1, Weights: "fp32", DataParallel: 1, Allocator: "expandable"}
	m := Measurement{
		Plan: plan, Batch: 32, Longest: 8388608, Shape: []int{32, 256, 1024}, Optimizer: "AdamW", Foreach: true, States: 805797888, Calls: 1, Start: 3985080832,
		Model: &TrainedModel{Class: "Sequential", Parameters: 100724736, Trainable: 100724736, Bytes: map[string]int64{"float32": 402898944}, Largest: 4194304, Blocks: []BlockList{{Class: "Block", Count: 12, Parameters: 100724736}}},
		Marks: []Marks{{Bytes: []int64{3985080832, 4321673728, 4623663616, 4925653504, 5227643392, 5529633280, 5831623168, 6133613056, 6435602944, 6737592832, 7039582720, 7341572608}, Input: 33554432, After: 7643562496}},
		First: StepMemory{Longest: 8388608, Forward: 7643562496, ForwardPeak: 7677116928, BackwardPeak: 7895226368, Before: 4456137728, After: 5261935616},
		Peak:  8315143168, Failed: "forward", Allocated: 8315143168, Requested: 134217728, Allowed: 8539412100, Total: 85017493504, Steps: 1,
	}
	fit := NewPredictor(TrainedModel{}, DeviceMemory{Total: 85017493504, Allowed: 8 << 30}, []Measurement{m})
	if p := fit.WithoutFailures().Predict(plan); p.Mean < 8.6e9 || p.Mean > 8.8e9 {
		t.Errorf("predicted %.2f GB", float64(p.Mean)/1e9)
	}
	resumed := m
	resumed.First.After = resumed.First.Before // they were loaded from the checkpoint
	fit = NewPredictor(TrainedModel{}, DeviceMemory{Total: 85017493504}, []Measurement{resumed})
	if p := fit.WithoutFailures().Predict(plan); p.Mean > 8.6e9 {
		t.Errorf("resumed: predicted %.2f GB", float64(p.Mean)/1e9)
	}
}
