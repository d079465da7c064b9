package strategy

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A ladderStep is the result of a walk through the order of remedies: the first remedy with a
// plan that is not hopeless, and the remedies that were skipped before it.
type ladderStep struct {
	remedy  Remedy // empty: no remedy is left
	riders  []Remedy
	changes Plan
	skipped []Skip
}

// walk takes the first remedy that offers a change, together with the free remedies.
func (s *situation) walk() ladderStep {
	remedies := s.route()
	failed := s.ranOut()
	riders, free := s.riders()
	var found ladderStep
	for _, remedy := range remedies {
		changes, skip := s.try(remedy, failed, free)
		if skip != nil {
			found.skipped = append(found.skipped, *skip)
			continue
		}
		found.remedy, found.changes = remedy, free.With(changes)
		found.riders = slices.DeleteFunc(riders, func(r Remedy) bool { return r == remedy })
		return found
	}
	// Only the free remedies are left.
	if len(riders) > 0 && s.unaffordable(free) == "" && s.excluded(free) == "" && !hopeless(s.plan.With(free), failed) {
		found.remedy, found.riders, found.changes = riders[0], riders[1:], free
		found.skipped = slices.DeleteFunc(found.skipped, func(k Skip) bool { return k.Remedy == riders[0] })
	}
	return found
}

// route lists the remedies for the last failure in their order. Remedies for device memory never
// apply if host memory ran out, unless the job trains on the CPU, with the model in host memory.
func (s *situation) route() []Remedy {
	device := s.deviceRemedies()
	if s.diagnosis.Cause == cause.CUDAOOM {
		return device
	}
	if s.onCPU = s.inventory.Accelerator == "cpu"; !s.onCPU {
		return HostRemedies
	}
	if s.diagnosis.Device == "cpu" {
		return device
	}
	return slices.Concat(HostRemedies, device)
}

// deviceRemedies lists the remedies for device memory in their order. gpurun's hook can put autocast
// round the model; that comes after every plan without offload that keeps the numerics.
func (s *situation) deviceRemedies() []Remedy {
	if s.job.Knobs[Precision].By != ByHook {
		return DeviceRemedies
	}
	remedies := slices.DeleteFunc(slices.Clone(DeviceRemedies), func(r Remedy) bool { return r == RemedyPrecision })
	return slices.Insert(remedies, slices.Index(remedies, RemedyShard)+1, RemedyPrecision)
}

// riders lists the free remedies that the job can take, and all their changes together.
func (s *situation) riders() (riders []Remedy, free Plan) {
	free = Plan{}
	if s.diagnosis.Cause != cause.CUDAOOM {
		return nil, free
	}
	for _, row := range remedyRows {
		if !row.free {
			continue
		}
		if changes, skip := s.consider(row.remedy); skip == nil {
			riders = append(riders, row.remedy)
			free = free.With(changes[0])
		}
	}
	return riders, free
}

// try returns the change that a remedy offers, or the reason why there is none.
func (s *situation) try(remedy Remedy, failed []Plan, free Plan) (Plan, *Skip) {
	changes, skip := s.consider(remedy)
	if skip != nil {
		return nil, skip
	}
	c := considered{changes: changes, skip: Skip{Remedy: remedy}}
	if remedy.row().free && !(remedy == RemedyAllocator && s.diagnosis.Fragmented) {
		c.check(SkipFree, "free: it is applied together with the remedy that is taken")
		return nil, &c.skip
	}
	tried := func(change Plan) string {
		if hopeless(s.plan.With(free).With(change), failed) {
			return "every plan that it offers has run out of memory before"
		}
		return ""
	}
	switch {
	case c.keep(SkipCheckpoint, s.unresumable),
		c.reduce(SkipRequest, func(changes []Plan) ([]Plan, string) { return s.fitting(changes, free) }),
		c.keep(SkipTooLarge, func(change Plan) string { return s.unaffordable(free.With(change)) }),
		c.keep(SkipPredicted, func(change Plan) string { return s.excluded(free.With(change)) }),
		c.keep(SkipTried, tried):
		return nil, &c.skip
	}
	return c.changes[0], nil
}

// consider lists the possible changes of a remedy to the plan, the gentlest change first, or
// returns why it is skipped. The reasons are checked in this order: the phase, the job, a missing
// part, the policy.
func (s *situation) consider(remedy Remedy) (changes []Plan, skip *Skip) {
	row, c := remedy.row(), considered{skip: Skip{Remedy: remedy}}
	switch {
	case c.check(SkipPhase, s.idle(row)),
		len(row.turns) > 0 && !row.anyKnob && c.check(SkipSetting, s.cannot(row.turns[0])),
		c.reduce(SkipValue, func([]Plan) ([]Plan, string) { return row.changes(s) }),
		c.keep(SkipPipeline, s.unstaged),
		c.keep(SkipDoubted, s.doubted),
		c.keep(SkipHostMemory, s.hostTooSmall),
		c.keep(SkipDisk, s.diskTooSmall),
		c.check(SkipMissing, s.inventory.Missing[remedy]),
		c.check(SkipPolicy, s.refused(remedy, c.changes...)):
		c.skip.Refused = c.skip.Code == SkipPolicy
		return nil, &c.skip
	}
	return c.changes, nil
}

