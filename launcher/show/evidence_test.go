package show

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// failedAlike is a run of eight ranks that all fail with the same error of the job's own.
func failedAlike() []launcher.Event {
	lines := []string{"Traceback (most recent call last):", `  File "/home/u/train.py", line 41, in setup`, `    return cfg["lr"]`}
	var facts []strategy.Fact
	for rank := range 8 {
		for _, source := range []string{"probe", "stderr"} {
			facts = append(facts, strategy.Fact{Time: day.Add(time.Minute), Rank: rank, Source: source, Content: &strategy.Finding{
				Code: cause.UserError, Raised: true, Top: true, Rank: -1, Stream: fmt.Sprint(source, rank), Seq: 1, Line: 7 + rank, Text: "KeyError: 'lr'", Traceback: lines}})
		}
		facts = append(facts, strategy.Fact{Time: day.Add(time.Minute), Rank: rank, Source: "exit", Content: &strategy.Exit{Code: 1, PID: 100 + rank}})
	}
	facts = append(facts, strategy.Fact{Source: "probe", Content: &strategy.Snapshot{Allocated: 1 << 30, Reserved: 1 << 30}})
	evidence := strategy.Evidence{Ranks: 8, Facts: facts, Started: day, Ended: day.Add(time.Minute)}
	diagnosis := strategy.Diagnose(evidence)
	decision := strategy.Decision{Rule: "job-failed", Outcome: strategy.Failed, Code: 1, Reason: "attempt 0: " + diagnosis.Sentence()}
	return []launcher.Event{
		launcher.Began{Run: "r", Name: "gpt", At: day, Job: strategy.Job{Ranks: 8}}, launcher.Started{N: 0, At: day},
		launcher.Ended{Evidence: evidence}, launcher.Decided{Diagnosis: diagnosis, Decision: decision},
		launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Failed, Code: 1, Reason: decision.Reason}},
	}
}

// What a job failed of by itself comes before its memory, and once for all ranks.
func TestJobsOwnErrorComesFirst(t *testing.T) {
	dir := journaled(t, failedAlike()...)
	page := pageOf(t, dir)
	before := -1
	for _, part := range []string{
		`<section id="error">`, "KeyError: &#39;lr&#39;", "/home/u/train.py:41, in setup: return cfg[&#34;lr&#34;]", "</section>", `id="attempt-0"`,
		"<li>ranks 0–7, gpurun&#39;s hook and stderr: KeyError: &#39;lr&#39;</li>", "<summary>traceback</summary>", "What the allocator of rank 0 held",
	} {
		at := strings.Index(page[max(before, 0):], part)
		if at < 0 {
			t.Fatalf("%q is missing, or comes before the one before it", part)
		}
		before = max(before, 0) + at
	}
	if n := strings.Count(page, "ended with exit code 1"); n != 1 {
		t.Errorf("the exits are told %d times", n)
	}
	rescued, _ := rescued(t)
	if strings.Contains(pageOf(t, rescued), `<section id="error">`) {
		t.Error("a run that trained has an error")
	}
}

// An attempt that ended together with gpurun lasted until it was last heard of.
func TestInterruptedAttemptHasATime(t *testing.T) {
	dir := journaled(t, launcher.Began{Run: "r", Name: "gpt", At: day}, launcher.Started{N: 0, At: day}, launcher.Began{Run: "r", Name: "gpt", At: day.Add(time.Hour)}, launcher.Started{N: 1, At: day.Add(time.Hour)})
	a := ranFrom(launcher.Started{N: 0, At: day}, strategy.Evidence{Started: day, Ended: day.Add(90 * time.Second)})
	sampled(t, dir, a, course{ranks: 1, steps: 60, held: 1 << 30, peak: 2 << 30, allowed: 8 << 30})
	if page := pageOf(t, dir); !strings.Contains(page, "1m30s</span>") || !strings.Contains(page, "cut off together with gpurun") {
		t.Error("no time of the attempt that was cut off")
	}
}

// An attempt has the steps that were done again in place, and what they cost.
func TestRepeatsInPlaceAreReported(t *testing.T) {
	again := strategy.InPlace{Remedy: strategy.RemedyCheckpointing, Phase: "forward", Step: 7, LastStep: 8, Times: 2, Seconds: strategy.Seconds(time.Second), Elements: 4096, Longest: 512}
	events := failedAlike()
	ranked := again
	ranked.Rank = 3
	ranked.Trials = []strategy.Trial{{Recomputed: 12, Blocks: 12, Steps: 1}, {Recomputed: 3, Blocks: 12, Steps: 3, Peak: 20 << 30, Kept: true}}
	events = append(events[:2:2], append([]launcher.Event{launcher.InPlace{InPlace: ranked}}, events[2:]...)...)
	page := pageOf(t, journaled(t, events...))
	for _, want := range []string{"2 steps repeated in place with activation checkpointing (1.00 s)", "rank 3: out of memory in forward at step 7;", "3 of 12 blocks recomputed: 3 steps, peak 20.0 GiB; kept"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// The cause of an attempt says why its processes did not do the step again.
func TestCauseNamesWhyAStepWasNotRepeated(t *testing.T) {
	evidence := strategy.Evidence{Facts: []strategy.Fact{{Source: "probe", Content: &strategy.ProcessReport{PID: 1, InPlaceRefused: &strategy.InPlaceRefusal{Phase: "forward", Reason: "the model is compiled"}}}}}
	a := &journal.AttemptState{Evidence: evidence, Started: launcher.Started{InPlace: &strategy.InPlaceOrders{}}}
	a.Diagnosis = strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Phase: cause.Forward}
	view := attemptView{ReportedAttempt: &ReportedAttempt{AttemptState: a}}
	if words := view.Cause(); !strings.HasSuffix(words, "; the step could not be repeated in place: the model is compiled") {
		t.Error(words)
	}
}
