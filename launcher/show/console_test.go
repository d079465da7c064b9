package show

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

var (
	start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	first = strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "1"}
	next  = strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "2"}
)

// ranOut is an attempt that ran out of memory, and what was decided.
func ranOut(n int, d strategy.Decision) []launcher.Event {
	diagnosis := strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Phase: cause.Forward, Rank: 1, ExitCode: 1, Because: []int{0}, Advice: "use a larger GPU"}
	return []launcher.Event{
		launcher.Ended{Evidence: strategy.Evidence{Attempt: n, Plan: first, Started: start, Ended: start.Add(90 * time.Second), Facts: []strategy.Fact{
			{Rank: 1, Source: "stderr", Content: &strategy.Finding{Code: cause.CUDAOOM, Raised: true, Text: "OutOfMemoryError: CUDA out of memory", Traceback: []string{"Traceback (most recent call last):", `  File "train.py", line 3, in <module>`}}},
			{Rank: 1, Source: "exit", Content: &strategy.Exit{Code: 1, PID: 42}},
		}}},
		launcher.Decided{Diagnosis: diagnosis, Decision: d},
	}
}

func show(s interface{ Show(launcher.Event) }, events ...launcher.Event) {
	for _, e := range events {
		s.Show(e)
	}
}

func people(w *bytes.Buffer, quiet bool) *People {
	return &People{W: w, Dir: "/runs/r1", Quiet: quiet, Propose: func(p strategy.Plan, _ strategy.Arguments, _ int) (strategy.Proposal, error) {
		return strategy.Proposal{Words: []string{"gpurun", "train.py", "--bs", string(p[strategy.MicroBatchSize]), "it's"}, Env: map[string]string{"B": "2", "A": "1"}}, nil
	}}
}

func lessBatch() strategy.Decision {
	return strategy.Decision{Relaunch: true, Remedy: strategy.RemedyMicroBatch, Next: next, Changed: first.Changed(next), Reason: "attempt 0: CUDA out of memory → micro batch 8→4"}
}

// priced is what lessBatch saved and cost.
var priced = &strategy.Price{
	Changed: first.Changed(next), BytesBefore: 15 << 30, AtLeast: true, BytesAfter: 9 << 30, SecondsAfter: 1.1,
}

func TestRecalledPlanIsShown(t *testing.T) {
	var out bytes.Buffer
	show(people(&out, true), launcher.Began{Name: "gpt", Plan: first, Job: strategy.Job{Recalled: &strategy.Recalled{
		At: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Peak: 71 << 30, Room: 80 << 30,
		Changed: strategy.Changes{strategy.MicroBatchSize: {"16", "8"}, strategy.GradientAccumulationSteps: {"1", "2"}, strategy.ActivationCheckpointing: {"none", "full"}},
	}}})
	if want := "gpurun: starting with the plan that fitted on 21 Nov (micro batch 8, full checkpointing, peak 71 of 80 GiB); --fresh for the job as written\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestTheEndOfARunThatTrained(t *testing.T) {
	var out bytes.Buffer
	p := people(&out, false)
	show(p, launcher.Began{Name: "gpt", Recipe: "none", Place: "host", Plan: first, Job: strategy.Job{Ranks: 2}}, launcher.Started{N: 0, Plan: first})
	show(p, ranOut(0, lessBatch())...)
	show(p, launcher.Started{N: 1, Plan: next, Remedy: strategy.RemedyMicroBatch, Diff: "-8\n+4\n"},
		launcher.Ended{Evidence: strategy.Evidence{Attempt: 1, Plan: next, Started: start, Ended: start.Add(time.Hour)}},
		launcher.Decided{Decision: strategy.Decision{Outcome: strategy.Trained}},
		launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{N: 0, Plan: first}, {N: 1, Plan: next, Price: priced}}}})
	want := `gpurun: job gpt: 2 ranks, recipe none, host
gpurun: run directory: /runs/r1
gpurun: attempt 0: micro_batch_size=8 gradient_accumulation_steps=1
gpurun: attempt 0: CUDA out of memory → micro batch 8→4
gpurun: attempt 1: micro batch 8→4, accumulation 1→2
gpurun: summary: trained after 2 attempts in 1h1m30s
gpurun:   attempt 0, 1m30s: CUDA out of memory in forward on rank 1 → micro batch 8→4, accumulation 1→2
gpurun: hint: to start with this plan next time, type: A=1 B=2 gpurun train.py --bs 4 'it'\''s'
gpurun: logs: /runs/r1/attempt-*/rank*
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// The last twenty lines show what happened, what was tried, what to do, and where the reasons
// against all else are.
func TestTheEndOfARunThatFailed(t *testing.T) {
	var out bytes.Buffer
	skipped := []strategy.Skip{{Remedy: strategy.RemedyAttention, Reason: "nobody knows"}, {Remedy: strategy.RemedyShard, Reason: "there is only one data-parallel rank"}, {Remedy: strategy.RemedyNVMe, Reason: "nobody knows"}}
	p := people(&out, true)
	show(p, launcher.Began{Name: "gpt", Plan: first})
	show(p, ranOut(0, strategy.Decision{Outcome: strategy.Exhausted, Code: 12, Skipped: skipped})...)
	show(p, launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Exhausted, Code: 12, Reason: "attempt 0: nothing is left", Attempts: []launcher.AttemptSummary{{Skipped: skipped}},
		Next: []strategy.Advice{{Kind: strategy.NextRun, Reason: "trains with a smaller batch", Command: "gpurun train.py -b 4"}}}})
	want := `gpurun: Root Cause (first observed failure): rank 1, exitcode  : 1 (pid: 42), logs: /runs/r1/attempt-0/rank1
