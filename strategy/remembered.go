package strategy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// neededOften is in how many runs a remembered change of numerics has to have been needed
// on a device, where nobody allowed it in words.
const neededOften = 2

// A Past is a plan that an earlier run of the job trained with.
type Past struct {
	Plan Plan
	// Needed is how many runs came to it by themselves.
	Needed int
	// Measured is what its processes measured, nil where they did not.
	Measured []memory.Measurement
}

// Admit says why a plan of the past is not one for this run; empty where it is.
func Admit(p Policy, j Job, inv Inventory, past Past) string {
	plan := past.Plan
	if err := plan.Validate(); err != nil {
		return err.Error()
	}
	if p.Mode == Off {
		return `recovery.mode is "off"`
	}
	changed := j.Written.Changed(plan)
	for _, k := range Knobs {
		if _, kept := plan[k]; !kept && j.Written[k] != "" {
			return fmt.Sprintf("it says nothing of the %s", k.Short())
		}
		pair, turned := changed[k]
		if !turned {
			continue
		}
		if r := j.Knobs[k]; r.Absent != "" {
			return fmt.Sprintf("the job cannot turn the %s: %s", k.Short(), r.Absent)
		} else if _, known := j.Knobs[k]; !known || !r.Allows(pair[1]) {
			return fmt.Sprintf("the job cannot set the %s to %s", k.Short(), pair[1])
		}
	}
	if _, reason := j.staged([]Plan{{Sharding: changed[Sharding][1]}}); reason != "" {
		return reason
	}
	if reason := keepsBatch(j, plan); reason != "" {
		return reason
	}
	if reason := forbidden(p, j, inv, changed, past.Needed); reason != "" {
		return reason
	}
	if reason := lacking(p, inv, changed); reason != "" {
		return reason
	}
	return past.crowded(j, inv)
}

// keepsBatch says that a plan trains with another global batch than the job as written.
func keepsBatch(j Job, plan Plan) string {
	now, known := batchOf(j.Written, j)
	then, also := batchOf(plan, j)
	switch {
	case !known && !also, now.scope == ScopeDerived:
		return ""
	case known != also:
		return "the global batch of the job as written is not known"
	case now.global() != then.global():
		return fmt.Sprintf("its global batch is %d, and that of the job as written %d", then.global(), now.global())
	}
	return ""
}

// forbidden says by which words the policy keeps a remembered change from being made.
func forbidden(p Policy, j Job, inv Inventory, changed Changes, needed int) string {
	s := &situation{policy: p, job: j, inventory: inv}
	before, changes := Plan{}, Plan{}
	for k, pair := range changed {
		before[k], changes[k] = pair[0], pair[1]
	}
	for i := range rungRows {
		row := &rungRows[i]
		if !row.leads(before, changes) {
			continue
		}
		if reason := cmp.Or(s.refused(row.rung, changes), inv.Missing[row.rung]); reason != "" {
			return reason
		}
	}
	for _, k := range []Knob{Precision, Optimizer, SequenceLength} {
		if pair, turned := changed[k]; turned && !p.NumericsSaid && needed < neededOften {
			return fmt.Sprintf("it changes the %s to %s, which one run needed so far: a second one has to, or recovery.numerics has to allow it in words", k.Short(), pair[1])
		}
	}
	return ""
}

// lacking says what a remembered plan needs and the machine does not have today.
func lacking(p Policy, inv Inventory, changed Changes) string {
	nvme := changed[OffloadOptimizer][1] == "nvme" || changed[OffloadParam][1] == "nvme"
	switch {
	case changed[Precision][1] == "bf16" && !inv.BF16:
		return "the device does not compute in bfloat16"
	case nvme && p.NVMePath == "":
		return "recovery.nvme_path is not set"
	}
	return ""
}

// What Adam keeps of each parameter in fp32 where it is offloaded, a master copy and two
// moments, and a parameter in 16 bits, in bytes (ZeRO-Infinity, arXiv:2104.07857, §3).
const (
	adamBytes  = 12
	shortBytes = 2
)

