package strategy

import (
	"testing"

	"github.com/gpurun/gpurun/strategy/memory"
)

// BenchmarkDecide decides once for a job that has every knob.
func BenchmarkDecide(b *testing.B) {
	job := zero(8)
	for _, k := range []Knob{ActivationCheckpointing, OffloadActivations, Precision} {
		job.Knobs[k] = Range{Values: k.words()}
	}
	policy := predicting(func(p *Policy) { p.NVMePath, p.Numerics = "/scratch", Any })
	plan := Plan{
		MicroBatchSize: "48", GradientAccumulationSteps: "4", ActivationCheckpointing: "none", Precision: "fp32", Sharding: "none",
		OffloadOptimizer: "none", OffloadParam: "none", OffloadActivations: "none", Allocator: "default",
	}
	a := failedAt(0, plan, 24<<30)
	a.Measured = []memory.Measurement{ranOutInForward(48, 24<<30)}
	for b.Loop() {
		if d := Decide(policy, job, []Attempt{a}, h100); !d.Relaunch {
			b.Fatal(d.Reason)
		}
	}
	s := &situation{policy: policy, job: job, inventory: h100}
	s.look([]Attempt{a})
	plans, _ := s.candidates()
	b.ReportMetric(float64(len(plans)), "plans")
}