// A considered has the changes of a remedy that are left after some checks, or the reason why none is.
type considered struct {
	changes []Plan
	skip    Skip
}

// check notes a reason, if there is one, and reports whether there is.
func (c *considered) check(code SkipCode, reason string) bool {
	if reason != "" {
		c.skip.Code, c.skip.Reason = code, reason
	}
	return reason != ""
}

// reduce is check for a function that returns the changes that are left.
func (c *considered) reduce(code SkipCode, left func([]Plan) ([]Plan, string)) bool {
	var reason string
	c.changes, reason = left(c.changes)
	return c.check(code, reason)
}

// keep is check for an objection to each change.
func (c *considered) keep(code SkipCode, objection func(Plan) string) bool {
	return c.reduce(code, func(changes []Plan) ([]Plan, string) { return keep(changes, objection) })
}

// idle returns why a remedy cannot help in the phase in which memory ran out, or on the CPU.
func (s *situation) idle(row *remedyRow) string {
	if s.onCPU && !row.host && !row.onCPU {
		return "the job trains on the CPU"
	}
	if row.remedy == RemedySequence && s.diagnosis.Phase == cause.Load && s.serves() || row.remedy == RemedyMicroBatch &&
		s.diagnosis.Phase == cause.Rollout && s.serves() {
		return ""
	}
	return row.idle[s.diagnosis.Phase]
}

// serves reports whether the job is an inference server: it has no training batch, and while it
// loads it reserves memory for requests of full length.
func (s *situation) serves() bool {
	micro, known := s.job.Knobs[MicroBatchSize]
	return known && micro.Absent != "" && s.job.Knobs[GradientAccumulationSteps].Absent != ""
}

// keep returns the changes without an objection, or the first objection if none is left.
func keep(changes []Plan, objection func(Plan) string) (left []Plan, reason string) {
	for _, c := range changes {
		if why := objection(c); why == "" {
			left = append(left, c)
		} else if reason == "" {
			reason = why
		}
	}
	if len(left) > 0 {
		reason = ""
	}
	return left, reason
}

// unstaged returns why DeepSpeed's pipeline, as the process reports it, refuses a change; empty if it does not.
func (s *situation) unstaged(change Plan) string {
	if change[Sharding] == "zero2" || change[Sharding] == "zero3" {
		return s.inside[Sharding]
	}
	return ""
}

// doubted returns why a knob of a change must not be changed; empty if all may be.
func (s *situation) doubted(change Plan) string {
	for _, k := range Knobs {
		if _, turned := change[k]; turned && s.doubts[k] != "" {
			return s.doubts[k]
		}
	}
	return ""
}

// unresumable returns why this run's newest checkpoint cannot be read after a change.
func (s *situation) unresumable(change Plan) string {
	if s.inventory.Checkpoint == "" {
		return ""
	}
	return s.job.unreadable(s.inventory.Checkpoint, s.plan, change)
}

// unaffordable returns why a change cannot fit: weights, gradients and optimizer state alone need
// more memory than there is.
func (s *situation) unaffordable(change Plan) string {
	if s.weighing == nil {
		return ""
	}
	plan := s.weighing.memory(s.plan.With(change))
	if held, room := s.weighing.fit.Held(plan).Sum(), s.weighing.fit.Room(plan); held > room && room != 0 {
		return fmt.Sprintf("weights, gradients and optimizer state alone need %s, and there are %s", GiB(held), GiB(room))
	}
	return ""
}

// refused returns the part of the policy that forbids a remedy with some changes.
func (s *situation) refused(remedy Remedy, changes ...Plan) string {
	if slices.Contains(s.policy.Never, string(remedy)) {
		return fmt.Sprintf("recovery.never lists %q", remedy)
	}
	for _, k := range remedy.row().turns {
		changed := slices.ContainsFunc(changes, func(c Plan) bool { _, has := c[k]; return has })
		if changed && slices.Contains(s.policy.Never, string(k)) {
			return fmt.Sprintf("recovery.never lists %q", k)
		}
	}
	row := remedy.row()
	switch p := s.policy; {
	case row.numerics == Any && p.Numerics != Any:
		return fmt.Sprintf("recovery.numerics = %q keeps the %s; \"any\" allows it", p.Numerics, row.barred)
	case row.numerics != "" && p.Numerics == Preserve:
		return fmt.Sprintf("recovery.numerics = %q keeps the %s", p.Numerics, row.barred)
	case remedy == RemedyPrecision && s.job.Knobs[Precision].By == ByHook && !p.NumericsSaid:
		return `gpurun changes no setting of the job for it, and puts autocast around the model only with --numerics mixed-precision, or recovery.numerics in a train.toml`
	}
	return ""
}

