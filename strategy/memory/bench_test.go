package memory

import "testing"

// manyCandidates are the plans of a job with every knob: 100,000.
func manyCandidates() []PlanCandidate {
	var all []PlanCandidate
	for _, compute := range []string{"fp32", "bf16"} {
		for _, checkpointing := range []string{"none", "selective", "full"} {
			for _, attention := range []string{"eager", "sdpa"} {
				for _, optimizer := range []string{"adamw", "adamw-8bit", "adafactor", "sgd"} {
					for _, sharding := range []string{"none", "zero1", "zero2", "zero3"} {
						for _, offload := range []string{"none", "cpu", "nvme"} {
							for _, activations := range []string{"none", "cpu"} {
								for micro := 1; len(all) < 1e5 && micro <= 90; micro++ {
									all = append(all, PlanCandidate{Plan: RankPlan{MicroBatch: micro, Accumulation: 90 / micro, Weights: "fp32", Compute: compute,
										Checkpointing: checkpointing, Attention: attention, Optimizer: optimizer, Sharding: sharding, DataParallel: 8,
										OffloadOptimizer: offload, OffloadActivations: activations, DeepSpeed: sharding != "none"}, Group: len(all) % 4, Order: len(all)})
								}
							}
						}
					}
				}
			}
		}
	}
	return all
}

// BenchmarkPlanning is one decision among 100,000 candidates, including the fit: at most 50 ms.
func BenchmarkPlanning(b *testing.B) {
	candidates := manyCandidates()
	seen := []Measurement{measuredJob(25 * gibi)}
	for b.Loop() {
		f := NewPredictor(TrainedModel{}, DeviceMemory{Name: "H200", Total: 141 * gibi, Allowed: 25 * gibi, Host: 1 << 40}, seen)
		if c := Choose(f, candidates, ""); c.Index < 0 {
			b.Fatal("nothing was chosen")
		}
	}
	b.ReportMetric(float64(len(candidates)), "candidates/op")
}
