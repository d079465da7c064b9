package strategy

import (
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
	all       []Attempt // of the run, where history ends before its last attempt

	last      Attempt
	plan      Plan            // that the next one starts from: what the last attempt ran with
	learned   Plan            // of it what processes told of knobs that the job's plan has not
	inside    map[Knob]string // why a knob cannot be turned in the process
	diagnosis Diagnosis
	doubts    map[Knob]string // why a knob is left alone
	weighing  *weighing       // what predicts; nil where nothing does

	// scout finds the fastest plan that fits; nil: by what was measured.
	scout func(*situation, []Plan) (faster, bool)
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
	rungs, filter := s.route()
	failed := s.ranOut()
	riders, free := s.riders(filter)
	var found step
	for _, rung := range rungs {
		changes, skip := s.try(rung, filter, failed, free)
		if skip != nil {
			found.skipped = append(found.skipped, *skip)
			continue
		}
		found.rung, found.changes = rung, free.With(changes)
		found.riders = slices.DeleteFunc(riders, func(r Rung) bool { return r == rung })
		return found
	}
	// Nothing else is left: the free rungs by themselves.
	alone, _ := s.affordable([]Plan{{}}, free)
	if len(riders) > 0 && len(alone) > 0 && !hopeless(s.plan.With(free), failed) {
		found.rung, found.riders, found.changes = riders[0], riders[1:], free
		found.skipped = slices.DeleteFunc(found.skipped, func(k Skip) bool { return k.Rung == riders[0] })
	}
	return found
}

// route is the order of rungs for the last failure, with the filter of its phase.
// A CUDA rung never answers a host OOM, unless the job trains on the CPU: there
// host memory is what the model lives in.
func (s *situation) route() ([]Rung, phaseFilter) {
	filter := filterBy(s.diagnosis.Phase)
	if s.diagnosis.Phase == cause.Load && s.serves() {
		delete(filter, RungSequence)
	}
	onCPU := s.inventory.Accelerator == "cpu"
	device := s.deviceRungs()
	if s.diagnosis.Cause == cause.CUDAOOM {
		return device, filter
	}
	if onCPU && s.diagnosis.Device == "cpu" {
		return device, filter.onCPU()
	}
	if onCPU {
		return slices.Concat(HostRungs, device), filter.onCPU()
	}
	return HostRungs, phaseFilter{}
}

// deviceRungs is the ladder for device memory. A precision that the probe would put round
// the model comes after every plan of unchanged numerics without offload.
func (s *situation) deviceRungs() []Rung {
	if s.job.Knobs[Precision].By != ByHook {
		return DeviceRungs
	}
	rungs := slices.DeleteFunc(slices.Clone(DeviceRungs), func(r Rung) bool { return r == RungPrecision })
	return slices.Insert(rungs, slices.Index(rungs, RungShard)+1, RungPrecision)
}

// try asks one rung for a plan; the skip says why there is none.
func (s *situation) try(rung Rung, filter phaseFilter, failed []Plan, free Plan) (Plan, *Skip) {
	changes, skip := s.consider(rung, filter)
	if skip != nil {
		return nil, skip
	}
	if rung.row().free && !(rung == RungAllocator && s.diagnosis.Fragmented) {
		return nil, &Skip{Rung: rung, Reason: "free: it rides along with the rung that is taken"}
	}
	changes, lost := s.resumable(changes)
	if len(changes) == 0 {
		return nil, &Skip{Rung: rung, Reason: lost}
	}
	changes, tooLarge := s.fitting(changes, free)
	if len(changes) > 0 {
		changes, tooLarge = s.affordable(changes, free)
	}
	if len(changes) == 0 {
		return nil, &Skip{Rung: rung, Reason: tooLarge}
	}
	for _, c := range changes {
		if !hopeless(s.plan.With(free).With(c), failed) {
			return c, nil
		}
	}
	return nil, &Skip{Rung: rung, Reason: "every plan that it offers has run out of memory before"}
}

// resumable leaves out changes that this run's newest checkpoint would not
// outlive, and says why.
func (s *situation) resumable(changes []Plan) (left []Plan, lost string) {
	if s.inventory.Checkpoint == "" {
		return changes, ""
	}
	for _, c := range changes {
		reason := s.job.outlived(s.inventory.Checkpoint, s.plan, c)
		if reason == "" {
			left = append(left, c)
		} else if lost == "" {
			lost = reason
		}
	}
	return left, lost
}

// freeRows are the rungs that cost nothing, an allocator that fragments less and an attention
// kernel that keeps no scores: they are no attempt, unless the evidence says that one of them
// suffices.
func freeRows() []rungRow {
	return slices.DeleteFunc(slices.Clone(rungRows), func(r rungRow) bool { return !r.free })
}

// riders are the free rungs that the job can take, and their changes together.
func (s *situation) riders(filter phaseFilter) ([]Rung, Plan) {
	var riders []Rung
	free := Plan{}
	if s.diagnosis.Cause != cause.CUDAOOM {
		return nil, free
	}
	for _, row := range freeRows() {
		if changes, skip := s.consider(row.rung, filter); skip == nil {
			riders = append(riders, row.rung)
			free = free.With(changes[0])
		}
	}
	return riders, free
}
