package strategy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy/cause"
)

// codeOnly is a job without any setting that gpurun could change: gpurun's hook changes what it
// can.
func codeOnly() Job {
	return Job{Ranks: 1, LocalRanks: 1, DataParallel: 1, Written: Plan{Allocator: "default"}, Knobs: map[Knob]Range{
		Allocator:               {Values: []Value{"default", "expandable"}},
		MicroBatchSize:          {Absent: "no [knobs] entry for it"},
		ActivationCheckpointing: {By: ByHook, Values: []Value{"none", "full"}},
		OffloadActivations:      {By: ByHook, Values: []Value{"none", "cpu"}},
		Attention:               {By: ByHook, Values: []Value{"eager", "sdpa"}},
		Precision:               {By: ByHook, Values: []Value{"fp32", "bf16"}},
	}}
}

func told(a Attempt, settings Plan, refused map[Knob]string) Attempt {
	a.Observed, a.Refused = settings, refused
	return a
}

func asked(a Attempt) Attempt { a.Asked = true; return a }

// Changes by gpurun's hook follow the process's own report.
func TestChangesInTheProcess(t *testing.T) {
	start := Plan{Allocator: "default"}
	expandable := Plan{Allocator: "expandable"}
	plain := Plan{ActivationCheckpointing: "none", OffloadActivations: "none", Attention: "sdpa", Precision: "fp32"}
	full := expandable.With(Plan{ActivationCheckpointing: "full"})
	offloaded := full.With(Plan{OffloadActivations: "cpu"})
	with := func(p Plan, k Knob, v Value) Plan { return p.With(Plan{k: v}) }
	compiled := map[Knob]string{ActivationCheckpointing: "the model is compiled", OffloadActivations: "the model is compiled", Precision: "the model is compiled", Attention: "the model is compiled"}
	for name, test := range map[string]struct {
		history []Attempt
		said    bool // numerics set explicitly
		next    Plan
		changed Changes
		reason  string
	}{
		"checkpointing first": {
			history: []Attempt{told(ended(0, start, oom(cause.Forward)), plain, nil)},
			next:    expandable.With(Plan{ActivationCheckpointing: "full"}),
			changed: Changes{Allocator: {"default", "expandable"}, ActivationCheckpointing: {"none", "full"}},
		},
		"an attention that materialises the scores rides along": {
			history: []Attempt{told(ended(0, start, oom(cause.Forward)), with(plain, Attention, "eager"), nil)},
			next:    expandable.With(Plan{ActivationCheckpointing: "full", Attention: "sdpa"}),
			changed: Changes{Allocator: {"default", "expandable"}, ActivationCheckpointing: {"none", "full"}, Attention: {"eager", "sdpa"}},
		},
		"a model with a switch that is on": {
			history: []Attempt{told(ended(0, start, oom(cause.Forward)), with(plain, ActivationCheckpointing, "full"), nil)},
			next:    expandable.With(Plan{OffloadActivations: "cpu"}),
			changed: Changes{Allocator: {"default", "expandable"}, OffloadActivations: {"none", "cpu"}},
		},
		"one that cannot be checkpointed": {
			history: []Attempt{told(ended(0, start, oom(cause.Forward)), plain, map[Knob]string{ActivationCheckpointing: "the model has no repeated blocks"})},
			next:    expandable.With(Plan{OffloadActivations: "cpu"}),
			changed: Changes{Allocator: {"default", "expandable"}, OffloadActivations: {"none", "cpu"}},
		},
		"checkpointing that has not shown yet": {
			history: []Attempt{asked(ended(0, start, oom(cause.Forward)))},
			next:    expandable.With(Plan{ActivationCheckpointing: "full"}),
			changed: Changes{Allocator: {"default", "expandable"}, ActivationCheckpointing: {"none", "full"}},
		},
		"compiled: no relaunch is spent on it": {
			history: []Attempt{told(ended(0, start, oom(cause.Forward)), plain, compiled), told(ended(1, expandable, oom(cause.Forward)), plain, compiled)},
			reason:  "every remedy was tried or is impossible",
		},
		"a process that said nothing": {
			history: []Attempt{ended(0, start, oom(cause.Forward)), ended(1, expandable, oom(cause.Forward))},
			reason:  "every remedy was tried or is impossible",
		},
		"autocast is not put round a model by default": {
			history: []Attempt{
				told(ended(0, start, oom(cause.Forward)), plain, nil), told(ended(1, full, oom(cause.Forward)), with(plain, ActivationCheckpointing, "full"), nil),
				told(ended(2, offloaded, oom(cause.Forward)), plain.With(offloaded), nil),
			},
			reason: "; every allowed remedy was tried or is impossible",
		},
		"in words it is, before anything is offloaded": {
			history: []Attempt{
				told(ended(0, start, oom(cause.Forward)), plain, nil), told(ended(1, full, oom(cause.Forward)), with(plain, ActivationCheckpointing, "full"), nil),
			},
			said: true, next: full.With(Plan{Precision: "bf16"}), changed: Changes{Precision: {"fp32", "bf16"}},
		},
		"what was turned and did not take effect": {
			history: []Attempt{
				told(ended(0, start, oom(cause.Forward)), plain, nil),
				told(ended(1, full, oom(cause.Forward)), plain, map[Knob]string{ActivationCheckpointing: "the hook failed: KeyError"}),
			},
			next:    expandable.With(Plan{ActivationCheckpointing: "none", OffloadActivations: "cpu"}),
			changed: Changes{ActivationCheckpointing: {"full", "none"}, OffloadActivations: {"none", "cpu"}},
		},
		"blocks that computed something else when they were run again": {
			history: []Attempt{
				told(ended(0, start, oom(cause.Forward)), plain, nil),
				told(ended(1, full, Diagnosis{Cause: cause.UserError, Fatal: true, Rank: 0}), with(plain, ActivationCheckpointing, "full"), map[Knob]string{ActivationCheckpointing: "Block computes something else"}),
			},
			next:    expandable.With(Plan{OffloadActivations: "cpu"}),
			changed: Changes{OffloadActivations: {"", "cpu"}},
			reason:  "attempt 1: Block computes something else; attempt 0: CUDA out of memory in forward on rank 0 → ",
		},
	} {
		d := Decide(Policy{Mode: Ladder, MaxAttempts: 20, Numerics: MixedPrecision, NumericsSaid: test.said}, codeOnly(), test.history, Inventory{Accelerator: "cuda", BF16: true})
		if diff := cmp.Diff(test.next, d.Next); diff != "" && d.Relaunch {
			t.Errorf("%s: next (-want +got):\n%s%s", name, diff, d.Reason)
		}
		if d.Relaunch != (test.next != nil) || !strings.Contains(d.Reason, test.reason) {
			t.Errorf("%s: relaunch is %v: %s", name, d.Relaunch, d.Reason)
		}
		if diff := cmp.Diff(test.changed, d.Changed); diff != "" && d.Relaunch {
			t.Errorf("%s: changed (-want +got):\n%s", name, diff)
		}
	}
}

