package strategy

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurun/gpurun/strategy/memory"
)

// mostMeasured bounds the measurements that are kept of an attempt: ranks of one job hold
// about the same.
const mostMeasured = 4

// Measured is what the job's processes measured of their memory, the ones that say the most
// first: that of the rank that ran out of memory first, then those with the highest peaks.
// Their plans are not set: see Job.Measured.
func (e *Evidence) Measured() []memory.Measurement {
	c := e.folded()
	facts := slices.SortedFunc(maps.Values(c.measured), func(a, b int) int {
		return compareMeasured(c.facts[a], c.facts[b])
	})
	var all []memory.Measurement
	for _, i := range facts[:min(len(facts), mostMeasured)] {
		m := *c.facts[i].Memory
		m.Rank = c.facts[i].Rank
		all = append(all, m)
	}
	return all
}

// Measured is what the ranks of an attempt measured, each with the plan that it ran with:
// the attempt's, as far as it took effect, and what the processes told of themselves.
func (j Job) Measured(a Attempt) []memory.Measurement {
	j = j.seeing(a.World)
	ran := j.used(a)
	all := make([]memory.Measurement, 0, len(a.Measured))
	for _, m := range a.Measured {
		m.Plan = j.translator(ran, m).memory(ran)
		if m.Plan.MicroBatch == 0 {
			m.Plan.MicroBatch, m.Plan.Accumulation = m.Batch, max(m.Calls, 1)
		}
		m.Plan.Evaluation = cmp.Or(m.Plan.Evaluation, m.EvaluationBatch)
		all = append(all, m)
	}
	return all
}

// Throughput is the samples that the job trained with in a second, all ranks together, by
// the time of its steps; 0 where that is not known.
func (j Job) Throughput(a Attempt) float64 {
	for _, m := range j.Measured(a) {
		if m.StepSeconds > 0 {
			return float64(m.Plan.MicroBatch*m.Plan.Accumulation*m.Plan.DataParallel) / m.StepSeconds
		}
	}
	return 0
}

// Peak is the most that a rank of the attempt is known to have held, in bytes of the
// device's allocator; 0 where nothing was measured.
func (a Attempt) Peak() int64 {
	var peak int64
	for i := range a.Measured {
		peak = max(peak, highest(&a.Measured[i]))
	}
	return peak
}

// compareMeasured orders two facts with measurements.
func compareMeasured(a, b Fact) int {
	out := func(f Fact) int {
		if f.Memory.Failed != "" {
			return 0
		}
		return 1
	}
	if out(a) != out(b) {
		return out(a) - out(b)
	}
	if a.Memory.Failed != "" && !a.Time.Equal(b.Time) {
		return a.Time.Compare(b.Time)
	}
	return cmp.Or(cmp.Compare(highest(b.Memory), highest(a.Memory)), a.Rank-b.Rank, a.Memory.PID-b.Memory.PID)
}

// highest is the most that a process is known to have held.
func highest(m *memory.Measurement) int64 { return max(m.Peak, m.Allocated) }
