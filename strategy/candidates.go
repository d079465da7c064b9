package strategy

import (
	"maps"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// mostCandidates bounds the plans that are weighed; a job with every knob has some
// thousands.
const mostCandidates = 1 << 14

// candidates are all plans that could come next, from the job as it is written on: what
// job, machine and policy allow, with the free rungs taken, less what has run out of
// memory before or would have to. The skips are the rungs that none of them takes.
func (s *situation) candidates() ([]Plan, []Skip) {
	origin := s.origin()
	free := s.freed(origin)
	look := *s
	look.plan = origin
	look.diagnosis.Phase = cause.NoPhase // a plan is weighed at all instants, not at one
	filter := phaseFilter{}
	if s.inventory.Accelerator == "cpu" {
		filter = filter.onCPU()
	}
	plans, skips := look.products(filter)
	for i, p := range plans {
		plans[i] = p.With(free)
	}
	return s.possible(plans, free), skips
}

// freed are the changes of the free rungs: those that were taken, and those that can be;
// and what was taken for the host or for an evaluation, which no candidate is weighed for.
func (s *situation) freed(origin Plan) Plan {
	free := Plan{}
	for _, k := range []Knob{EvalBatchSize, DataloaderWorkers, PinMemory} {
		if saves(k, origin[k], s.plan[k]) && s.doubts[k] == "" {
			free[k] = s.plan[k]
		}
	}
	for _, row := range freeRows() {
		for _, k := range row.turns {
			if saves(k, origin[k], s.plan[k]) && s.doubts[k] == "" {
				free[k] = s.plan[k]
			}
		}
	}
	if s.diagnosis.Cause != cause.CUDAOOM {
		return free
	}
	_, more := s.riders(phaseFilter{})
	return free.With(more)
}

// origin is the job as it is written, with what its processes told of it.
func (s *situation) origin() Plan {
	origin := s.learned.With(s.job.base(s.history[0]))
	for k, v := range s.job.Written {
		if s.doubts[k] == "" {
			origin[k] = v
		}
	}
	if s.job.Written[GradientAccumulationSteps] == "" {
		s.accumulate(origin)
	}
	return origin
}

// accumulate sets the accumulation of a plan where only the job's processes tell of it:
// what they told beside another micro batch is no word on this one. It is left out where
// no attempt says what keeps the global batch.
func (s *situation) accumulate(plan Plan) {
	micro, known := plan.Number(MicroBatchSize)
	delete(plan, GradientAccumulationSteps)
	for _, a := range slices.Backward(s.history) {
		ran := s.job.used(a)
		then, also := ran.Number(MicroBatchSize)
		n, told := ran.Number(GradientAccumulationSteps)
		if !known || !also || !told || micro < 1 || then < 1 || n < 1 || then > mostSamples/n {
			continue
		}
		if then*n%micro == 0 {
			plan[GradientAccumulationSteps] = Number(then * n / micro)
		}
		return
	}
}

// products are the plans that the rungs make of one, in all combinations: what a later rung
// of the ladder does starts from each plan of those before.
func (s *situation) products(filter phaseFilter) (plans []Plan, skips []Skip) {
	plans = []Plan{s.plan}
	look := *s
	for _, row := range rungRows {
		if row.host || row.free || len(row.turns) == 0 {
			continue
		}
		var why *Skip
		taken := false
		for _, p := range slices.Clone(plans) {
			look.plan = p
			changes, skip := look.consider(row.rung, filter)
			if skip != nil {
				why = skip
				continue
			}
			taken = true
			if row.plans != nil {
				changes = row.plans(&look)
			}
			for _, c := range changes {
				plans = append(plans, p.With(c))
			}
		}
		if !taken && why != nil {
			skips = append(skips, *why)
		}
		plans = plans[:min(len(plans), mostCandidates)]
	}
	return plans, skips
}

// divided are all smaller micro batches that keep the global batch whole.
func (s *situation) divided() []Plan {
	now, known := batchOf(s.plan, s.job)
	total, whole := now.perRank()
	if !known || !whole || now.vast() {
		return nil
	}
	floor, limit := max(s.job.Knobs[MicroBatchSize].Min, 1), s.job.Knobs[GradientAccumulationSteps].Max
	var plans []Plan
	for _, micro := range divisors(total) {
		next := now
		next.micro = micro
		if now.scope != ScopeDerived {
			next.accumulation = now.micro * now.accumulation / micro
		}
		if micro < now.micro && micro >= floor && (limit == 0 || next.accumulation <= limit) {
			plans = append(plans, next.plan())
		}
	}
	return plans
}

// possible leaves out plans that ran out of memory or would have to, by the single request
// that failed, and those that this run's checkpoint would not outlive.
func (s *situation) possible(plans []Plan, free Plan) []Plan {
	failed := s.ranOut()
	plans = slices.DeleteFunc(plans, func(p Plan) bool {
		return maps.Equal(p, s.plan) || hopeless(p, failed) || s.undone(p) || s.misremembered(p)
	})
	plans, _ = s.resumable(plans)
	plans, _ = s.fitting(plans, free)
	return plans
}

// misremembered reports whether a plan is the remembered one that attempt 0 failed with, of
// something else than memory.
func (s *situation) misremembered(p Plan) bool {
	first := s.history[0]
	return len(s.history) > 1 && s.job.Recalled != nil && maps.Equal(first.Plan, s.job.Recalled.Plan) &&
		first.Diagnosis.Fatal && !first.Diagnosis.OutOfMemory() && len(s.learned.With(s.job.used(first)).Changed(p)) == 0
}

// undone reports whether a plan takes back to the host what was taken off it, because the
// host ran out of memory.
func (s *situation) undone(p Plan) bool {
	for i, a := range s.history {
		for _, k := range []Knob{OffloadOptimizer, OffloadParam} {
			if a.Rung == RungUndoOffload && i > 0 && s.history[i-1].Plan[k] == "cpu" && a.Plan[k] != "cpu" && p[k] == "cpu" {
				return true
			}
		}
	}
	return false
}

// A group is what is tried before what: a plan of a later one is not chosen while one of
// an earlier one fits. Each place for what is offloaded has the three classes of training in
// it: exact, equal on average, and another precision that the policy allows in words. One
// that it only does not forbid comes after all that keep the precision.
const (
	groupPlain   = 0 // nothing offloaded
	groupHost    = 3 // offload to host memory
	groupNVMe    = 6
	groupUnasked = 9  // another precision that nobody asked for, with each of those places
	groupAllowed = 12 // another optimizer, or shorter sequences
)

// group is a plan's, beside the job as it is written.
func (s *situation) group(p, origin Plan, classes *classifier) int {
	g := groupPlain
	for _, rung := range needs(origin, p) {
		g = max(g, rung.row().group)
	}
	if g == groupAllowed {
		return g
	}
	class, _ := classes.class(p)
	switch {
	case p[Precision] != origin[Precision] && !s.policy.NumericsSaid && s.policy.Prefer != Tree:
		return groupUnasked + g/groupHost
	case p[Precision] != origin[Precision]:
		g += 2
	case class == Average && s.policy.ExactFirst():
		g++
	}
	return g
}

// saves reports whether a knob goes to a value that takes less memory.
func saves(k Knob, from, to Value) bool {
	if from == to || to == "" {
		return false
	}
	if k.Whole() {
		a, known := from.Number()
		b, also := to.Number()
		return !known || also && b < a
	}
	words := k.words()
	return len(words) == 0 || slices.Index(words, to) > slices.Index(words, from)
}

// order is a plan's place in the tree: by its last rung, then by how many it takes, then
// by the larger micro batch.
func order(p, origin Plan) int {
	rungs := needs(origin, p)
	last, micro := 0, 1
	if len(rungs) > 0 {
		last = slices.Index(DeviceRungs, rungs[len(rungs)-1]) + 1
	}
	if n, known := p.Number(MicroBatchSize); known {
		micro = min(max(n, 1), 1<<20)
	}
	return (last<<8+len(rungs))<<20 + 1<<20 - micro
}
