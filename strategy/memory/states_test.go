package memory

import (
	"math"
	"testing"
)

// The bytes of model states agree with the sources of memory.md: 16 bytes per parameter for Adam
// in fp32, 8 if the weights are in bf16, DeepSpeed's partitions.
func TestStates(t *testing.T) {
	const n = 7e9
	tests := []struct {
		name                                    string
		plan                                    RankPlan
		weights, gradients, optimizer, held, at float64 // bytes a parameter
		nvme                                    float64
	}{
		{"fp32", RankPlan{Weights: "fp32", Compute: "fp32", Optimizer: "adamw"}, 4, 4, 8, 4, 4, 0},
		{"bf16", RankPlan{Weights: "bf16", Compute: "bf16", Optimizer: "adamw"}, 2, 2, 4, 2, 2, 0},
		{"sgd", RankPlan{Weights: "fp32", Compute: "fp32", Optimizer: "sgd"}, 4, 4, 4, 4, 4, 0},
		{"states in host memory", RankPlan{Weights: "fp32", Compute: "bf16", Optimizer: "adamw", OffloadOptimizer: StatesOnHost}, 4, 4, 0, 4, 2 * visitingBytes / n, 0},
		{"8 bit", RankPlan{Weights: "fp32", Compute: "fp32", Optimizer: "adamw-8bit"}, 4, 4, 2.03125, 4, 0, 0},
		{"DeepSpeed without ZeRO in fp32", RankPlan{Compute: "fp32", DeepSpeed: true, Optimizer: "adamw"}, 4, 4, 8, 4, 4, 0},
		{"ZeRO-1 on eight", RankPlan{Compute: "bf16", Sharding: "zero1", DataParallel: 8, DeepSpeed: true, Optimizer: "adamw"}, 2, 2, 12. / 8, 2, .75, 0},
		{"ZeRO-2 on eight", RankPlan{Compute: "bf16", Sharding: "zero2", DataParallel: 8, DeepSpeed: true, Optimizer: "adamw"}, 2, .25, 12. / 8, .25, .75, 0},
		{"ZeRO-3 on eight", RankPlan{Compute: "bf16", Sharding: "zero3", DataParallel: 8, DeepSpeed: true, Optimizer: "adamw"}, .5 + 1./7, 0, 12. / 8, 0, .75, 0},
		{"ZeRO-2, optimizer on the host", RankPlan{Compute: "bf16", Sharding: "zero2", DataParallel: 8, DeepSpeed: true, OffloadOptimizer: "cpu"}, 2, 0, 0, 0, 0, 0},
		{"ZeRO-3, all on NVMe", RankPlan{Compute: "bf16", Sharding: "zero3", DataParallel: 8, DeepSpeed: true, OffloadOptimizer: "nvme", OffloadParam: "nvme"}, 1. / 7, 0, 0, 0, 0, 18. / 8},
		{"ZeRO-3, optimizer on the host", RankPlan{Compute: "bf16", Sharding: "zero3", DataParallel: 8, DeepSpeed: true, OffloadOptimizer: "cpu"}, .25 + 1./7, 0, 0, 0, 0, 0},
		{"DDP on two", RankPlan{Weights: "fp32", Compute: "bf16", Sharding: "none", DataParallel: 2, Optimizer: "adamw"}, 8, 4, 12, 4, 4, 0},
		{"FSDP on eight", RankPlan{Weights: "fp32", Compute: "bf16", Sharding: "fsdp", DataParallel: 8, Optimizer: "adamw"}, .5, .5, 1, .5, .5, 0},
	}
	for _, test := range tests {
		f := NewPredictor(TrainedModel{Parameters: n, Trainable: n}, DeviceMemory{Total: 80 << 30}, nil)
		s := f.states(test.plan)
		for what, got := range map[string][2]float64{"weights": {s.weights, test.weights}, "gradients": {s.gradients, test.gradients},
			"optimizer": {s.optimizer, test.optimizer}, "held gradients": {s.held, test.held}, "at the step": {s.step, test.at}, "NVMe": {s.nvme, test.nvme}} {
			if want := got[1] * n; math.Abs(got[0]-want) > 1e-6*n {
				t.Errorf("%s: %s take %.3f bytes a parameter, want %.3f", test.name, what, got[0]/n, got[1])
			}
		}
	}
}

// A step that takes one parameter after the other needs temporary bytes of the largest one.
// Measured with torch 1.13 on a CPU, for a layer of 512 MiB: AdamW 1024 MiB, Adam 1024 and 1536
// with weight decay, SGD 0 and 512 with it, RMSprop and Adagrad 512.
func TestStepOfSingleParameters(t *testing.T) {
	const largest = 128 << 20
	for optimizer, want := range map[string]float64{"AdamW": 2, "Adam": 3, "SGD": 1, "RMSprop": 1, "FusedAdam": 0, "AdamW8bit": 0} {
		seen := Measurement{Plan: RankPlan{Weights: "fp32"}, Optimizer: optimizer, States: 1}
		f := NewPredictor(TrainedModel{Parameters: 2 * largest, Trainable: 2 * largest, Largest: largest}, DeviceMemory{Total: 80 << 30, CPU: true}, []Measurement{seen})
		if got := f.states(RankPlan{Weights: "fp32"}).step; got != want*4*largest {
			t.Errorf("%s: %.0f bytes, want %.0f", optimizer, got, want*4*largest)
		}
	}
}

func TestPinnedBytesAreRounded(t *testing.T) {
	if got := pinned(2.25 * (1 << 30)); got != 4<<30 { // measured: 4.008 GiB
		t.Errorf("2.25 GiB take %.2f", got/(1<<30))
	}
	if got := pinned(0); got != 0 {
		t.Errorf("nothing takes %.0f", got)
	}
}

// The bytes that DeepSpeed 0.19.8 pinned on the host of two H200s for 355 M parameters, by
// PyTorch's count and, on NVMe, with the bytes that its asynchronous I/O locks itself.
func TestPinnedByDeepSpeed(t *testing.T) {
	f := NewPredictor(TrainedModel{Parameters: 354823168, Trainable: 354823168, Largest: 51463168}, DeviceMemory{Total: 141 << 30}, nil)
	for _, row := range []struct {
		stage, optimizer, param string
		ranks                   int
		bytes, within           float64
	}{
		{"zero2", "cpu", "none", 1, 5502926848, 1e-3},
		{"zero2", "cpu", "none", 2, 2818572301, 1e-3},
		{"zero3", "cpu", "none", 1, 3221225487, 1e-3},
		{"zero3", "cpu", "cpu", 1, 5086000000, .06}, // each parameter is rounded by itself
		{"zero3", "cpu", "cpu", 2, 2543142927, .06},
		{"zero3", "nvme", "nvme", 1, 5369401359 + 6677176320, .01},
	} {
		s := f.states(RankPlan{Compute: "bf16", Sharding: row.stage, DataParallel: row.ranks, DeepSpeed: true, OffloadOptimizer: row.optimizer, OffloadParam: row.param})
		if off := s.pinned/row.bytes - 1; math.Abs(off) > row.within {
			t.Errorf("%s, %s and %s, %d ranks: %.0f bytes are pinned, measured %.0f", row.stage, row.optimizer, row.param, row.ranks, s.pinned, row.bytes)
		}
	}
}
