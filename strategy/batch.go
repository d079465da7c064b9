package strategy

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

// smaller lists the batches with a smaller micro batch and the same global
// batch, the largest that is at most half first. Micro batches that do not
// divide the samples of a rank evenly are left out, never rounded: 6 × 1 becomes
// 3 × 2, and 7 × 1 becomes 1 × 7. Where no divisor is at most half but one lies
// between half and all, because floor forbids the smaller ones, that one is
// listed.
func (b batch) smaller(floor int) []batch {
	total, whole := b.perRank()
	if !whole {
		return nil
	}
	floor = max(floor, 1)
	var half, rest []batch
	for micro := b.micro - 1; micro >= floor; micro-- {
		if total%micro != 0 {
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

// plan is the batch as changes to a plan.
func (b batch) plan() Plan {
	p := Plan{MicroBatchSize: Number(b.micro)}
	if b.scope != ScopeDerived {
		p[GradientAccumulationSteps] = Number(b.accumulation)
	}
	return p
}
