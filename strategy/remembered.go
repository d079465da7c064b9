package strategy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// neededOften is the number of runs on a device that must have needed a change of numerics before
// it is used from memory, unless the policy allows it explicitly.
const neededOften = 2

// A Past is a plan with which an earlier run of the job trained.
type Past struct {
	Plan     Plan
	By       Arguments            // by which it changed likely knobs
	Needed   int                  // number of runs that reached it without remembering it
	Measured []memory.Measurement // by its processes
}

// Admit returns why a remembered plan must not be used in this run; empty if it may be.
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
			return fmt.Sprintf("it does not have the %s", k.Short())
		}
		pair, turned := changed[k]
		if !turned {
			continue
		}
		if r, known := j.Knobs[k]; r.Absent != "" {
			return fmt.Sprintf("the job cannot change the %s: %s", k.Short(), r.Absent)
		} else if !known || !r.Allows(pair[1]) {
			return fmt.Sprintf("the job cannot set the %s to %s", k.Short(), pair[1])
		} else if by := past.By[k]; len(r.Likely) > 0 && r.By != ByHook &&
			(by.Times < 0 || !slices.ContainsFunc(r.Likely, func(l Likely) bool { return l.Name == by.Name })) {
			return fmt.Sprintf("the job has no argument that changed the %s", k.Short())
		}
	}
	return cmp.Or(keepsBatch(j, plan), forbidden(p, j, inv, changed, past.Needed), lacking(p, inv, changed),
		past.crowded(j, inv))
}

// keepsBatch returns how a plan's global batch differs from that of the job as written; empty if
// it does not.
func keepsBatch(j Job, plan Plan) string {
	now, known := batchOf(j.Written, j)
	then, also := batchOf(plan, j)
	switch {
	case !known && j.Unproven(plan):
		return "" // it was kept when the processes had reported that of the job as written, under the same conditions
	case !known && !also, now.scope == ScopeDerived:
		return ""
	case known != also:
		return "the global batch of the job as written is not known"
	case now.global() != then.global():
		return fmt.Sprintf("its global batch is %d, and that of the job as written %d", then.global(), now.global())
	}
	return ""
}

// forbidden returns the part of the policy that forbids a remembered change.
func forbidden(p Policy, j Job, inv Inventory, changed Changes, needed int) string {
	s := &situation{policy: p, job: j, inventory: inv}
	before, changes := Plan{}, changed.values()
	for k, pair := range changed {
		before[k] = pair[0]
	}
	for i := range remedyRows {
		row := &remedyRows[i]
		if !row.leads(before, changes) {
			continue
		}
		if reason := cmp.Or(s.refused(row.remedy, changes), inv.Missing[row.remedy]); reason != "" {
			return reason
		}
	}
	for _, k := range []Knob{Precision, Optimizer, SequenceLength} {
		if pair, turned := changed[k]; turned && !p.NumericsSaid && needed < neededOften {
			return fmt.Sprintf("it changes the %s to %s, which only one run has needed so far: a second run must need it, or recovery.numerics must allow it", k.Short(), pair[1])
		}
	}
	return ""
}

// lacking returns what a remembered plan needs and the machine does not have.
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

// Bytes of each parameter that Adam keeps in fp32 when it is offloaded, a master copy and two
// moments, and bytes of a parameter in 16 bits (ZeRO-Infinity, arXiv:2104.07857, §3).
const (
	adamBytes  = 12
	shortBytes = 2
)

