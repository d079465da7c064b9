package strategy

import (
	"fmt"
	"slices"
)

// offloadOptimizer moves the optimizer's states and gradients to host memory.
// ZeRO needs a stage to offload from: stage 2, which keeps the parameters on
// the device, unless the job shards already.
func offloadOptimizer(s *situation) ([]Plan, string) {
	if reason := s.cannot(OffloadOptimizer); reason != "" {
		return nil, reason
	}
	if s.plan[OffloadOptimizer] != "none" {
		return nil, fmt.Sprintf("optimizer offload is already %s", s.plan[OffloadOptimizer])
	}
	if !s.job.Knobs[OffloadOptimizer].Allows("cpu") {
		return nil, "the job cannot offload the optimizer to host memory"
	}
	if reason := s.hostTooSmall(); reason != "" {
		return nil, reason
	}
	return s.withStage(Plan{OffloadOptimizer: "cpu"}, "zero2", "zero3")
}

// offloadParam moves everything: ZeRO-3, with parameters and optimizer.
func offloadParam(s *situation) ([]Plan, string) {
	if reason := s.cannot(OffloadParam); reason != "" {
		return nil, reason
	}
	if s.plan[OffloadParam] != "none" {
		return nil, fmt.Sprintf("parameter offload is already %s", s.plan[OffloadParam])
	}
	if !s.job.Knobs[OffloadParam].Allows("cpu") {
		return nil, "the job cannot offload parameters to host memory"
	}
	if reason := s.hostTooSmall(); reason != "" {
		return nil, reason
	}
	changes := Plan{OffloadParam: "cpu"}
	if s.plan[OffloadOptimizer] == "none" && s.job.Knobs[OffloadOptimizer].Allows("cpu") {
		changes[OffloadOptimizer] = "cpu"
	}
	return s.withStage(changes, "zero3")
}

// offloadActivations keeps what the backward pass needs in host memory.
func offloadActivations(s *situation) ([]Plan, string) {
	changes, reason := stepRemedy(OffloadActivations)(s)
	if reason == "" {
		reason = s.hostTooSmall()
	}
	if reason != "" {
		return nil, reason
	}
	return changes, ""
}

// toNVMe takes to disk what is offloaded to host memory, or would be.
func toNVMe(s *situation) ([]Plan, string) {
	if s.policy.NVMePath == "" {
		return nil, "recovery.nvme_path is not set"
	}
	changes := Plan{}
	for _, k := range []Knob{OffloadOptimizer, OffloadParam} {
		if s.cannot(k) == "" && s.plan[k] != "nvme" && s.job.Knobs[k].Allows("nvme") {
			changes[k] = "nvme"
		}
	}
	if len(changes) == 0 {
		if reason := s.cannot(OffloadOptimizer); reason != "" {
			return nil, reason
		}
		return nil, "nothing more can be moved to NVMe"
	}
	if reason := s.diskTooSmall(); reason != "" {
		return nil, reason
	}
	return s.withStage(changes, "zero3")
}

// withStage adds to the changes the least of the stages, all of them enough for
// an offload, that the job's sharding does not have yet.
func (s *situation) withStage(changes Plan, enough ...Value) ([]Plan, string) {
	if !s.hasZeRO() {
		return []Plan{changes}, "" // the job's own switch for offload says nothing of stages
	}
	if slices.Contains(enough, s.plan[Sharding]) {
		return []Plan{changes}, ""
	}
	for _, stage := range enough {
		if s.job.Knobs[Sharding].Allows(stage) {
			return []Plan{changes.With(Plan{Sharding: stage})}, ""
		}
	}
	return nil, fmt.Sprintf("it needs sharding %s, which the job does not have", enough[0])
}

// hasZeRO reports whether the job's sharding is ZeRO's, which offloads from a stage.
func (s *situation) hasZeRO() bool {
	for _, stage := range []Value{"zero1", "zero2", "zero3"} {
		if s.plan[Sharding] == stage || slices.Contains(s.job.Knobs[Sharding].Values, stage) {
			return true
		}
	}
	return false
}

// hostTooSmall compares the host memory that is left with what offload can move there.
func (s *situation) hostTooSmall() string {
	return s.tooSmall("the host", s.inventory.HostAvailable)
}

// diskTooSmall compares the space below recovery.nvme_path with what offload can move there.
func (s *situation) diskTooSmall() string {
	return s.tooSmall("recovery.nvme_path", s.inventory.NVMeFree)
}

// tooSmall compares what is left somewhere, in bytes and 0 where that is not known,
// with what the ranks of one node hold in tensors: an upper bound of what offload
// can move.
func (s *situation) tooSmall(where string, left int64) string {
	if left == 0 || s.diagnosis.Allocated == nil {
		return ""
	}
	need := *s.diagnosis.Allocated * int64(max(s.job.LocalRanks, 1))
	if need <= left {
		return ""
	}
	return fmt.Sprintf("the ranks hold %s on their devices, and %s has %s left", GiB(need), where, GiB(left))
}

func fewerWorkers(s *situation) ([]Plan, string) {
	if reason := s.cannot(DataloaderWorkers); reason != "" {
		return nil, reason
	}
	n, whole := s.plan.Number(DataloaderWorkers)
	floor := s.job.Knobs[DataloaderWorkers].Min
	switch {
	case !whole:
		return nil, fmt.Sprintf("the current number of loader workers is %s", s.plan[DataloaderWorkers])
	case n == 0:
		return nil, "the job has no loader workers"
	case n <= floor:
		return nil, fmt.Sprintf("the loader workers are at their minimum of %d", floor)
	}
	var plans []Plan
	for n > floor {
		n = max(n/2, floor)
		plans = append(plans, Plan{DataloaderWorkers: Number(n)})
	}
	return plans, ""
}

// undoOffload takes the last offload back, or to NVMe where that is allowed.
func undoOffload(s *situation) ([]Plan, string) {
	var plans []Plan
	for _, k := range []Knob{OffloadParam, OffloadOptimizer} {
		if s.cannot(k) == "" && s.plan[k] == "cpu" {
			plans = append(plans, Plan{k: "none"})
			break
		}
	}
	if len(plans) == 0 {
		return nil, "nothing is offloaded to host memory"
	}
	if nvme, _ := toNVMe(s); s.refused(RungNVMe) == "" && s.inventory.Missing[RungNVMe] == "" {
		plans = append(plans, nvme...)
	}
	return plans, ""
}