// ranOut lists the plans of the history that ran out of memory, with the values that the job
// really used. Remedies that did not suffice in place would not as settings of the same plan either.
func (s *situation) ranOut() []Plan {
	var plans []Plan
	for _, a := range s.history {
		if !a.Diagnosis.OutOfMemory() {
			continue
		}
		same := []Plan{s.ran(a)}
		for _, turned := range a.insufficient() {
			for _, plan := range same {
				same = append(same, plan.With(turned))
			}
		}
		plans = append(plans, same...)
	}
	return plans
}

// hopeless reports whether a plan needs at least the memory of one that ran out of memory: it is
// that plan, or differs from it only by a larger micro batch, less checkpointing or fewer parts of
// the forward. Nothing else is pruned because memory is not monotone across modes: autocast adds
// copies of the weights, accumulation keeps gradients alive, ZeRO-3 gathers parameters.
func hopeless(candidate Plan, failed []Plan) bool {
	return slices.ContainsFunc(failed, func(f Plan) bool { return needsNoLess(candidate, f) })
}

func needsNoLess(candidate, failed Plan) bool {
	for _, k := range Knobs {
		a, b := candidate[k], failed[k]
		if a == b || k == GradientAccumulationSteps || a == "" || b == "" {
			continue // an unknown value is not a difference
		}
		switch k {
		case MicroBatchSize:
			x, known := a.Number()
			y, also := b.Number()
			if !known || !also || x < y {
				return false
			}
		case ActivationCheckpointing, ForwardParts:
			if slices.Index(k.words(), a) > slices.Index(k.words(), b) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// A request is the allocation on which an attempt failed, if it alone was larger than all memory.
type request struct {
	bytes int64
	room  int64 // of the device, or the rank's limit, in bytes
	knob  Knob  // the batch for which it was made
	batch int   // its size
}

// request returns the last attempt's; false if it is not known, or was not too large.
func (s *situation) request() (request, bool) {
	d := s.diagnosis
	r := request{knob: MicroBatchSize}
	for _, limit := range []*int64{d.Capacity, d.Allowed, &s.job.Ceiling} {
		if limit != nil && *limit > 0 && (r.room == 0 || *limit < r.room) {
			r.room = *limit
		}
	}
	switch d.Phase {
	case cause.Eval:
		r.knob = EvalBatchSize
	case cause.Rollout:
		r.knob = RolloutBatchSize
	}
	batch, known := s.job.used(s.last).Number(r.knob)
	if d.Requested == nil || !known || batch < 1 || r.room == 0 || *d.Requested <= r.room {
		return request{}, false
	}
	r.bytes, r.batch = *d.Requested, batch
	return r, true
}

// least is the smallest size of the request with a smaller batch: a tensor has a part that does
// not depend on the batch and one that grows with it.
func (r request) least(batch int) float64 {
	return float64(r.bytes) * float64(batch) / float64(r.batch)
}

// fitting omits the batches with which the request of the last attempt would still be too large,
// and returns the reason if none remains. If free replaces an attention kernel that stores the
// scores, the request may have been for the scores. A tensor that compares all samples of a batch
// with each other, as in a contrastive loss, shrinks with the square of the batch: the smallest
// batch stays if that suffices.
func (s *situation) fitting(changes []Plan, free Plan) (left []Plan, reason string) {
	r, known := s.request()
	if _, otherKernel := free[Attention]; !known || otherKernel {
		return changes, ""
	}
	smallest := 0
	for _, c := range changes {
		batch, turned := c.Number(r.knob)
		if !turned || r.least(batch) <= float64(r.room) {
			left = append(left, c)
		} else if smallest == 0 || batch < smallest {
			smallest = batch
		}
	}
	if len(left) > 0 {
		return left, ""
	}
	if squared := r.least(smallest) * float64(smallest) / float64(r.batch); squared <= float64(r.room) {
		return slices.DeleteFunc(slices.Clone(changes), func(c Plan) bool {
			n, _ := c.Number(r.knob)
			return n != smallest
		}), ""
	}
	return nil, fmt.Sprintf("one request of %s was made with %s %d, and even with %d it would be more than %s",
		GiB(r.bytes), r.knob.Short(), r.batch, smallest, GiB(r.room))
}