// crowded returns that the host or the disk has too little free space today for what a plan
// offloads; empty if there is enough, or the need is not known.
func (past Past) crowded(j Job, inv Inventory) string {
	local := int64(max(j.LocalRanks, 1))
	held, parameters := int64(0), int64(0)
	for _, m := range past.Measured {
		held = max(held, m.Host)
		if m.Model != nil {
			parameters = max(parameters, m.Model.Parameters)
		}
	}
	onHost, onDisk := false, int64(0)
	for k, bytes := range map[Knob]int64{OffloadOptimizer: adamBytes, OffloadParam: shortBytes, OffloadActivations: 0} {
		onHost = onHost || past.Plan[k] == "cpu" || past.Plan[k] == "nvme"
		if past.Plan[k] == "nvme" {
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

// rememberedFailed reports whether attempt 0 ran with a remembered plan and failed for a reason
// that is not memory and may be the plan's. Then the job as written is tried, once.
func (s *situation) rememberedFailed() bool {
	if s.job.Recalled == nil || len(s.history) != 1 || !maps.Equal(s.last.Plan, s.job.Recalled.Plan) {
		return false
	}
	other := s.diagnosis.Fatal && !s.recoverable() &&
		!s.cause(cause.PortInUse, cause.GPUHardware, cause.Driver, cause.Preempted, cause.DiskFull)
	if !other && !s.batchNotTaken() {
		return false
	}
	bound := s.policy.RestartFromZero
	return s.writtenFrom() != "" || bound <= 0 || s.last.Lasted() <= bound.Duration()
}

// writtenFrom is the checkpoint from which the job as written can resume after a remembered plan;
// empty: none.
func (s *situation) writtenFrom() string {
	if c := s.inventory.Checkpoint; c != "" && s.job.unreadable(c, s.last.Plan, s.job.Written) == "" {
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
		Reason: s.attempt("%s%s, with the plan that was remembered → the job as written", why, s.lost()),
	}
}

// priors lists the measurements of earlier runs that hold for the model of this one.
func (j Job) priors(history []Attempt) []memory.Measurement {
	for _, a := range slices.Backward(history) {
		for _, m := range a.Measured {
			model, known := m.Fingerprint()
			if !known {
				continue
			}
			other := func(m memory.Measurement) bool { f, known := m.Fingerprint(); return known && !model.Same(f) }
			return slices.DeleteFunc(slices.Clone(j.Remembered), other)
		}
	}
	return slices.Clone(j.Remembered)
}

// A Recalled is the plan of an earlier run with which attempt 0 runs in place of the job as
// written.
type Recalled struct {
	Fit     string  `json:"fit"` // name of the file with the remembered plan
	Plan    Plan    `json:"plan"`
	Changed Changes `json:"changed"` // compared with the job as written
	// By are the arguments by which likely knobs were changed.
	By Arguments `json:"arguments,omitempty"`
	// Training is the effect on the training that was seen when the plan fitted.
	Training Training `json:"training,omitempty"`
	// At is the time at which it fitted, and Age how long that was before this run began.
	At  time.Time `json:"at"`
	Age Seconds   `json:"age_seconds"`
	// Peak is the most memory that it held of Room, in bytes; 0: not known.
	Peak int64 `json:"peak_bytes,omitempty"`
	Room int64 `json:"room_bytes,omitempty"`
}

// lastYear is the age from which a date is printed with its year.
const lastYear = 300 * 24 * time.Hour

// String is a line for people, with local dates: "starting with the plan that fitted on 21 Nov
// (micro batch 8, full checkpointing, peak 71 of 80 GiB)".
func (r Recalled) String() string { return r.In(time.Local) }

// In is String with the dates of a place.
func (r Recalled) In(place *time.Location) string {
	day := "2 Jan"
	if r.Age.Duration() > lastYear {
		day = "2 Jan 2006"
	}
	_, batch := r.Changed[MicroBatchSize]
	words := r.Changed.each(func(k Knob, _, v Value) string {
		switch {
		case k == GradientAccumulationSteps && batch: // it follows from the batch
			return ""
		case k.Whole() || k == LossParts || k == RolloutMemory || k == RolloutSleep || k == Optimizer || k == Allocator ||
			k == PinMemory:
			return fmt.Sprintf("%s %s", k.Short(), v)
		case k == OffloadOptimizer || k == OffloadParam || k == OffloadActivations:
			return fmt.Sprintf("%s to %s", k.Short(), v)
		case v == "none":
			return "no " + k.Short()
		}
		return fmt.Sprintf("%s %s", v, k.Short())
	})
	if r.Training == Average {
		words = append(words, r.Training.Words(""))
	}
	if r.Peak > 0 && r.Room > 0 {
		words = append(words, "peak "+portion(r.Peak, r.Room))
	}
	return fmt.Sprintf("starting with the plan that fitted on %s (%s)", r.At.In(place).Format(day),
		strings.Join(words, ", "))
}

// portion formats a part of a number of bytes: "71 of 80 GiB".
func portion(part, whole int64) string {
	const mib, gib = 1 << 20, 1 << 30
	format, size := "%.0f of %.0f GiB", float64(gib)
	switch {
	case whole < gib:
		format, size = "%.0f of %.0f MiB", mib
	case whole < 10*gib:
		format = "%.1f of %.1f GiB"
	}
	return fmt.Sprintf(format, float64(part)/size, float64(whole)/size)
}
