package strategy

import (
	"maps"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// mostCandidates bounds the plans that are weighed; a job with every knob has some thousands.
const mostCandidates = 1 << 14

// candidates lists all plans that could come next. They start from the job as it is written,
// include the free remedies, and are allowed by job, machine and policy. Plans that ran out of
// memory, or certainly would, are omitted. The skips are the remedies that no plan takes.
func (s *situation) candidates() ([]Plan, []Skip) {
	origin := s.origin()
	look := *s
	look.diagnosis.Phase = cause.NoPhase // a plan is weighed for all phases
	free := look.freed(origin)
	look.plan, look.onCPU = origin, s.inventory.Accelerator == "cpu"
	plans, skips := look.products()
	for i, p := range plans {
		plans[i] = p.With(free)
	}
	return s.possible(plans, free), skips
}

// freed returns the changes that every candidate has: those of the free remedies, taken or
// possible, and earlier changes for the host or for an evaluation.
func (s *situation) freed(origin Plan) Plan {
	free := Plan{}
	for _, k := range append(freeKnobs(), EvalBatchSize, RolloutBatchSize, RolloutMemory, RolloutSleep, DataloaderWorkers,
		PinMemory) {
		if saves(k, origin[k], s.plan[k]) && s.doubts[k] == "" {
			free[k] = s.plan[k]
		}
	}
	_, more := s.riders()
	return free.With(more)
}

// freeKnobs are the knobs that remedies turn which cost nothing.
func freeKnobs() (knobs []Knob) {
	for _, row := range remedyRows {
		if row.free {
			knobs = append(knobs, row.turns...)
		}
	}
	return knobs
}

// origin returns the job as it is written, with the values that its processes reported where gpurun had not
// changed them.
func (s *situation) origin() Plan {
	origin := s.learned.With(s.unplanned()).With(s.job.base(s.history[0]))
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

// accumulate sets the accumulation of a plan if only the job's processes report it. A report for
// another micro batch is scaled. Without a report that keeps the global batch, the accumulation
// stays unknown.
func (s *situation) accumulate(plan Plan) {
	micro, known := plan.Number(MicroBatchSize)
	delete(plan, GradientAccumulationSteps)
	for _, a := range slices.Backward(s.history) {
		used := s.job.used(a)
		then, also := used.Number(MicroBatchSize)
		n, reported := used.Number(GradientAccumulationSteps)
		if !known || !also || !reported || micro < 1 || then < 1 || n < 1 || then > mostSamples/n {
			continue
		}
		if then*n%micro == 0 {
			plan[GradientAccumulationSteps] = Number(then * n / micro)
		}
		return
	}
}

// products lists the plans that the remedies make of one, in all combinations: each remedy starts
// from each plan of the remedies before it.
func (s *situation) products() (plans []Plan, skips []Skip) {
	plans = []Plan{s.plan}
	look := *s
	for _, row := range remedyRows {
		if row.host || row.free || len(row.turns) == 0 {
			continue
		}
		var why *Skip
		taken := false
		for _, p := range slices.Clone(plans) {
			look.plan = p
			changes, skip := look.consider(row.remedy)
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

// possible omits plans that ran out of memory or certainly would, and plans that cannot resume
// from this run's checkpoint.
func (s *situation) possible(plans []Plan, free Plan) []Plan {
	failed := s.ranOut()
	plans = slices.DeleteFunc(plans, func(p Plan) bool {
		return maps.Equal(p, s.plan) || hopeless(p, failed) || s.undone(p) || s.misremembered(p) || s.unresumable(p) != ""
	})
	plans, _ = s.fitting(plans, free)
	return plans
}

// misremembered reports whether a plan is the remembered one, and attempt 0 failed with it for
// another reason than memory.
func (s *situation) misremembered(p Plan) bool {
	first := s.history[0]
	return len(s.history) > 1 && s.job.Recalled != nil && maps.Equal(first.Plan, s.job.Recalled.Plan) &&
		first.Diagnosis.Fatal && !first.Diagnosis.OutOfMemory() && len(s.ran(first).Changed(p)) == 0
}

// undone reports whether a plan moves something back to the host that was taken off it because
// the host ran out of memory.
func (s *situation) undone(p Plan) bool {
	for i, a := range s.history {
		for _, k := range []Knob{OffloadOptimizer, OffloadParam} {
			if a.Remedy == RemedyUndoOffload && i > 0 && s.history[i-1].Plan[k] == "cpu" && a.Plan[k] != "cpu" && p[k] == "cpu" {
				return true
			}
		}
	}
	return false
}

// The groups of plans. A plan of a later group is not chosen while one of an earlier group fits.
// For each place to offload to there are three classes of training: exact, equal on average, and
// another precision that the policy explicitly allows.
const (
	groupPlain   = 0 // nothing offloaded
	groupHost    = 3 // offload to host memory
	groupNVMe    = 6
	groupUnasked = 9  // another precision that the policy permits without naming it, for each place
	groupAllowed = 12 // another optimizer, or shorter sequences
)

// group returns the group of a plan, compared with the job as it is written.
func (s *situation) group(p, origin Plan, classes *classifier) int {
	g := groupPlain
	for _, remedy := range needs(origin, p) {
		g = max(g, remedy.row().group)
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

// saves reports whether the new value of a knob needs less memory than the old one.
func saves(k Knob, from, to Value) bool {
	if from == to || to == "" {
		return false
	}
	if k.Whole() {
		a, known := from.Number()
		b, also := to.Number()
		return !known || also && b < a
	}
	if k.Share() {
		a, known := from.Share()
		b, also := to.Share()
		return !known || also && b < a
	}
	words := k.words()
	return len(words) == 0 || slices.Index(words, to) > slices.Index(words, from)
}

// order is the position of a plan in the order of remedies: by its last remedy, then by their
// number, then by the larger micro batch.
func order(p, origin Plan) int {
	remedies := needs(origin, p)
	last, micro := 0, 1
	if len(remedies) > 0 {
		last = slices.Index(DeviceRemedies, remedies[len(remedies)-1]) + 1
	}
	if n, known := p.Number(MicroBatchSize); known {
		micro = min(max(n, 1), 1<<20)
	}
	return (last<<8+len(remedies))<<20 + 1<<20 - micro
}
