package memory

import (
	"math"
	"testing"
)

// TestEstimatesAndPredictionsShareStates: before anything was measured, both have the same bytes
// of states and buffers for a model of the same shape, when it is loaded and in the optimizer's
// step.
func TestEstimatesAndPredictionsShareStates(t *testing.T) {
	a := Architecture{Layers: 24, Hidden: 1024, Heads: 16, Vocabulary: 50257, Positions: 1024, Tied: true}.filled()
	f := NewPredictor(TrainedModel{Parameters: a.Parameters, Trainable: a.Parameters, Largest: a.largest(), Outside: a.outside(),
		Blocks: []BlockList{{Count: int(a.Layers), Parameters: a.Layers * a.block()}}}, DeviceMemory{Total: 80 << 30}, nil)
	compared := 0
	for _, sharding := range []string{"none", "zero1", "zero2", "zero3", "fsdp"} {
		for _, compute := range []string{"fp32", "bf16"} {
			for _, ranks := range []int{1, 2, 8} {
				for _, offload := range [][2]string{{"none", "none"}, {"cpu", "none"}, {"cpu", "cpu"}, {"nvme", "nvme"}} {
					p := RankPlan{MicroBatch: 1, Weights: "fp32", Compute: compute, Optimizer: "adamw-fused", Sharding: sharding, DataParallel: ranks,
						DeepSpeed: sharding != "none" && sharding != "fsdp", OffloadOptimizer: offload[0], OffloadParam: offload[1]}
					if sharding == "none" && offload[0] != "none" || sharding != "zero3" && offload[0] == "nvme" {
						continue
					}
					compared++
					all, st := Estimate(a, p), f.states(p)
					e := all.Instants
					if host := math.Max(st.host, st.pinned) * float64(ranks); offload[0] == "nvme" && (math.Abs(float64(all.Host)-host) > 8 || math.Abs(float64(all.NVMe)-st.nvme*float64(ranks)) > 8) {
						t.Errorf("%+v: %d bytes of the host and %d of NVMe are estimated, %.0f and %.0f predicted", p, all.Host, all.NVMe, host, st.nvme*float64(ranks))
					}
					for phase, both := range map[string][2]float64{
						"load":      {float64(e.Load.Sum()), st.weights + st.early + st.load},
						"optimizer": {float64(e.Optimizer.Sum()), st.weights + st.optimizer + st.gradients + st.step},
					} {
						if math.Abs(both[0]-both[1]) > 8 {
							t.Errorf("%+v: %s: %.3f bytes a parameter are estimated, %.3f predicted", p, phase, both[0]/float64(a.Parameters), both[1]/float64(a.Parameters))
						}
					}
				}
			}
		}
	}
	if compared < 70 {
		t.Errorf("%d plans are compared", compared)
	}
}

// While DeepSpeed's engine is made, no more is predicted than was measured, and at most a fifth
// less.
func TestLoadsAgreeWithRows(t *testing.T) {
	heads, rows := readEngineRows(t, "testdata/h200-deepspeed.jsonl")
	compared := 0
	for _, r := range rows {
		if r.Engine != "deepspeed" {
			continue
		}
		compared++
		f := NewPredictor(*r.seen(heads[r.Model]).Model, DeviceMemory{Total: 141 * gibi}, nil)
		p := r.plan()
		p.Optimizer = "adamw-fused"
		st := f.states(p)
		if off := (st.weights+st.early+st.load)/float64(r.InitPeak) - 1; off < -.2 || off > .02 {
			t.Errorf("%s %s: %.2f GiB while it is made, measured %.2f", r.Model, r, (st.weights+st.early+st.load)/gibi, float64(r.InitPeak)/gibi)
		}
	}
	if compared < 45 {
		t.Errorf("%d rows are compared", compared)
	}
}

// FSDP offloads weights, gradients and states together, whichever part is named.
func TestFSDPOffloadsAllStates(t *testing.T) {
	f := NewPredictor(TrainedModel{Parameters: 8e9, Trainable: 8e9}, DeviceMemory{Total: 80 << 30}, nil)
	for _, p := range []RankPlan{{OffloadOptimizer: "cpu"}, {OffloadParam: "cpu"}} {
		p.Weights, p.Compute, p.Optimizer, p.Sharding, p.DataParallel = "fp32", "bf16", "adamw", "fsdp", 8
		if s := f.states(p); s.host != 16e9 || s.weights+s.gradients+s.optimizer != 0 {
			t.Errorf("%+v: the host holds %.0f bytes, want 16e9; the device %.0f, want 0", p, s.host, s.weights+s.gradients+s.optimizer)
		}
		e := Estimate(OfSize(8e9), p)
		if st := e.Instants.Optimizer; st.States() != 0 {
			t.Errorf("%+v: %d bytes are estimated on the device, want 0", p, st.States())
		}
	}
}
