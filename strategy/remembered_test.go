package strategy

import (
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

var rememberedWritten = Plan{MicroBatchSize: "16", GradientAccumulationSteps: "1", ActivationCheckpointing: "none", Precision: "fp32", Optimizer: "adamw",
	Sharding: "none", OffloadOptimizer: "none"}

func rememberedJob() Job {
	return Job{Written: rememberedWritten, Ranks: 2, LocalRanks: 2, DataParallel: 2, Knobs: map[Knob]Range{
		MicroBatchSize: {Min: 1}, GradientAccumulationSteps: {Min: 1}, ActivationCheckpointing: {Values: []Value{"none", "full"}},
		Precision: {Values: []Value{"fp32", "bf16"}}, Optimizer: {Values: []Value{"adamw", "adafactor"}},
		Sharding: {Values: []Value{"none", "zero2", "zero3"}}, OffloadOptimizer: {Values: []Value{"none", "cpu", "nvme"}},
		Attention: {By: ByHook, Values: []Value{"eager", "sdpa"}},
	}}
}

func TestAdmit(t *testing.T) {
	for _, c := range []struct {
		name   string
		plan   Plan // changes to the job as written
		change func(*Policy, *Job, *Inventory)
		needed int
		why    string // a part of the reason; empty: admitted
	}{
		{"a smaller batch", Plan{MicroBatchSize: "4", GradientAccumulationSteps: "4"}, nil, 0, ""},
		{"another global batch", Plan{MicroBatchSize: "4"}, nil, 0, "its global batch is 8, and that of the job as written 32"},
		{"a word that is none", Plan{ActivationCheckpointing: "most"}, nil, 0, "has to be one of"},
		{"a word that the job has not", Plan{ActivationCheckpointing: "selective"}, nil, 0, "cannot set the checkpointing to selective"},
		{"a knob that the job has not", Plan{DataloaderWorkers: "2"}, nil, 0, "cannot set the loader workers"},
		{"by a hook", Plan{Attention: "sdpa"}, nil, 0, ""},
		{"by a hook, which is off", Plan{Attention: "sdpa"}, func(_ *Policy, j *Job, _ *Inventory) { j.Knobs[Attention] = Range{Absent: "launch.hooks = false"} }, 0, "launch.hooks = false"},
		{"off", nil, func(p *Policy, _ *Job, _ *Inventory) { p.Mode = Off }, 0, "off"},
		{"never", Plan{MicroBatchSize: "4", GradientAccumulationSteps: "4"}, func(p *Policy, _ *Job, _ *Inventory) { p.Never = []string{"gradient_accumulation_steps"} }, 0, "recovery.never"},
		{"precision, needed once", Plan{Precision: "bf16"}, nil, 1, "which only one run has needed so far"},
		{"precision, needed twice", Plan{Precision: "bf16"}, nil, 2, ""},
		{"precision, in words", Plan{Precision: "bf16"}, func(p *Policy, _ *Job, _ *Inventory) { p.NumericsSaid = true }, 0, ""},
		{"precision, preserved", Plan{Precision: "bf16"}, func(p *Policy, _ *Job, _ *Inventory) { p.Numerics = Preserve }, 2, "keeps the precision"},
		{"precision, not here", Plan{Precision: "bf16"}, func(_ *Policy, _ *Job, i *Inventory) { i.BF16 = false }, 2, "bfloat16"},
		{"precision by a hook, not in words", Plan{Precision: "bf16"}, func(_ *Policy, j *Job, _ *Inventory) {
			j.Knobs[Precision] = Range{By: ByHook, Values: []Value{"fp32", "bf16"}}
		}, 2, "only with --numerics"},
		{"another optimizer", Plan{Optimizer: "adafactor"}, nil, 2, `keeps the optimizer; "any" allows it`},
		{"another optimizer, any", Plan{Optimizer: "adafactor"}, func(p *Policy, _ *Job, _ *Inventory) { p.Numerics = Any }, 2, ""},
		{"offload, with the stage that it needs", Plan{OffloadOptimizer: "cpu", Sharding: "zero2"}, nil, 0, ""},
		{"offload, never", Plan{OffloadOptimizer: "cpu", Sharding: "zero2"}, func(p *Policy, _ *Job, _ *Inventory) { p.Never = []string{"offload-optimizer"} }, 0, "recovery.never"},
		{"offload, a part is missing", Plan{OffloadOptimizer: "cpu", Sharding: "zero2"}, func(_ *Policy, _ *Job, i *Inventory) {
			i.Missing = map[Remedy]string{RemedyOffloadOptimizer: "no DeepSpeed"}
		}, 0, "no DeepSpeed"},
		{"NVMe without a path", Plan{OffloadOptimizer: "nvme", Sharding: "zero3"}, nil, 0, "recovery.nvme_path is not set"},
		{"NVMe", Plan{OffloadOptimizer: "nvme", Sharding: "zero3"}, func(p *Policy, _ *Job, _ *Inventory) { p.NVMePath = "/scratch" }, 0, ""},
		{"NVMe, never", Plan{OffloadOptimizer: "nvme", Sharding: "zero3"}, func(p *Policy, _ *Job, _ *Inventory) { p.NVMePath, p.Never = "/scratch", []string{"nvme"} }, 0, "recovery.never"},
	} {
		p, j, inv := Policy{Mode: Ladder, Numerics: MixedPrecision}, rememberedJob(), Inventory{BF16: true}
		if c.change != nil {
			c.change(&p, &j, &inv)
		}
		got := Admit(p, j, inv, Past{Plan: j.Written.With(c.plan), Needed: c.needed})
		if !strings.Contains(got, c.why) || (got == "") != (c.why == "") {
			t.Errorf("%s: %q, want %q", c.name, got, c.why)
		}
	}
	short := rememberedWritten.With(nil)
	delete(short, Precision)
	if got := Admit(Policy{}, rememberedJob(), Inventory{}, Past{Plan: short, Needed: 2}); got == "" {
		t.Error("a plan that says nothing of a knob of the job is admitted")
	}
}

func TestRememberedOffloadNeedsHostMemoryAndDisk(t *testing.T) {
	plan := rememberedWritten.With(Plan{OffloadOptimizer: "nvme", Sharding: "zero3"})
	p := Policy{Mode: Ladder, Numerics: MixedPrecision, NVMePath: "/scratch"}
	held := []memory.Measurement{{Host: 30 << 30, Model: &memory.TrainedModel{Parameters: 8 << 30}}} // 96 GiB of Adam's
	for _, c := range []struct {
		host, disk int64
		ok         bool
	}{{0, 0, true}, {100 << 30, 500 << 30, true}, {20 << 30, 500 << 30, false}, {100 << 30, 90 << 30, false}} {
		if got := Admit(p, rememberedJob(), Inventory{HostAvailable: c.host, NVMeFree: c.disk}, Past{Plan: plan, Measured: held}); (got == "") != c.ok {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestFailedRememberedPlanRunsJobAsWritten: the attempt after attempt 0 with a remembered plan.
func TestFailedRememberedPlanRunsJobAsWritten(t *testing.T) {
	plan := rememberedWritten.With(Plan{MicroBatchSize: "4", GradientAccumulationSteps: "4"})
	bug := Diagnosis{Cause: cause.UserError, Fatal: true, Rank: -1, Error: "ValueError: 4"}
	for _, c := range []struct {
		name    string
		attempt Attempt
		rule    string
		next    Plan // nil: no relaunch
	}{
		{"a bug", Attempt{Plan: plan, Diagnosis: bug}, "remembered-failed", rememberedWritten},
		{"unknown", Attempt{Plan: plan, Diagnosis: Diagnosis{Cause: cause.Unknown, Fatal: true, Rank: -1}}, "remembered-failed", rememberedWritten},
		{"did not take", Attempt{Plan: plan, Halted: true, Observed: rememberedWritten, Diagnosis: Diagnosis{Cause: cause.None}}, "remembered-failed", rememberedWritten},
		{"memory", Attempt{Plan: plan, Diagnosis: Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Phase: cause.Backward, Rank: 0}}, "out-of-memory", plan.With(Plan{ActivationCheckpointing: "full"})},
		{"hardware", Attempt{Plan: plan, Diagnosis: Diagnosis{Cause: cause.GPUHardware, Fatal: true, Rank: -1}}, "hardware", nil},
		{"stopped", Attempt{Plan: plan, StopSignal: 15, Diagnosis: bug}, "stopped", nil},
		{"trained", Attempt{Plan: plan, Diagnosis: Diagnosis{Cause: cause.None, Rank: -1}}, "trained", nil},
		{"a bug of the job as written", Attempt{Plan: rememberedWritten, Diagnosis: bug}, "job-failed", nil},
		{"a bug after hours", Attempt{Plan: plan, Diagnosis: bug, Ended: time.Time{}.Add(2 * time.Hour)}, "job-failed", nil},
	} {
		j := rememberedJob()
		j.Recalled = &Recalled{Plan: plan}
		d := Decide(Policy{Mode: Ladder, MaxAttempts: 9, Numerics: Preserve, RestartFromZero: Seconds(time.Hour)}, j, []Attempt{c.attempt}, Inventory{})
		if d.Rule != c.rule || d.Relaunch != (c.next != nil) || d.Relaunch && d.Next.String() != c.next.String() {
			t.Errorf("%s: %s, next %s: %s", c.name, d.Rule, d.Next, d.Reason)
		}
	}
	// Only once: then the job as written fails by itself.
	j := rememberedJob()
	j.Recalled = &Recalled{Plan: plan}
	first := Attempt{Plan: plan, Diagnosis: bug}
	d := Decide(Policy{Mode: Ladder, MaxAttempts: 9}, j, []Attempt{first, {N: 1, Plan: rememberedWritten, Diagnosis: bug}}, Inventory{})
	if d.Relaunch || d.Rule != "job-failed" {
		t.Errorf("after both: %s", d.Reason)
	}
	// If it runs out of memory instead, it is rescued as usual.
	out := Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Phase: cause.Backward, Rank: 0}
	d = Decide(Policy{Mode: Ladder, MaxAttempts: 9}, j, []Attempt{first, {N: 1, Plan: rememberedWritten, Diagnosis: out}}, Inventory{})
	if !d.Relaunch || d.Remedy != RemedyCheckpointing {
		t.Errorf("after a failed memory and a real one: %+v", d)
	}
}

func TestPriorsMatchTheModel(t *testing.T) {
	of := func(parameters int64) memory.Measurement {
		return memory.Measurement{Model: &memory.TrainedModel{Class: "GPT", Parameters: parameters}}
	}
	j := Job{Remembered: []memory.Measurement{of(100), {Peak: 1}}}
	for _, c := range []struct {
		name    string
		history []Attempt
		want    int
	}{
		{"nothing seen", nil, 2},
		{"no model seen", []Attempt{{Measured: []memory.Measurement{{Peak: 3}}}}, 2},
		{"the same", []Attempt{{Measured: []memory.Measurement{of(100)}}}, 2},
		{"another", []Attempt{{Measured: []memory.Measurement{of(300)}}, {}}, 1},
	} {
		if got := j.priors(c.history); len(got) != c.want {
			t.Errorf("%s: %d, want %d", c.name, len(got), c.want)
		}
	}
	if len(j.Remembered) != 2 || j.Remembered[0].Model == nil {
		t.Error("the job was changed")
	}
}

func TestRecalledPlanString(t *testing.T) {
	r := Recalled{
		At: time.Date(2025, 11, 21, 3, 0, 0, 0, time.UTC), Age: Seconds(24 * time.Hour), Peak: 71 << 30, Room: 80 << 30,
		Changed: Changes{MicroBatchSize: {"16", "8"}, GradientAccumulationSteps: {"1", "2"}, ActivationCheckpointing: {"none", "full"}},
	}
	if got, want := r.In(time.UTC), "starting with the plan that fitted on 21 Nov (micro batch 8, full checkpointing, peak 71 of 80 GiB)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r = Recalled{At: r.At, Age: Seconds(400 * 24 * time.Hour), Changed: Changes{Precision: {"fp32", "bf16"}, OffloadOptimizer: {"none", "cpu"}, Attention: {"sdpa", "none"}, Allocator: {"default", "expandable"}}}
	if got, want := r.In(time.UTC), "starting with the plan that fitted on 21 Nov 2025 (bf16 precision, no attention, optimizer offload to cpu, allocator expandable)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
