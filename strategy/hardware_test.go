package strategy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

func onGPU(seconds int, uuid string, e cause.DriverEvent) []Fact {
	e.UUID, e.Device = uuid, "cuda:0"
	return one(-1, seconds, Fact{Source: "nvml", Content: (*DriverEvent)(&e)})
}

// The driver's events show which action is required before the GPU is used again.
func TestDiagnoseGPUNeeds(t *testing.T) {
	ecc := cause.DriverEvent{Kind: cause.ECCEvent}
	x := func(n int) cause.DriverEvent { return cause.DriverEvent{Kind: cause.XIDEvent, XID: n} }
	for _, c := range []struct {
		name  string
		facts []Fact
		cause cause.Code
		need  cause.Need // empty: none, and the same node is not trusted if the GPU failed
		same  bool       // the same plan may run on the same node
	}{
		{"a contained error", onGPU(1, "GPU-0", x(94)), cause.GPUHardware, cause.Restart, true},
		{"a contained error, told in three ways", slices.Concat(onGPU(1, "GPU-0", x(48)), onGPU(1, "GPU-0", ecc), onGPU(1, "GPU-0", x(94)), onGPU(1, "GPU-0", x(63))), cause.GPUHardware, cause.Restart, true},
		{"a contained error, and another GPU's", slices.Concat(onGPU(1, "GPU-1", x(48)), onGPU(1, "GPU-0", x(94))), cause.GPUHardware, cause.ResetUnlessContained, false},
		{"an uncontained error", slices.Concat(onGPU(1, "GPU-0", x(94)), onGPU(1, "GPU-0", x(95))), cause.GPUHardware, cause.Reset, false},
		{"a contained error whose row could not be remapped", slices.Concat(onGPU(1, "GPU-0", x(94)), onGPU(1, "GPU-0", x(64))), cause.GPUHardware, cause.Reset, false},
		{"an ECC error of an old GPU", onGPU(1, "GPU-0", ecc), cause.GPUHardware, cause.ResetUnlessContained, false},
		{"NVLink", onGPU(1, "GPU-0", x(74)), cause.GPUHardware, cause.Reset, false},
		{"off the bus", slices.Concat(onGPU(1, "GPU-0", x(74)), onGPU(1, "GPU-0", x(79))), cause.GPUHardware, cause.Reboot, false},
		{"GSP", onGPU(1, "GPU-0", x(119)), cause.GPUHardware, cause.Reset, false},
		{"a context switch", onGPU(1, "GPU-0", x(109)), cause.GPUHardware, cause.Reset, false},
		{"lost", onGPU(1, "GPU-0", cause.DriverEvent{Kind: cause.LostEvent}), cause.GPUHardware, cause.Reboot, false},
		{"the driver asks for a reset", onGPU(1, "GPU-0", cause.DriverEvent{Kind: cause.RecoveryEvent, Recovery: cause.RecoverByReset}), cause.GPUHardware, cause.Reset, false},
		{"contained, and the driver asks for a drain", slices.Concat(onGPU(1, "GPU-0", x(94)), onGPU(2, "GPU-0", cause.DriverEvent{Kind: cause.RecoveryEvent, Recovery: cause.RecoverByDrainAndReset})), cause.GPUHardware, cause.Reset, false},
		{"a rank's words only", says(1, 1, eccWords), cause.GPUHardware, "", false},
		{"a collective fails", says(1, 1, watchdog), cause.NCCLTimeout, "", true},
		{"a collective fails beside a GPU that needs a reset", slices.Concat(onGPU(0, "GPU-0", x(154)), says(1, 1, watchdog)), cause.NCCLTimeout, cause.Reset, false},
		{"the job's own fault", onGPU(1, "GPU-0", x(31)), cause.IllegalAccess, "", false},
		{"and of a peer's memory", onGPU(1, "GPU-0", x(137)), cause.IllegalAccess, "", false},
		{"a user's error beside a GPU that needs a reset", slices.Concat(onGPU(0, "GPU-0", x(154)), says(1, 1, valueError)), cause.UserError, "", false},
	} {
		d := Diagnose(Evidence{Ranks: 2, Facts: slices.Concat(c.facts, exits(1, 3, 1))})
		need := cause.Need("")
		if d.Hardware != nil {
			need = d.Hardware.Need
		}
		if d.Cause != c.cause || need != c.need || d.passes() != c.same {
			t.Errorf("%s: %s needs %q, again here: %t; want %s, %q, %t", c.name, d.Cause, need, d.passes(), c.cause, c.need, c.same)
		}
	}
}

