package strategy

import "slices"

// batch is the arithmetic of micro batch size and gradient accumulation. The
// product over all data-parallel ranks, the global batch, never changes.
type batch struct {
	micro        int
	accumulation int // as the job spells it, in scope's counting; 1 where derived
	dataParallel int
	scope        string
}

// batchOf reads the batch of a plan; false where the micro batch is not known.
func batchOf(p Plan, j Job) (batch, bool) {
	micro, known := p.Number(MicroBatchSize)
	if !known || micro < 1 {
		return batch{}, false
	}
	b := batch{micro: micro, accumulation: 1, dataParallel: max(j.DataParallel, 1), scope: j.Knobs[GradientAccumulationSteps].Scope}
	if n, known := p.Number(GradientAccumulationSteps); known && n > 0 {
		b.accumulation = n
	}
	return b, true
}

// perRank is the number of samples that one data-parallel rank contributes to an
// optimizer step, and false where that is not a whole number.
func (b batch) perRank() (int, bool) {
	total := b.micro * b.accumulation
	if b.scope != ScopeGlobal {
		return total, true
	}
	return total / b.dataParallel, total%b.dataParallel == 0 && b.accumulation%b.dataParallel == 0
}

// global is the number of samples in one optimizer step; 0 where the job derives
// it by itself and the plan does not hold it.
func (b batch) global() int {
	switch b.scope {
	case ScopeGlobal:
		return b.micro * b.accumulation
	case ScopeDerived:
		return 0
	}
	return b.micro * b.accumulation * b.dataParallel
}

// Planned are settings that a process says of itself as a plan has them: a process counts
// its own accumulation, and a plan that of all ranks, where the job does. world is the number
// of ranks that the job's processes see.
func (j Job) Planned(said Plan, world int) Plan {
	n, whole := said.Number(GradientAccumulationSteps)
	if !whole || j.Knobs[GradientAccumulationSteps].Scope != ScopeGlobal {
		return said
	}
	return said.With(Plan{GradientAccumulationSteps: Number(n * max(j.seeing(world).DataParallel, 1))})
}

// seeing is the job with the ranks that its processes see, where it started them itself.
func (j Job) seeing(world int) Job {
	if world > j.Ranks && j.DataParallel == j.Ranks {
		j.DataParallel = world
	}
	return j
}

// GlobalBatch is the number of samples in one optimizer step of a plan, all ranks together;
// 0 where that is not known.
func (j Job) GlobalBatch(p Plan) int {
	b, known := batchOf(p, j)
	if !known {
		return 0
	}
	return b.global()
}

// Floored is the knob's own minimum of the micro batch where that is what keeps a plan's from
// being smaller.
func (j Job) Floored(p Plan) (floor int, stops bool) {
	b, known := batchOf(p, j)
	r := j.Knobs[MicroBatchSize]
	if !known || r.Absent != "" || r.Min < 2 {
		return 0, false
	}
	return r.Min, len(b.smaller(r.Min)) == 0 && len(b.smaller(1)) > 0
}

// mostSamples bounds the samples that are split up by trial division, some 2^20
// steps of it. No real batch comes near.
const mostSamples = 1 << 40

// vast reports whether a rank's samples are too many to split up. A product that
// would overflow is.
func (b batch) vast() bool { return b.micro > mostSamples/b.accumulation }

// smaller lists the batches with a smaller micro batch and the same global
// batch, the largest that is at most half first. Micro batches that do not
// divide the samples of a rank evenly are left out, never rounded: 6 × 1 becomes
// 3 × 2, and 7 × 1 becomes 1 × 7. Where no divisor is at most half but one lies
// between half and all, because floor forbids the smaller ones, that one is
// listed. A vast batch has none.
func (b batch) smaller(floor int) []batch {
	if b.vast() {
		return nil
	}
	total, whole := b.perRank()
	if !whole {
		return nil
	}
	var half, rest []batch
	for _, micro := range divisors(total) {
		if micro >= b.micro || micro < floor {
			continue
		}
		next := b
		next.micro = micro
		if b.scope != ScopeDerived {
			next.accumulation = b.micro * b.accumulation / micro
		}
		if 2*micro <= b.micro {
			half = append(half, next)
		} else {
			rest = append(rest, next)
		}
	}
	if len(half) > 0 {
		return half
	}
	return rest
}

// divisors lists the divisors of a positive number, the largest first, in as many
// steps as its square root.
func divisors(n int) []int {
	var large, small []int
	for d := 1; d <= n/d; d++ {
		if n%d != 0 {
			continue
		}
		large = append(large, n/d)
		if d != n/d {
			small = append(small, d)
		}
	}
	slices.Reverse(small)
	return append(large, small...)
}

// plan is the batch as changes to a plan.
func (b batch) plan() Plan {
	p := Plan{MicroBatchSize: Number(b.micro)}
	if b.scope != ScopeDerived {
		p[GradientAccumulationSteps] = Number(b.accumulation)
	}
	return p
}
