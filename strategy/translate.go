package strategy

import (
	"slices"

	"github.com/gpurun/gpurun/strategy/memory"
)

// A translator puts plans into the words of package memory, by what a process of the job
// said of itself when it ran with one of them.
type translator struct {
	job Job
	// ran is the plan that the process ran with; its weights had that dtype, and its
	// activations that one.
	ran              Plan
	weights, compute string
	// samples of one rank go into an optimizer step; 0: unknown.
	samples int
}

// zeroStages are ZeRO's, which DeepSpeed runs.
var zeroStages = []Value{"zero1", "zero2", "zero3"}

// translator reads a measurement of a process that ran with a plan.
func (j Job) translator(ran Plan, m memory.Measurement) translator {
	t := translator{job: j, ran: ran, weights: m.Plan.Weights, compute: m.Plan.Compute}
	if m.Model != nil {
		t.weights = m.Model.Dtype()
	}
	if t.weights == "" {
		t.weights = "fp32"
	}
	switch {
	case m.Autocast != "":
		t.compute = memory.Dtype(m.Autocast)
	case m.Model != nil || t.compute == "":
		t.compute = t.weights
	}
	_, told := ran.Number(GradientAccumulationSteps)
	counted := m.First.After > 0 // a whole step was seen
	if b, known := batchOf(ran, j); known && (told || !counted) {
		if n, whole := b.perRank(); whole && b.scope != ScopeDerived {
			t.samples = n
		}
	}
	if t.samples == 0 {
		t.samples = m.Batch * max(m.Calls, 1)
	}
	return t
}

// recalling reads a measurement of an earlier run, for plans beside one of today: the
// weights are as they were, but for what today's plan says of the precision.
func (j Job) recalling(plan Plan, m memory.Measurement) translator {
	m.Autocast = ""
	t := j.translator(plan, m)
	if v := plan[Precision]; v != "" && (t.weights == "fp32" || j.Knobs[Precision].Weights) {
		t.compute = computes(v)
		if j.Knobs[Precision].Weights {
			t.weights = t.compute
		}
	}
	return t
}

// MemoryPlan is a plan in the words of package memory, as far as it says itself what a job
// that has not run needs.
func MemoryPlan(p Plan) memory.RankPlan {
	q := memory.RankPlan{
		Compute: computes(p[Precision]), Checkpointing: string(p[ActivationCheckpointing]), Attention: string(p[Attention]), Optimizer: string(p[Optimizer]),
		Sharding: string(p[Sharding]), DeepSpeed: slices.Contains(zeroStages, p[Sharding]),
		OffloadOptimizer: string(p[OffloadOptimizer]), OffloadParam: string(p[OffloadParam]), OffloadActivations: string(p[OffloadActivations]),
	}
	q.MicroBatch, _ = p.Number(MicroBatchSize)
	q.Accumulation, _ = p.Number(GradientAccumulationSteps)
	q.Sequence, _ = p.Number(SequenceLength)
	return q
}

// memory is a plan in the words of package memory, by what ran.
func (t translator) memory(p Plan) memory.RankPlan {
	q := MemoryPlan(p)
	q.Weights, q.Compute, q.DataParallel, q.Allocator = t.weights, t.compute, max(t.job.DataParallel, 1), string(p[Allocator])
	q.Evaluation, _ = p.Number(EvalBatchSize)
	if q.Accumulation = 1; q.MicroBatch > 0 && t.samples > 0 {
		q.Accumulation = max(t.samples/q.MicroBatch, 1)
	}
	if p[Precision] == t.ran[Precision] {
		return q
	}
	q.Compute = computes(p[Precision])
	if t.job.Knobs[Precision].Weights {
		q.Weights = q.Compute
	}
	return q
}

// computes is the dtype that activations have with a precision.
func computes(v Value) string {
	switch v { // ways to multiply: what is held is another
	case "tf32":
		return "fp32"
	case "fp8":
		return "bf16"
	}
	return string(v)
}