gpurun: summary: no plan left after 1 attempt in 1m30s
gpurun: error: attempt 0: nothing is left
gpurun: next: 1. trains with a smaller batch
    gpurun train.py -b 4
gpurun: gpurun explain /runs/r1 shows the remedies that were not taken, and why; logs: /runs/r1/attempt-*/rank*
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	if lines := strings.Count(out.String(), "\n"); lines > 20 {
		t.Errorf("%d lines", lines)
	}
}

func TestRecallPrintsNothingAndForgetsNothing(t *testing.T) {
	var out bytes.Buffer
	p := people(&out, false)
	p.Recall(append([]launcher.Event{launcher.Began{Name: "gpt", Plan: first}}, ranOut(0, lessBatch())...))
	if out.Len() > 0 {
		t.Errorf("printed %q", out.String())
	}
	show(p, launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{Plan: first}, {Plan: next}}}})
	if !strings.Contains(out.String(), "attempt 0, 1m30s: CUDA out of memory") {
		t.Errorf("the summary has forgotten attempt 0: %s", out.String())
	}
}

// The summary says of each attempt from where it went on, and of one that ended together
// with an earlier gpurun that it was interrupted, and when it was last heard of.
func TestSummaryNamesTheCheckpoint(t *testing.T) {
	var out bytes.Buffer
	p := people(&out, false)
	p.Dir = t.TempDir()
	heard := filepath.Join(p.Dir, "attempt-1", strategy.SamplesFile)
	if err := errors.Join(os.Mkdir(filepath.Dir(heard), 0o700), os.WriteFile(heard, nil, 0o600), os.Chtimes(heard, start, start.Add(20*time.Minute))); err != nil {
		t.Fatal(err)
	}
	began := launcher.Began{Name: "gpt", Plan: first}
	p.Recall(append(append([]launcher.Event{began, launcher.Started{N: 0, Plan: first}}, ranOut(0, lessBatch())...), launcher.Started{N: 1, Plan: next, Checkpoint: "out/ckpt-10", At: start}))
	show(p, began, launcher.Started{N: 2, Plan: next, Checkpoint: "out/ckpt-30"},
		launcher.Ended{Evidence: strategy.Evidence{Attempt: 2, Plan: next, Started: start, Ended: start.Add(time.Hour)}},
		launcher.Decided{Decision: strategy.Decision{Outcome: strategy.Trained}},
		launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{N: 0, Plan: first}, {N: 1, Plan: next}, {N: 2, Plan: next}}}})
	want := `gpurun:   attempt 0, 1m30s: CUDA out of memory in forward on rank 1 → micro batch 8→4, accumulation 1→2
gpurun:   attempt 1, 20m0s, from checkpoint out/ckpt-10: interrupted
`
	if !strings.Contains(out.String(), want) {
		t.Errorf("no\n%sin\n%s", want, out.String())
	}
}

func TestJSONLines(t *testing.T) {
	var out bytes.Buffer
	j := (&JSON{W: &out})
	show(j, launcher.Noticed{Text: "x"}, launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained, Run: "r1", Attempts: []launcher.AttemptSummary{{N: 0}}}})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines: %s", len(lines), out.String())
	}
	var last struct {
		Kind, Outcome, Run string
		Attempts           []struct{ N int }
	}
	if err := json.Unmarshal([]byte(lines[1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.Kind != "verdict" || last.Outcome != "trained" || last.Run != "r1" || len(last.Attempts) != 1 {
		t.Errorf("last line %s", lines[1])
	}
}

// A run of a Slurm job continues when the job is requeued: gpurun resume would train on the login node.
func TestUnfinishedRunOfSlurmNamesItsRequeue(t *testing.T) {
	var out bytes.Buffer
	p := people(&out, true)
	show(p, launcher.Began{Name: "gpt", Scheduler: "slurm 70_2"}, launcher.Ended{}, launcher.Decided{},
		launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Retry, Attempts: make([]launcher.AttemptSummary, 1)}})
	if want := "gpurun: hint: scontrol requeue 70_2 continues the run; within a job, so does gpurun resume " + p.Dir + "\n"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}