// A GPU that still works is used again within the budget. A broken one ends the run on this node,
// with advice for the user or the scheduler.
func TestDecideAboutTheNode(t *testing.T) {
	failed := func(need cause.Need) Diagnosis {
		return Diagnosis{Cause: cause.GPUHardware, Fatal: true, Rank: -1, Hardware: &Hardware{Text: "Xid 1 on GPU-0", Need: need}}
	}
	contained := ended(0, plain, failed(cause.Restart))
	for _, c := range []struct {
		name     string
		node     Node
		history  []Attempt
		relaunch bool
		rule     string
		reason   string
	}{
		{"goes on", Node{}, []Attempt{contained}, true, "transient", "the GPU failed (Xid 1 on GPU-0) → the same plan again (1 of 3)"},
		{"goes on, for the fourth time", Node{Name: "n3"}, []Attempt{contained, contained, contained, contained}, false, "transient", "do not use n3 before the GPU is reset"},
		{"needs a reset", Node{Name: "n3"}, []Attempt{ended(0, plain, failed(cause.Reset))}, false, "hardware", "the GPU failed (Xid 1 on GPU-0); do not use n3 before the GPU is reset; the same command"},
		{"under Slurm", Node{Name: "n3", Scheduler: "slurm", Job: "42"}, []Attempt{ended(0, plain, failed(cause.Reboot))}, false, "hardware",
			"do not use n3 before the GPU is looked at and the node restarted: sbatch --exclude=n3 starts it elsewhere, and so does scontrol requeue 42 once the node is drained"},
		{"the whole sentence", Node{Name: "n3", Scheduler: "slurm", Job: "4242"}, []Attempt{ended(0, plain, Diagnosis{Cause: cause.GPUHardware, Fatal: true, Rank: -1,
			Hardware: &Hardware{Text: "Xid 95 on GPU-5bd4: uncontained ECC error", Need: cause.Reset}})}, false, "hardware",
			"attempt 0: the GPU failed (Xid 95 on GPU-5bd4: uncontained ECC error); do not use n3 before the GPU is reset: sbatch --exclude=n3 starts it elsewhere, and so does scontrol requeue 4242 once the node is drained"},
		{"in a pod that knows its node", Node{Name: "gpu-7", Scheduler: "kubernetes", Job: "pod-1"}, []Attempt{ended(0, plain, failed(cause.Reset))}, false, "hardware", "do not use this node before the GPU is reset: kubectl cordon gpu-7, and"},
		{"a name that a shell would read", Node{Name: "n3;id", Scheduler: "slurm", Job: "42"}, []Attempt{ended(0, plain, failed(cause.Reset))}, false, "hardware", "do not use n3;id before the GPU is reset; the same command"},
		{"a job that a shell would read", Node{Scheduler: "kubernetes", Job: "$(id)"}, []Attempt{ended(0, plain, failed(cause.Reset))}, false, "hardware", "do not use this node before the GPU is reset; the same command"},
		{"an option in place of a name", Node{Name: "--all", Scheduler: "kubernetes", Job: "p"}, []Attempt{ended(0, plain, failed(cause.Reset))}, false, "hardware", "do not use this node before the GPU is reset; the same command"},
		{"in a pod", Node{Scheduler: "kubernetes", Job: "pod-1"}, []Attempt{ended(0, plain, failed(cause.Reset))}, false, "hardware", "kubectl cordon $(kubectl get pod pod-1 -o jsonpath={.spec.nodeName})"},
		{"nothing is known of the GPU", Node{}, []Attempt{ended(0, plain, Diagnosis{Cause: cause.GPUHardware, Fatal: true})}, false, "hardware", "do not use this node before the GPU is looked at"},
		{"a node failed", Node{Name: "n3"}, []Attempt{ended(0, plain, Diagnosis{Cause: cause.GPUHardware, Fatal: true, Error: "srun: error: Node failure on n17"})}, false, "hardware", "or on another node"},
		{"a node was lost", Node{Name: "n1", Scheduler: "slurm", Job: "42"}, []Attempt{ended(0, plain, Diagnosis{Cause: cause.GPUHardware, Fatal: true, Rank: -1, Lost: &Lost{Node: 2, Host: "n3", Why: "its gpurun is gone"}})}, false, "lost-node",
			"node 2 (n3) was lost: its gpurun is gone; started again, the job continues with the same plan"},
		{"a network beside a broken GPU", Node{Name: "n3"}, []Attempt{ended(0, plain, Diagnosis{Cause: cause.NCCLError, Fatal: true, Hardware: failed(cause.Reset).Hardware})}, false, "hardware", "(Xid 1 on GPU-0); do not use n3"},
		{"the driver does not fit", Node{Name: "n3"}, []Attempt{ended(0, plain, Diagnosis{Cause: cause.Driver, Fatal: true})}, false, "retry-later", "try again later, or on another node"},
	} {
		inv := h100
		inv.Node = c.node
		d := Decide(defaults, gpt(1), c.history, inv)
		if d.Relaunch != c.relaunch || d.Rule != c.rule || !strings.Contains(d.Reason, c.reason) || !d.Relaunch && (d.Outcome != Retry || d.Code != CodeRetry) {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

// A GPU that is found broken ends an attempt only if that has made no step.
func TestUnfitGPUEndsAStart(t *testing.T) {
	now := time.Now()
	unfit := Fact{Time: now, Rank: -1, Source: "nvml", Content: &DriverEvent{Kind: cause.UnfitEvent, Device: "cuda:1", UUID: "GPU-1", Index: 3, Bus: "00000000:4B:00.0", Fault: "broken memory waits to be remapped", Recovery: cause.RecoverByReset}}
	e := Evidence{Ranks: 1}
	d := NewDetector(&e)
	if !d.Add(unfit, now) {
		t.Error("nobody is to look again")
	}
	if stop, now := d.Verdict(now); !now || stop.Reason != StopUnfit || stop.Notice() == "" {
		t.Errorf("before a step: %+v", stop)
	}
	for _, f := range stopped(0, 1) {
		e.Add(f)
	}
	got := Diagnose(e)
	if got.Cause != cause.GPUHardware || !got.broken() || got.Sentence() != "the GPU failed (cuda:1 (GPU-1, index 3, PCI 00000000:4B:00.0): broken memory waits to be remapped)" {
		t.Errorf("%+v: %s", got, got.Sentence())
	}
	if got := Diagnose(Evidence{Ranks: 1, Facts: []Fact{unfit}}); got.Cause != cause.GPUHardware || !got.Fatal {
		t.Errorf("without ranks: %+v", got)
	}

	e = Evidence{Ranks: 1}
	d = NewDetector(&e)
	d.Add(unfit, now)
	if !slices.Contains(d.Watched(), 0) {
		t.Error("nobody asks for the rank's steps")
	}
	d.Add(Fact{Time: now, Rank: 0, Source: "gpurun", Content: &Sign{Steps: 1}}, now)
	if stop, now := d.Verdict(now); now {
		t.Errorf("after a step: %+v", stop)
	}
	ev := Evidence{Ranks: 1, Facts: slices.Concat([]Fact{unfit}, says(0, 1, valueError), exits(0, 2, 1))}
	if got := Diagnose(ev); got.Cause != cause.UserError {
		t.Errorf("a rank that failed by itself: %+v", got)
	}
}

func TestHealth(t *testing.T) {
	for _, c := range []struct {
		health Health
		most   int
		unfit  string
		worth  int
	}{
		{Health{Links: 18, Celsius: 40, Remapped: 2}, 18, "", 0},
		{Health{Pending: true}, 0, "broken memory waits to be remapped", 0},
		{Health{Pending: true, Failed: true}, 0, "broken memory, and no spare rows left", 0},
		{Health{Recovery: cause.RecoverByReset}, 0, "the driver asks for a reset of the GPU", 0},
		{Health{Recovery: cause.RecoverByReboot}, 0, "the driver asks for a restart of the node", 0},
		{Health{Recovery: cause.RecoverByDrainP2P}, 0, "the driver requests that no new work between GPUs starts", 0},
		{Health{Recovery: cause.RecoverByDrainAndReset, Pending: true}, 0, "the driver requests that no new work starts before a reset of the GPU", 0},
		{Health{Recovery: "something-new"}, 0, "the driver asks for something-new", 0},
		{Health{Uncorrected: 1, Links: 17, Recovered: 2, Fabric: "it is still joining", Slowed: "heat"}, 18, "", 5},
	} {
		if got := c.health.Unfit(); got != c.unfit || len(c.health.Notable(c.most)) != c.worth {
			t.Errorf("%+v: %q, %q", c.health, got, c.health.Notable(c.most))
		}
	}
}
