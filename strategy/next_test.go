package strategy

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// batchOnly is a job that can change its micro batch, and nothing else.
func batchOnly() Job {
	return Job{Ranks: 1, LocalRanks: 1, DataParallel: 1, Knobs: map[Knob]Range{
		MicroBatchSize: {Min: 1}, GradientAccumulationSteps: {Absent: "the script does not accumulate"}, Allocator: {Values: []Value{"expandable"}},
	}, Written: Plan{MicroBatchSize: "16", Allocator: "expandable"}}
}

// stepWords are steps for comparison: "kind setting=value: reason", in their order.
func stepWords(steps []NextStep) []string {
	var all []string
	for _, s := range steps {
		words := string(s.Kind)
		if s.Setting != "" {
			words += " " + s.Setting + "=" + s.Value
		}
		all = append(all, words+": "+s.Reason)
	}
	return all
}

func TestNextSteps(t *testing.T) {
	one := Plan{MicroBatchSize: "1", GradientAccumulationSteps: "8", ActivationCheckpointing: "full", Precision: "fp32", Allocator: "expandable"}
	batch := batchOnly().Written
	capped := gpt(1)
	capped.Ceiling = 5 << 30
	floored := gpt(1)
	floored.Knobs[MicroBatchSize], floored.Knobs[ActivationCheckpointing] = Range{Min: 16}, Range{Absent: "none"}
	recomputing := gpt(1)
	recomputing.Knobs[MicroBatchSize], recomputing.Knobs[Precision] = Range{Min: 16}, Range{Absent: "none"}
	delete(recomputing.Knobs, Allocator)
	recomputed := failedAt(0, sixteen, 7<<30)
	recomputed.InPlaceRefused = &InPlaceRefusal{Phase: "forward", Remedies: []Remedy{RemedyCheckpointing}}
	barred := predicting(func(p *Policy) { p.Never, p.Numerics = []string{"checkpointing", "micro-batch"}, Preserve })
	saved := func(e *Ending) { e.Inventory.Checkpoint = "out/ckpt-10" }
	wrong := Diagnosis{Cause: cause.UserError, Fatal: true, Error: "KeyError: 'x'"}
	lacking := wrong
	lacking.Error = "train.py: error: the following arguments are required: --data, cfg"
	autocast := ended(0, Plan{ActivationCheckpointing: "full", OffloadActivations: "cpu", Allocator: "expandable", Precision: "fp32"}, oom(cause.Forward))
	autocast.Observed = autocast.Plan
	leak := oom(cause.Forward)
	leak.Growth = &cause.Growth{}
	late := oom(cause.Forward)
	late.Late = true
	relaunched := ended(1, one, wrong)
	relaunched.Remedy = RemedyCheckpointing
	for name, test := range map[string]struct {
		policy  Policy
		job     Job
		history []Attempt
		change  func(*Ending)
		want    []string // a beginning of each step
	}{
		"the policy bars the remedy": {
			predicting(func(p *Policy) { p.Numerics = Preserve }), gpt(1), []Attempt{ended(0, one, oom(cause.Forward))}, nil,
			[]string{"policy recovery.numerics=mixed-precision: allows precision fp32→bf16, which changes the numerics; whether it fits is not known"},
		},
		"numerics by default, which put autocast around no model": {
			Policy{Mode: Ladder, MaxAttempts: 20, Numerics: MixedPrecision}, codeOnly(), []Attempt{autocast}, nil,
			[]string{
				"policy recovery.numerics=mixed-precision: allows precision fp32→bf16, which changes the numerics; whether it fits is not known",
				"inspect: shows which settings of the job",
			},
		},
		"two bars, each enough": {
			barred, gpt(1), []Attempt{failedAt(0, sixteen, 24<<30)}, nil,
			[]string{
				"policy recovery.never=micro-batch: allows checkpointing none→full",
				"policy recovery.never=checkpointing: allows micro batch 16→",
				"hardware: the plan that ran needs least, and is predicted to need 51.7–53.5 of 24.0 GiB, 6.0 GiB of it between steps; 60.9 GiB for each rank would do",
			},
		},
		"a remedy that its prediction excludes": {
			predicting(nil), recomputing, []Attempt{recomputed}, nil,
			[]string{"hardware: checkpointing none→full needs least"},
		},
		"recovery is off": {
			predicting(func(p *Policy) { p.Mode = Off }), gpt(1), []Attempt{failedAt(0, sixteen, 24<<30)}, nil,
			[]string{"policy recovery.mode=predict: allows the next plan: checkpointing none→full, allocator default→expandable; predicted "},
		},
		"too few attempts": {
			predicting(func(p *Policy) { p.MaxAttempts = 1 }), gpt(1), []Attempt{failedAt(0, sixteen, 24<<30)}, nil,
			[]string{"policy recovery.max_attempts=2: allows the next plan: checkpointing none→full"},
		},
		"no argument for the accumulation": {
			predicting(nil), batchOnly(), []Attempt{failedAt(0, batch, 24<<30)}, nil,
			[]string{
				"run: trains with another global batch, and other results: micro batch 16→4 without accumulation; predicted ",
				"hardware: the plan that ran needs least",
			},
		},
		"states that cannot fit": {
			predicting(nil), batchOnly(), []Attempt{failedAt(0, batch, 5<<30)}, nil,
			[]string{"hardware: held between steps: parameters 1.5 + gradients 1.5 + optimizer states 3.0 = 6.0 of 4.9 GiB usable, after every allowed shard and offload; "},
		},
		"a ceiling below the states": {
			predicting(nil), capped, []Attempt{failedAt(0, sixteen, 5<<30)}, nil,
			[]string{"policy limits.device_memory=7079MiB: gives each rank 6.9 GiB in place of 5.0 GiB, which is predicted to be enough: held between steps: parameters 1.5 "},
		},
		"a ceiling, and nothing measured": {
			predicting(nil), Job{Ceiling: 1 << 30, LocalRanks: 1}, []Attempt{ended(0, Plan{}, oom(cause.Load))},
			func(e *Ending) { e.Inventory.Device.Total = 80 << 30 },
			[]string{"policy limits.device_memory=2048MiB: raises the limit of 1.0 GiB for each rank, of 80.0 GiB that are there; how much the job needs is not known"},
		},
		"a minimum": {
			predicting(nil), floored, []Attempt{failedAt(0, sixteen.With(Plan{Precision: "bf16", Allocator: "expandable"}), 24<<30)}, nil,
			[]string{
				"policy knobs.micro_batch_size.min=4: allows micro batch 16→4, accumulation 1→4, if the job can train with so small a micro batch; predicted ",
				"hardware: the plan that ran needs least",
			},
		},
		"a leak": {predicting(nil), batchOnly(), []Attempt{ended(0, batch, leak)}, nil, []string{"inspect: the advice"}},
		"late, with a checkpoint": {
			predicting(nil), Job{LocalRanks: 1}, []Attempt{ended(0, Plan{}, late)}, saved,
			[]string{"resume: starts from out/ckpt-10: memory ran out only late", "inspect: shows which settings of the job"},
		},
		"an error of the job": {predicting(nil), gpt(1), []Attempt{ended(0, one, wrong)}, nil, []string{"inspect: the advice", "run: starts the job again, when that is fixed"}},
		"and a checkpoint": {
			predicting(nil), gpt(1), []Attempt{ended(0, one, wrong)}, saved,
			[]string{"inspect: the advice", "resume: starts from out/ckpt-10, when that is fixed", "run: "},
		},
		"arguments are missing": {predicting(nil), gpt(1), []Attempt{ended(0, one, lacking)}, nil, []string{"run: the job requires --data, cfg", "inspect: the advice"}},
		"a relaunch failed": {
			predicting(nil), gpt(1), []Attempt{failedAt(0, sixteen, 24<<30), relaunched}, nil,
			[]string{"policy recovery.never=checkpointing: bars checkpointing, after which the job failed; next would be micro batch 16→", "inspect: the advice", "run: "},
		},
		"try again later": {
			predicting(nil), gpt(1), []Attempt{ended(0, one, Diagnosis{Cause: cause.GPUHardware, Fatal: true})}, saved,
			[]string{"resume: the advice; then this continues the run from out/ckpt-10"},
		},
		"try again later, without a checkpoint": {
			predicting(nil), gpt(1), []Attempt{ended(0, one, Diagnosis{Cause: cause.GPUHardware, Fatal: true})}, func(e *Ending) { e.History[0].Stepping.Last = 8 },
			[]string{"resume: the advice; then this continues the run, from its beginning: no checkpoint is known"},
		},
		"trained": {predicting(nil), gpt(1), []Attempt{ended(0, one, Diagnosis{Cause: cause.None})}, nil, nil},
	} {
		e := Ending{Policy: test.policy, Job: test.job, History: test.history, Inventory: h100, Advice: "the advice"}
		if test.change != nil {
			test.change(&e)
		}
		e.Decision = Decide(e.Policy, e.Job, e.History, e.Inventory)
		got := stepWords(e.NextSteps())
		if len(got) != len(test.want) {
			t.Errorf("%s: %q, want %q (%s)", name, got, test.want, e.Decision.Reason)
			continue
		}
		for i, want := range test.want {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("%s: step %d is %q, want %q", name, i+1, got[i], want)
			}
		}
	}
}