// crowded says why there is too little room on the host or on disk today for what a plan
// offloads; empty where there is enough, or nobody knows.
func (past Past) crowded(j Job, inv Inventory) string {
	local := int64(max(j.LocalRanks, 1))
	held, parameters := int64(0), int64(0)
	for _, m := range past.Measured {
		held = max(held, m.Host)
		if m.Model != nil {
			parameters = max(parameters, m.Model.Parameters)
		}
	}
	to := func(k Knob, where Value) bool { return past.Plan[k] == where }
	onHost, onDisk := false, int64(0)
	for k, bytes := range map[Knob]int64{OffloadOptimizer: adamBytes, OffloadParam: shortBytes, OffloadActivations: 0} {
		onHost = onHost || to(k, "cpu") || to(k, "nvme")
		if to(k, "nvme") {
			onDisk += bytes * parameters * local / int64(max(j.DataParallel, 1))
		}
	}
	switch {
	case onHost && inv.HostAvailable > 0 && held*local > inv.HostAvailable:
		return fmt.Sprintf("the ranks then held %s in host memory, and %s are left", GiB(held*local), GiB(inv.HostAvailable))
	case inv.NVMeFree > 0 && onDisk > inv.NVMeFree:
		return fmt.Sprintf("it takes %s to disk, and recovery.nvme_path has %s left", GiB(onDisk), GiB(inv.NVMeFree))
	}
	return ""
}

// rememberedFailed: attempt 0 ran with a plan that an earlier run trained with, and ended
// for a reason that is not memory and may be the plan's. The job as written has its turn
// then, once.
func (s *situation) rememberedFailed() bool {
	if s.job.Recalled == nil || len(s.history) != 1 || !maps.Equal(s.last.Plan, s.job.Recalled.Plan) {
		return false
	}
	untaken := s.last.Halted || s.diagnosis.Fatal && s.job.BatchBroken(s.last.Plan, s.last.Observed)
	other := s.diagnosis.Fatal && !s.recoverable() && !s.cause(cause.PortInUse, cause.GPUHardware, cause.Driver, cause.Preempted, cause.DiskFull)
	if !untaken && !other {
		return false
	}
	bound := s.policy.RestartFromZero
	return s.writtenFrom() != "" || bound <= 0 || s.last.Lasted() <= bound.Duration()
}

// writtenFrom is the checkpoint that the job as written can go on from after a remembered
// plan; empty for none.
func (s *situation) writtenFrom() string {
	if c := s.inventory.Checkpoint; c != "" && s.job.outlived(c, s.last.Plan, s.job.Written) == "" {
		return c
	}
	return ""
}

// asWritten relaunches the job as it is written.
func asWritten(s *situation) Decision {
	why := s.diagnosis.Sentence()
	if s.last.Halted {
		why = "stopped"
	}
	return Decision{
		Relaunch: true, Next: s.job.Written.With(nil), Changed: s.last.Plan.Changed(s.job.Written), Resume: s.writtenFrom(),
		Reason: fmt.Sprintf("attempt %d: %s%s, with the plan that was remembered → the job as written", s.last.N, why, s.lost()),
	}
}

// Priors are what earlier runs of the job measured, as far as it holds for the model that
// was seen in this one. What was measured with other code counts once the model has shown
// to be the same.
func (j Job) Priors(history []Attempt) []memory.Measurement {
	for _, a := range slices.Backward(history) {
		for _, m := range a.Measured {
			seen, known := m.Fingerprint()
			if !known {
				continue
			}
			other := func(m memory.Measurement) bool { f, told := m.Fingerprint(); return told && !seen.Same(f) }
			untold := func(m memory.Measurement) bool { _, told := m.Fingerprint(); return !told }
			unsure := slices.DeleteFunc(slices.Clone(j.Unsure), untold)
			return slices.DeleteFunc(slices.Concat(j.Remembered, unsure), other)
		}
	}
	return slices.Clone(j.Remembered)
}
