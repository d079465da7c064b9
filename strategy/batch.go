package strategy

import "slices"

// A batch is the micro batch size with the gradient accumulation. Their product over all
// data-parallel ranks, the global batch, never changes.
type batch struct {
	micro        int
	accumulation int // counted by scope; 1 if derived
	dataParallel int
	scope        string
}

// batchOf returns the batch of a plan; false if the micro batch is not known.
func batchOf(p Plan, j Job) (batch, bool) {
	micro, known := p.Number(MicroBatchSize)
	if !known || micro < 1 {
		return batch{}, false
	}
	b := batch{micro: micro, accumulation: 1, dataParallel: max(j.DataParallel, 1),
		scope: j.Knobs[GradientAccumulationSteps].Scope}
	if n, known := p.Number(GradientAccumulationSteps); known && n > 0 {
		b.accumulation = n
	}
	return b, true
}

// perRank is the number of samples of one data-parallel rank in an optimizer step; false if that
// is not a whole number.
func (b batch) perRank() (int, bool) {
	total := b.micro * b.accumulation
	if b.scope != ScopeGlobal {
		return total, true
	}
	return total / b.dataParallel, total%b.dataParallel == 0 && b.accumulation%b.dataParallel == 0
}

// global is the number of samples in one optimizer step; 0 if the job derives it and the plan
// does not have it.
func (b batch) global() int {
	switch b.scope {
	case ScopeGlobal:
		return b.micro * b.accumulation
	case ScopeDerived:
		return 0
	}
	return b.micro * b.accumulation * b.dataParallel
}

// plan returns the batch as changes to a plan.
func (b batch) plan() Plan {
	p := Plan{MicroBatchSize: Number(b.micro)}
	if b.scope != ScopeDerived {
		p[GradientAccumulationSteps] = Number(b.accumulation)
	}
	return p
}

// mostSamples bounds the samples that split divides: some 2^20 trial divisions.
const mostSamples = 1 << 40

// vast reports whether a rank has too many samples to split, or their number overflows.
func (b batch) vast() bool { return b.micro > mostSamples/b.accumulation }

// split lists the batches with the same global batch, the largest micro batch first. A micro
// batch has to divide a rank's samples evenly: 6 × 1 becomes 3 × 2, and 7 × 1 becomes 1 × 7.
func (b batch) split() []batch {
	if b.micro < 1 || b.vast() {
		return nil
	}
	total, whole := b.perRank()
	if !whole {
		return nil
	}
	var all []batch
	for _, micro := range divisors(total) {
		next := b
		if next.micro = micro; b.scope != ScopeDerived {
			next.accumulation = b.micro * b.accumulation / micro
		}
		all = append(all, next)
	}
	return all
}

// below lists the batches of split with a smaller micro batch of at least floor.
func (b batch) below(floor int) []batch {
	return slices.DeleteFunc(b.split(), func(next batch) bool { return next.micro >= b.micro || next.micro < floor })
}

// smaller lists the batches of below whose micro batch is at most half, or all of below if floor
// allows none of those.
func (b batch) smaller(floor int) []batch {
	all := b.below(floor)
	if at := slices.IndexFunc(all, func(next batch) bool { return 2*next.micro <= b.micro }); at >= 0 {
		return all[at:]
	}
	return all
}

// divisors lists the divisors of a positive number, the largest first.
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

// GlobalBatch is the number of samples in one optimizer step, over all ranks; 0: not known.
func (j Job) GlobalBatch(p Plan) int {
	b, known := batchOf(p, j)
	if !known {
		return 0
	}
	return b.global()
}

// Planned converts settings that a process reports to those of a plan. A process counts only its
// own accumulation; a plan may count that of all ranks. world is the number of ranks that the
// process sees.
func (j Job) Planned(reported Plan, world int) Plan {
	n, whole := reported.Number(GradientAccumulationSteps)
	if !whole || j.Knobs[GradientAccumulationSteps].Scope != ScopeGlobal {
		return reported
	}
	return reported.With(Plan{GradientAccumulationSteps: Number(n * max(j.seeing(world).DataParallel, 1))})
}

// seeing returns the job with the number of ranks that its processes see, if it starts them
// itself.
func (j Job) seeing(world int) Job {
	if world > j.Ranks && j.DataParallel == j.Ranks {
		j.DataParallel = world
	}
	return j
}

// Floored returns the minimum of the micro batch, and whether this minimum alone prevents a
// smaller micro batch.
func (j Job) Floored(p Plan) (floor int, stops bool) {
	b, known := batchOf(p, j)
	r := j.Knobs[MicroBatchSize]
	if !known || r.Absent != "" || r.Min < 2 {
		return 0, false
	}
	return r.Min, len(b.below(r.Min)) == 0 && len(b.below(1)) > 0
}
