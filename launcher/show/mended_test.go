package show

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// The end is shown even where nothing else is.
func TestQuietReportsTheEnd(t *testing.T) {
	var out bytes.Buffer
	p := people(&out, true)
	show(p, launcher.Began{Name: "gpt", Plan: first}, launcher.Started{Plan: first}, launcher.Ended{Evidence: strategy.Evidence{Plan: first}},
		launcher.Decided{Decision: strategy.Decision{Outcome: strategy.Trained}},
		launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{Plan: first}}}})
	if out.String() != "gpurun: trained in 0s; logs: /runs/r1\n" {
		t.Errorf("%q", out.String())
	}
}

// A run that continues when it is started again is not named by its word for programs.
func TestUnfinishedIsReported(t *testing.T) {
	var out bytes.Buffer
	show(people(&out, false), launcher.Began{Name: "gpt"}, launcher.Ended{}, launcher.Decided{Decision: strategy.Decision{Outcome: strategy.Retry}},
		launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Retry, Code: 75, Attempts: []launcher.AttemptSummary{{}}}})
	if said := out.String(); !strings.Contains(said, "summary: not finished (75) after 1 attempt") || strings.Contains(said, "retry") {
		t.Error(said)
	}
}

// A remembered plan is proposed as what the next start begins with.
func TestRememberedPlanIsProposed(t *testing.T) {
	if got := (paste{strategy.Proposal{Words: []string{"train.py"}, Remembered: true}}).hints(); len(got) != 1 || !strings.HasPrefix(got[0], "the next start begins with this plan by itself; ") {
		t.Errorf("%q", got)
	}
}

// The method of libraries' models is in the hint only if the job's code uses such a library.
func TestHintOfCheckpointingIsForTheModel(t *testing.T) {
	for own, want := range map[bool]string{true: "and call torch.utils.checkpoint.checkpoint(", false: "call model.gradient_checkpointing_enable() where the model has it, or import torch.utils.checkpoint and call torch.utils.checkpoint.checkpoint("} {
		got := (paste{strategy.Proposal{Turned: strategy.Plan{strategy.ActivationCheckpointing: "full"}, OwnModel: own, Unchanged: true}}).codeHints()
		if len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A run that was rescued in place has a line about the first repeat, and one at the end about all, also if
// quiet; with several attempts, the summary's line of each attempt has it.
func TestRepeatsInPlaceAreShown(t *testing.T) {
	again := strategy.InPlace{Rank: 1, Remedy: strategy.RemedyCheckpointing, Phase: "forward", Step: 7, LastStep: 7, Times: 1, Requested: 2 << 30, Seconds: strategy.Seconds(290 * time.Millisecond), Elements: 65536, Longest: 4096}
	more := again
	more.Times, more.LastStep = 13, 90
	const one = "gpurun: rank 1: out of memory in forward at step 7 (tried to allocate 2.0 GiB); step repeated with activation checkpointing (0.29 s)\n"
	const cost = "13 steps repeated in place with activation checkpointing (0.29 s)"
	for name, test := range map[string]struct {
		plan  strategy.Plan
		quiet bool
		want  []string
	}{
		"loud":  {first, false, []string{one, "gpurun:   " + cost}},
		"quiet": {first.With(strategy.Plan{strategy.SequenceLength: "4096"}), true, []string{one, "gpurun:   " + cost}},
	} {
		var out bytes.Buffer
		show(people(&out, test.quiet), launcher.Began{Name: "gpt", Plan: test.plan}, launcher.Started{Plan: test.plan}, launcher.InPlace{InPlace: again, More: 1}, launcher.InPlace{InPlace: more, More: 12},
			launcher.Ended{Evidence: strategy.Evidence{Plan: test.plan}}, launcher.Decided{Decision: strategy.Decision{Outcome: strategy.Trained}},
			launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{Plan: test.plan, InPlace: []strategy.InPlace{more}}}}})
		for _, want := range test.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %s\nwants %s", name, out.String(), want)
			}
		}
	}
	var out bytes.Buffer
	armed := &strategy.InPlaceOrders{Remedies: []strategy.Remedy{strategy.RemedyCheckpointing, strategy.RemedySplit}, Armed: []strategy.ArmedRemedy{{Remedy: strategy.RemedyCheckpointing, Elements: 4096, Longest: 512}}}
	show(people(&out, false), launcher.Started{N: 1, Plan: first, InPlace: armed})
	if want := ", in place checkpointing (for inputs of at least 4096 elements, or a dimension of 512)\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("%s\nwants %s", out.String(), want)
	}
	out.Reset()
	show(people(&out, false), launcher.Started{Plan: first, InPlace: armed}, launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{Plan: first}}}})
	if want := "  it began with checkpointing (for inputs of at least 4096 elements, or a dimension of 512), which an earlier run needed; --fresh begins as written\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%s\nwants %s", out.String(), want)
	}
	out.Reset()
	events := append([]launcher.Event{launcher.Began{Name: "gpt", Plan: first}, launcher.Started{Plan: first}, launcher.InPlace{InPlace: more, More: 13}}, ranOut(0, lessBatch())...)
	show(people(&out, false), append(events, launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Exhausted, Attempts: []launcher.AttemptSummary{{Plan: first}}}})...)
	if strings.Count(out.String(), "rank 1: out of memory in forward") != 1 {
		t.Error(out.String())
	}
}

// After a rescue in place the summary names what stays changed, its cost, and how the job itself can have it. The next
// run is said to begin with it only if that is remembered.
func TestChangesInPlaceAreSummed(t *testing.T) {
	again := func(remedy strategy.Remedy, parts int) strategy.InPlace {
		return strategy.InPlace{Remedy: remedy, Phase: "forward", Times: 1, Requested: 2 << 30, Elements: 65536, Longest: 4096, Parts: parts}
	}
	for name, test := range map[string]struct {
		again []strategy.InPlace
		armed bool
		want  []string
	}{
		"blocks": {[]strategy.InPlace{again(strategy.RemedyCheckpointing, 0)}, true, []string{
			"; large inputs now recompute activations, and so does the next run; --fresh begins as written\n", "to have it without gpurun, call ",
		}},
		"parts": {[]strategy.InPlace{again(strategy.RemedySplit, 2), again(strategy.RemedySplit, 4)}, false, []string{
			"; large inputs now run in 4 parts\n", "there is no setting for it in PyTorch; where the loss is a mean ",
		}},
	} {
		var out bytes.Buffer
		p := people(&out, false)
		p.Propose = func(plan strategy.Plan, _ strategy.Arguments, _ int) (strategy.Proposal, error) {
			return strategy.Proposal{Turned: strategy.Plan{}.With(plan), Unchanged: true, Armed: test.armed}, nil
		}
		show(p, launcher.Began{Name: "gpt"}, launcher.Started{}, launcher.Ended{}, launcher.Decided{Decision: strategy.Decision{Outcome: strategy.Trained}},
			launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{InPlace: test.again}}}})
		for _, want := range test.want {
			if said := out.String() + strings.Join(p.hints, "\n"); !strings.Contains(said, want) {
				t.Errorf("%s: %s\nwants %s", name, said, want)
			}
		}
		if strings.Contains(out.String(), "2 parts:") || strings.Contains(out.String(), "so does the next run") != test.armed {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}
