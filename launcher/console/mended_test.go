package console

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// The end is told even where nothing else is.
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

// A run that goes on when it is started again is not called by its word for programs.
func TestUnfinishedIsReported(t *testing.T) {
	var out bytes.Buffer
	show(people(&out, false), launcher.Began{Name: "gpt"}, launcher.Ended{}, launcher.Decided{Decision: strategy.Decision{Outcome: strategy.Retry}},
		launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Retry, Code: 75, Attempts: []launcher.AttemptSummary{{}}}})
	if said := out.String(); !strings.Contains(said, "summary: not finished (75) after 1 attempt") || !strings.Contains(said, "attempt 0: not finished (75)") || strings.Contains(said, "retry") {
		t.Error(said)
	}
}

// What the user set is named as the user set it: the flag, and the job's own minimum.
func TestHintsNameTheCauseOfTheStop(t *testing.T) {
	j := strategy.Job{Ceiling: 1 << 30, Knobs: map[strategy.Knob]strategy.Range{strategy.MicroBatchSize: {Min: 8}}}
	oom := strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true}
	for _, typed := range [][]string{{"train.toml"}, {"--device-memory", "1GiB", "train.toml"}, {"--device-memory=1GiB", "train.toml"}} {
		var out bytes.Buffer
		p := people(&out, true)
		p.Typed = typed
		show(p, launcher.Began{Name: "gpt", Plan: first, Job: j}, launcher.Started{Plan: first}, launcher.Ended{Evidence: strategy.Evidence{Plan: first}},
			launcher.Decided{Diagnosis: oom, Decision: strategy.Decision{Outcome: strategy.Exhausted}},
			launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Exhausted, Attempts: []launcher.AttemptSummary{{Plan: first}}}})
		want := "limits.device_memory holds each rank to 1.0 GiB"
		if len(typed) > 1 {
			want = "--device-memory holds each rank to 1.0 GiB"
		}
		if said := out.String(); !strings.Contains(said, want) || !strings.Contains(said, "hint: micro_batch_size has min = 8, which ended the search") {
			t.Errorf("%v: %s", typed, said)
		}
	}
	if got := (paste{model.Proposal{Words: []string{"train.py"}, Remembered: true}}).hints(); len(got) != 1 || !strings.HasPrefix(got[0], "the next start begins with this plan by itself; ") {
		t.Errorf("%q", got)
	}
}
