package strategy

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A situation is what a walk looks at: the last attempt and everything that was
// known when it ended.
type situation struct {
	policy    Policy
	job       Job
	inventory Inventory
	history   []Attempt

	last      Attempt
	plan      Plan // that the next one starts from: what the last attempt ran with
	diagnosis Diagnosis
	doubts    map[Knob]string // why a knob is left alone
}

// A step is where a walk came to: the first rung with a plan that is not
// hopeless, and the rungs that it passed over on the way.
type step struct {
	rung    Rung // empty: nothing is left
	riders  []Rung
	changes Plan
	skipped []Skip
}

// walk takes the first rung that has something to offer. The free rungs ride
// along with it.
func (s *situation) walk() step {
	rungs, shut := s.route()
	failed := s.ranOut()
	riders, free := s.riders(shut)
	var found step
	for _, rung := range rungs {
		changes, skip := s.try(rung, shut, failed, free)
		if skip != nil {
			found.skipped = append(found.skipped, *skip)
			continue
		}
		found.rung, found.changes = rung, free.With(changes)
		found.riders = slices.DeleteFunc(riders, func(r Rung) bool { return r == rung })
		return found
	}
	// Nothing else is left: the free rungs by themselves.
	if len(riders) > 0 && !hopeless(s.plan.With(free), failed) {
		found.rung, found.riders, found.changes = riders[0], riders[1:], free
		found.skipped = slices.DeleteFunc(found.skipped, func(k Skip) bool { return k.Rung == riders[0] })
	}
	return found
}

// route is the order of rungs for the last failure, with those shut beforehand.
// A CUDA rung never answers a host OOM, unless the job trains on the CPU: there
// host memory is what the model lives in.
func (s *situation) route() ([]Rung, phaseFilter) {
	shut := filterBy(s.diagnosis.Phase)
	onCPU := s.inventory.Accelerator == "cpu"
	if s.diagnosis.Cause == cause.CUDAOOM {
		return DeviceRungs, shut
	}
	if onCPU && s.diagnosis.Device == "cpu" {
		return DeviceRungs, shut.shutOnCPU()
	}
	if onCPU {
		return slices.Concat(HostRungs, DeviceRungs), shut.shutOnCPU()
	}
	return HostRungs, phaseFilter{}
}

// try asks one rung for a plan; the skip says why there is none.
func (s *situation) try(rung Rung, shut phaseFilter, failed []Plan, free Plan) (Plan, *Skip) {
	if reason, isShut := shut[rung]; isShut {
		return nil, &Skip{Rung: rung, Reason: reason}
	}
	changes, reason := remedies[rung](s)
	if reason != "" {
		return nil, &Skip{Rung: rung, Reason: reason}
	}
	if changes, reason = s.trusted(changes); reason != "" {
		return nil, &Skip{Rung: rung, Reason: reason}
	}
	if part := s.inventory.Missing[rung]; part != "" {
		return nil, &Skip{Rung: rung, Reason: part}
	}
	if reason := s.refused(rung, changes...); reason != "" {
		return nil, &Skip{Rung: rung, Reason: reason, Refused: true}
	}
	if isFree(rung) && !(rung == RungAllocator && s.diagnosis.Fragmented) {
		return nil, &Skip{Rung: rung, Reason: "free: it rides along with the rung that is taken"}
	}
	changes, lost := s.resumable(changes)
	if len(changes) == 0 {
		return nil, &Skip{Rung: rung, Reason: lost}
	}
	for _, c := range changes {
		if !hopeless(s.plan.With(free).With(c), failed) {
			return c, nil
		}
	}
	return nil, &Skip{Rung: rung, Reason: "what it offers ran out of memory before"}
}

// trusted leaves out changes that need a knob which is left alone, and says why if
// none remains.
func (s *situation) trusted(changes []Plan) (left []Plan, reason string) {
	for _, c := range changes {
		doubt := ""
		for _, k := range Knobs {
			if _, turned := c[k]; turned && doubt == "" {
				doubt = s.doubts[k]
			}
		}
		if doubt == "" {
			left = append(left, c)
		} else if reason == "" {
			reason = doubt
		}
	}
	if len(left) > 0 {
		reason = ""
	}
	return left, reason
}

// resumable leaves out changes that this run's newest checkpoint would not
// outlive, and says why.
func (s *situation) resumable(changes []Plan) (left []Plan, lost string) {
	if s.inventory.Checkpoint == "" {
		return changes, ""
	}
	for _, c := range changes {
		reason := ""
		for _, k := range Knobs {
			if v, changed := c[k]; changed && !s.job.Knobs[k].Outlives(s.plan[k], v) {
				reason = fmt.Sprintf("the checkpoint %s does not survive %s %s→%s: %s", s.inventory.Checkpoint, k.Short(), s.plan[k], v, s.job.Knobs[k].Checkpoint.Reason)
			}
		}
		if reason == "" {
			left = append(left, c)
		} else if lost == "" {
			lost = reason
		}
	}
	return left, lost
}

// isFree: an allocator that fragments less and an attention kernel that keeps no
// scores cost nothing, so they are no attempt of their own, unless the evidence
// says that one of them suffices.
func isFree(r Rung) bool { return r == RungAllocator || r == RungAttention }

// riders are the free rungs that the job can take, and their changes together.
func (s *situation) riders(shut phaseFilter) ([]Rung, Plan) {
	var riders []Rung
	free := Plan{}
	if s.diagnosis.Cause != cause.CUDAOOM {
		return nil, free
	}
	for _, rung := range []Rung{RungAllocator, RungAttention} {
		if _, isShut := shut[rung]; isShut {
			continue
		}
		changes, reason := remedies[rung](s)
		if reason == "" && s.refused(rung, changes...) == "" && s.inventory.Missing[rung] == "" {
			riders = append(riders, rung)
			free = free.With(changes[0])
		}
	}
	return riders, free
}

// refused says by which words the policy keeps a rung from being taken.
func (s *situation) refused(rung Rung, changes ...Plan) string {
	if slices.Contains(s.policy.Never, string(rung)) {
		return fmt.Sprintf("recovery.never lists %q", rung)
	}
	for _, k := range rung.Turns() {
		changed := slices.ContainsFunc(changes, func(c Plan) bool { _, has := c[k]; return has })
		if changed && slices.Contains(s.policy.Never, string(k)) {
			return fmt.Sprintf("recovery.never lists %q", k)
		}
	}
	switch rung {
	case RungPrecision:
		if s.policy.Numerics == Preserve {
			return `recovery.numerics = "preserve" keeps the precision`
		}
	case RungOptimizer, RungSequence:
		if s.policy.Numerics != Any {
			return fmt.Sprintf("recovery.numerics = %q keeps the %s; \"any\" allows it", s.policy.Numerics, rung)
		}
	}
	return ""
}