// A computed value is the process's report.
func TestComputedValuesComeFromTheProcess(t *testing.T) {
	j, read := gpt(1), Plan{Allocator: "expandable"}
	j.Written = read
	said := Plan{MicroBatchSize: "16", GradientAccumulationSteps: "1", ActivationCheckpointing: "full", Precision: "bf16", Attention: "sdpa"}
	d := Decide(Policy{Mode: Ladder, MaxAttempts: 20, Numerics: Preserve}, j, []Attempt{told(ended(0, read, oom(cause.Forward)), said, nil)}, Inventory{Accelerator: "cuda"})
	if diff := cmp.Diff(read.With(Plan{MicroBatchSize: "8", GradientAccumulationSteps: "2"}), d.Next); diff != "" {
		t.Errorf("next (-want +got):\n%s", diff)
	}
	if !strings.HasSuffix(d.Reason, "micro batch 16→8, accumulation 1→2 (global batch 16 kept)"+unprovenLoss) {
		t.Error(d.Reason)
	}
}

// The number of ranks of a job that starts its own ranks is the number that its processes see.
func TestRankCountFromTheProcess(t *testing.T) {
	j := gpt(1)
	j.Knobs[ActivationCheckpointing] = Range{Absent: "none"}
	a := ended(0, plain, oom(cause.Forward))
	a.World = 4
	d := Decide(Policy{Mode: Ladder, MaxAttempts: 20, Numerics: Preserve}, j, []Attempt{a}, Inventory{Accelerator: "cuda"})
	if !strings.HasSuffix(d.Reason, "(global batch 64 kept)"+unprovenLoss) {
		t.Error(d.Reason)
	}
}

// Before any attempt, the survey lists the possible changes, and whether the recipe or the hook
// makes them.
func TestSurveyOfHooks(t *testing.T) {
	by := map[Remedy]string{}
	for _, o := range Survey(Policy{Numerics: MixedPrecision}, codeOnly(), Plan{Allocator: "default"}, Inventory{Accelerator: "cuda", BF16: true}) {
		if o.Available {
			by[o.Remedy] = o.By + " " + o.Changed.String()
		}
	}
	want := map[Remedy]string{
		RemedyAllocator: "recipe allocator default→expandable", RemedyWait: " ", RemedyAttention: "hook attention eager→sdpa",
		RemedyCheckpointing: "hook checkpointing none→full", RemedyOffloadActivations: "hook activation offload none→cpu",
	}
	if diff := cmp.Diff(want, by); diff != "" {
		t.Errorf("offers (-want +got):\n%s", diff)
	}
}

// TestDoubtfulPrecision: no precision is assumed if the job's code may set it, and the process's
// report counts.
func TestDoubtfulPrecision(t *testing.T) {
	for _, test := range []struct {
		doubtful bool
		observed Plan
		want     string // the reason why it is not lowered; empty: it is
	}{
		{false, nil, ""},
		{true, nil, "the current precision is not known"},
		{true, Plan{Precision: "fp32"}, ""},
		{true, Plan{Precision: "bf16"}, "precision is already bf16"},
	} {
		s := situation{job: Job{Knobs: map[Knob]Range{Precision: {By: ByHook, Values: []Value{"fp32", "bf16"}, Doubtful: test.doubtful}}}, plan: test.observed, inventory: Inventory{BF16: true}, policy: Policy{NumericsSaid: true}}
		plans, skip := s.consider(RemedyPrecision)
		why := ""
		if skip != nil {
			why = skip.Reason
		}
		if why != test.want || (len(plans) > 0) != (test.want == "") {
			t.Errorf("%+v: %v, %q", test, plans, why)
		}
	}
}