// A run that is not done names the command that continues it, and no other does.
func TestUnfinishedRunNamesTheNextCommand(t *testing.T) {
	for outcome, want := range map[strategy.Outcome]bool{strategy.Stopped: true, strategy.Retry: true, strategy.Failed: false, strategy.Exhausted: false, strategy.Trained: false} {
		var out bytes.Buffer
		p := people(&out, true)
		show(p, launcher.Began{Name: "gpt"}, launcher.Ended{}, launcher.Ended{}, launcher.Decided{},
			launcher.Finished{Verdict: launcher.Verdict{Outcome: outcome, Attempts: make([]launcher.AttemptSummary, 2)}})
		if got := strings.Contains(out.String(), "gpurun: hint: gpurun resume "+p.Dir+" continues the run\n"); got != want {
			t.Errorf("%s: %t\n%s", outcome, got, out.String())
		}
	}
}

// Quiet says one line of a run that goes well at once, and of a rescue how it ended.
func TestQuietStillReportsARescue(t *testing.T) {
	for attempts, want := range map[int]bool{1: false, 2: true} {
		var out bytes.Buffer
		p := people(&out, true)
		tried := make([]launcher.AttemptSummary, attempts)
		tried[0].Plan, tried[attempts-1].Plan = first, next
		show(p, launcher.Began{Name: "gpt", Plan: first}, launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained, Attempts: tried}})
		if got := strings.Contains(out.String(), "summary: trained after 2 attempts"); got != want || !got && strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%d attempts: %q", attempts, out.String())
		}
	}
}

// A user who names a run directory again sees what it holds.
func TestRunDirectoryContentIsReported(t *testing.T) {
	began := launcher.Began{Name: "gpt", Plan: first}
	finished := launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{Plan: first}}}}
	over := launcher.Ended{Evidence: strategy.Evidence{Ended: time.Date(2026, 11, 22, 7, 30, 0, 0, time.Local)}}
	for want, events := range map[string][]launcher.Event{
		"gpurun: resuming the run: attempt 0 was interrupted\n": {began, launcher.Started{N: 0, Plan: first}},
		"gpurun: resuming the run after attempt 0\n":            append([]launcher.Event{began, launcher.Started{N: 0, Plan: first}}, ranOut(0, lessBatch())...),
		"gpurun: job gpt has trained in run r1, on 22 Nov 07:30: this run has already ended with the verdict below; --if-trained run starts the job again\n": {began, launcher.Started{N: 0, Plan: first}, over, finished},
		"gpurun: resuming the run: attempt 0: stopped by SIGTERM\n": {began, launcher.Started{N: 0, Plan: first}, launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Stopped, Code: 143, Reason: "attempt 0: stopped by SIGTERM"}}},
		"gpurun: resuming the run: try again later\n":               {began, launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Retry, Code: 75, Reason: "try again later"}}},
	} {
		var out bytes.Buffer
		p := people(&out, false)
		p.Recall(events)
		show(p, began, finished)
		if n := strings.Count(out.String(), want); n != 1 {
			t.Errorf("%q is there %d times:\n%s", want, n, out.String())
		}
	}
	var decided bytes.Buffer
	p := people(&decided, false)
	p.Recall(append([]launcher.Event{began, launcher.Started{N: 0, Plan: first}}, ranOut(0, strategy.Decision{Outcome: strategy.Exhausted, Code: 12})...))
	if show(p, finished); !strings.Contains(decided.String(), "this run has already ended with the verdict below; --fresh starts the job again, or another") {
		t.Errorf("decided, without a verdict: %s", decided.String())
	}
	var out bytes.Buffer
	p = people(&out, false)
	p.Recall(nil)
	if show(p, began); strings.Contains(out.String(), "this run") {
		t.Errorf("a new run: %s", out.String())
	}
}

