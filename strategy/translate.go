package strategy

import (
	"cmp"
	"slices"

	"github.com/gpurun/gpurun/strategy/memory"
)

// A translator turns plans into those of package memory, by the measurement of a process that ran
// with one of them.
type translator struct {
	job              Job
	ran              Plan // the plan of the process; weights and compute are its dtypes
	weights, compute string
	samples          int  // of one rank in an optimizer step; 0: unknown
	alike            bool // evaluations use the micro batch
}

// zeroStages are the stages of ZeRO, which DeepSpeed runs.
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
	_, reported := ran.Number(GradientAccumulationSteps)
	counted := m.First.After > 0 // a whole step was seen
	if b, known := batchOf(ran, j); known && (reported || !counted) {
		if n, whole := b.perRank(); whole && b.scope != ScopeDerived {
			t.samples = n
		}
	}
	if t.samples == 0 {
		t.samples = m.Batch * m.Passes()
	}
	return t
}

// recalling uses a measurement of an earlier run. The weights have the same dtype, unless today's
// plan has another precision.
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

// MemoryPlan converts a plan to one for package memory, for a job that has not run.
func MemoryPlan(p Plan) memory.RankPlan {
	q := memory.RankPlan{
		Compute: computes(p[Precision]), Checkpointing: string(p[ActivationCheckpointing]), Attention: string(p[Attention]),
		Optimizer: string(p[Optimizer]),
		Sharding:  string(p[Sharding]), DeepSpeed: slices.Contains(zeroStages, p[Sharding]),
		OffloadOptimizer: string(p[OffloadOptimizer]), OffloadParam: string(p[OffloadParam]),
		OffloadActivations: string(p[OffloadActivations]),
	}
	switch on := Value("on"); on { // off is the same as not reported
	case p[FusedLoss]:
		q.LossParts = "fused"
	case p[LossParts]:
		q.LossParts = "on"
	}
	q.MicroBatch, _ = p.Number(MicroBatchSize)
	if q.ForwardParts, _ = p.Number(ForwardParts); q.ForwardParts == 1 {
		q.ForwardParts = 0
	}
	q.Accumulation, _ = p.Number(GradientAccumulationSteps)
	q.Sequence, _ = p.Number(SequenceLength)
	return q
}

// memory converts a plan to one for package memory.
func (t translator) memory(p Plan) memory.RankPlan {
	q := MemoryPlan(p)
	if q.OffloadOptimizer == "cpu" && t.job.Knobs[OffloadOptimizer].By == ByHook {
		q.OffloadOptimizer = memory.StatesOnHost
	}
	q.Weights, q.DataParallel, q.Allocator = t.weights, max(t.job.DataParallel, 1), string(p[Allocator])
	if q.Evaluation, _ = p.Number(EvalBatchSize); t.alike {
		q.Evaluation = q.MicroBatch
	}
	if q.Accumulation = 1; q.MicroBatch > 0 && t.samples > 0 {
		q.Accumulation = max(t.samples/q.MicroBatch, 1)
	}
	if p[Precision] == t.ran[Precision] {
		q.Compute = t.compute
	} else if t.job.Knobs[Precision].Weights {
		q.Weights = q.Compute
	}
	return q
}

// computes is the dtype of activations under a precision.
func computes(v Value) string {
	switch v { // these two multiply in another dtype than they store
	case "tf32":
		return "fp32"
	case "fp8":
		return "bf16"
	}
	return string(v)
}

// Measured lists the measurements of an attempt, each with the plan that its rank really ran
// with. A rank that ran with remedies in place has two: of its steps, and of the error before.
func (j Job) Measured(a Attempt) []memory.Measurement {
	j = j.seeing(a.World)
	ran := j.used(a)
	all := make([]memory.Measurement, 0, len(a.Measured))
	for _, m := range a.Measured {
		t := j.translator(ran, m)
		measured := func(p Plan) memory.RankPlan {
			q := t.memory(p)
			if q.MicroBatch == 0 {
				q.MicroBatch, q.Accumulation = m.Batch, m.Passes()
			}
			q.Evaluation = cmp.Or(q.Evaluation, m.EvaluationBatch)
			return q
		}
		m.Plan = measured(ran)
		failed, ranOut := m.WithoutRemedies()
		m.Plan, m.RanOut = measured(ran.With(a.inPlace(m))), nil
		if all = append(all, m); ranOut {
			all = append(all, failed)
		}
	}
	return all
}

// inPlace has the remedies in place that were on in all measured steps of a process, as a plan.
func (a Attempt) inPlace(m memory.Measurement) Plan {
	on := Plan{}
	for _, name := range m.InPlace {
		switch remedy := Remedy(name); {
		case !remedy.known() || remedy.row().inPlace() == nil:
		case remedy == RemedySplit:
			parts := 0
			for _, one := range a.InPlace {
				if one.Rank == m.Rank && one.Remedy == RemedySplit {
					parts = max(parts, one.Parts)
				}
			}
			if parts > 0 {
				on[ForwardParts] = Number(parts)
			}
		case remedy == RemedyOffloadOptimizer:
			on[OffloadOptimizer] = memory.StatesOnHost
		default:
			values := remedy.row().inside.Values
			on[remedy.row().turns[0]] = values[len(values)-1]
		}
	}
	return on
}

// Throughput is the number of samples per second over all ranks; 0: not known.
func (j Job) Throughput(a Attempt) float64 {
	for _, m := range j.Measured(a) {
		if m.StepSeconds > 0 {
			return float64(m.Plan.MicroBatch*m.Plan.Accumulation*m.Plan.DataParallel) / m.StepSeconds
		}
	}
	return 0
}

// Peak is the most memory that a rank of the attempt is known to have held, in bytes of the
// device's allocator, also in steps that it did again in place; 0: not measured.
func (a Attempt) Peak() int64 {
	_, peak := CountInPlace(a.InPlace)
	for i := range a.Measured {
		peak = max(peak, highest(&a.Measured[i]))
	}
	return peak
}