// TestNextStepsFit: no step proposes a plan whose measured prediction exceeds the memory.
func TestNextStepsFit(t *testing.T) {
	proposed := 0
	for room := int64(5 << 30); room < 40<<30; room += 500 << 20 {
		for _, job := range []Job{gpt(1), batchOnly()} {
			e := Ending{
				Policy: predicting(func(p *Policy) { p.Never, p.Numerics = []string{"checkpointing", "micro-batch"}, Preserve }),
				Job:    job, History: []Attempt{failedAt(0, sixteen, room)}, Inventory: h100,
			}
			e.Decision = Decide(e.Policy, e.Job, e.History, e.Inventory)
			for _, s := range e.NextSteps() {
				if s.Kind == NextHardware || s.Setting == SettingCeiling || s.Expected == nil {
					continue
				}
				if proposed++; s.Expected.Mean > room {
					t.Errorf("%s: %s, and it needs %s", GiB(room), s.Reason, GiB(s.Expected.Mean))
				}
			}
		}
	}
	if proposed < 20 {
		t.Errorf("only %d steps were predicted", proposed)
	}
}

// A limit that is proposed is the one in its reason: both are rounded up to whole MiB.
func TestProposedLimitIsRoundedOnce(t *testing.T) {
	value, reason := enoughMemory(940<<20+1, 700<<20)
	if value != "941MiB" || !strings.Contains(reason, "941 MiB in place of 700 MiB") {
		t.Errorf("%s: %s", value, reason)
	}
}