// Durations are seconds, under keys that say so.
func TestJSONDurationsAreSeconds(t *testing.T) {
	var b strings.Builder
	j := (&JSON{W: &b})
	show(j, launcher.Began{Policy: strategy.Policy{RestartFromZero: strategy.Seconds(30 * time.Minute)}},
		launcher.Decided{Decision: strategy.Decision{After: strategy.Seconds(time.Minute)}})
	for _, want := range []string{`"restart_from_zero_seconds":1800}`, `"after_seconds":60,`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in %s", want, b.String())
		}
	}
	for _, key := range []string{`"restart_from_zero":`, `"after":`} {
		if strings.Contains(b.String(), key) {
			t.Errorf("%s is in %s", key, b.String())
		}
	}
}

// What filled the memory is shown in five lines of the last failure, and in one of each
// attempt before; nothing where an attempt ended by something else.
func TestWhatFilledTheMemory(t *testing.T) {
	filled := func(n int, d strategy.Decision, top string) []launcher.Event {
		events := ranOut(n, d)
		ended := events[0].(launcher.Ended)
		ended.Evidence.Facts = append(ended.Evidence.Facts,
			strategy.Fact{Rank: 0, Content: &strategy.Snapshot{Reserved: 1 << 30}},
			strategy.Fact{Rank: 1, Content: &strategy.Snapshot{Rank: 1, Reserved: 22 << 30, Allowed: 24 << 30, Requested: 6 << 30,
				Top: []strategy.Allocation{{Bytes: 9 << 30, Count: 4, File: "/j/" + top, Line: 88, Function: "forward"}}}})
		events[0] = ended
		return events
	}
	for _, outcome := range []strategy.Outcome{strategy.Exhausted, strategy.Trained} {
		var out bytes.Buffer
		p := people(&out, true)
		show(p, launcher.Began{Name: "gpt", Plan: first})
		show(p, filled(0, lessBatch(), "mo\x1b[2Jdel.py")...)
		last := strategy.Decision{Outcome: outcome}
		if outcome == strategy.Trained {
			show(p, launcher.Ended{Evidence: strategy.Evidence{Attempt: 1}}, launcher.Decided{Decision: last})
		} else {
			show(p, filled(1, last, "train.py")...)
		}
		show(p, launcher.Finished{Verdict: launcher.Verdict{Outcome: outcome, Attempts: []launcher.AttemptSummary{{N: 0, Plan: first}, {N: 1, Plan: first}}}})
		var got []string
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "memory at") || strings.Contains(line, "   9.0 GiB") {
				got = append(got, strings.TrimPrefix(strings.TrimSpace(line), "gpurun: "))
			}
		}
		var want []string
		if outcome != strategy.Trained { // of that explain has it
			want = []string{`  memory at the failure: 22.0 GiB of 24.0 GiB held, 6.0 GiB more requested, most by train.py:88 forward (9.0 GiB)`}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", outcome, diff)
		}
	}
}

// The summary names the report, and its hints can be had without it; also by who does not
// know the job.
func TestHintsAndReport(t *testing.T) {
	events := []launcher.Event{
		launcher.Began{Plan: strategy.Plan{strategy.MicroBatchSize: "8"}},
		launcher.Started{Plan: strategy.Plan{strategy.MicroBatchSize: "8"}}, launcher.Ended{}, launcher.Decided{Decision: strategy.Decision{Relaunch: true}},
		launcher.Started{N: 1, Plan: strategy.Plan{strategy.MicroBatchSize: "4"}}, launcher.Ended{Evidence: strategy.Evidence{Attempt: 1}}, launcher.Decided{Decision: strategy.Decision{Outcome: strategy.Trained}},
		launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{}, {N: 1, Plan: strategy.Plan{strategy.MicroBatchSize: "4"}}}, Proposal: "a faster plan"}},
	}
	propose := func(strategy.Plan, strategy.Arguments, int) (strategy.Proposal, error) {
		return strategy.Proposal{Words: []string{"train.py", "--api-key", "abcdefgh1234"}}, nil
	}
	want := []string{"to start with this plan next time, type: train.py --api-key '***'", "*** replaces a secret there; /runs/r1/attempt-1/command.json has the whole command", "a faster plan"}
	if got := (People{Dir: "/runs/r1", Propose: propose}).Hints(journal.RunOf(events)); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := (People{Dir: "/runs/r1", Propose: nil}).Hints(journal.RunOf(events)); !slices.Equal(got, want[2:]) {
		t.Errorf("without the job: %q", got)
	}
	for _, quiet := range []bool{false, true} {
		var out strings.Builder
		p := &People{W: &out, Dir: "/runs/r1", Quiet: quiet, Propose: propose}
		p.Report = "/runs/r1/report.html"
		for _, e := range events {
			p.Show(e)
		}
		if !strings.HasSuffix(out.String(), "gpurun: report: /runs/r1/report.html; logs: /runs/r1/attempt-*/rank*\n") {
			t.Errorf("quiet %t:\n%s", quiet, out.String())
		}
	}
}
