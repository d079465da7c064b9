package show

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// The figures of the page are those of the journal and of the last samples.
func TestFiguresComeFromTheJournal(t *testing.T) {
	dir, d := rescued(t)
	page := pageOf(t, dir)
	events, err := journal.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var verdict launcher.Verdict
	for _, e := range events {
		if f, ok := e.(launcher.Finished); ok {
			verdict = f.Verdict
		}
	}
	peaks := elements(page, "data-predicted-mean")
	if len(peaks) != 2 {
		t.Fatalf("%d peaks", len(peaks))
	}
	for i, a := range verdict.Attempts {
		if got := peaks[i].number("data-peak-bytes"); got != a.Peak {
			t.Errorf("attempt %d: the peak is %d, the verdict has %d", i, got, a.Peak)
		}
		if i == 0 {
			continue
		}
		if m, b := peaks[i].number("data-predicted-mean"), peaks[i].number("data-predicted-bound"); m != a.Predicted[0] || b != a.Predicted[1] {
			t.Errorf("attempt %d: predicted %d–%d, the verdict has %d", i, m, b, a.Predicted)
		}
	}
	bars := elements(page, "data-milliseconds")
	for i, a := range d.Attempts {
		if got := bars[i].number("data-milliseconds"); got != a.Evidence.Ended.Sub(a.Evidence.Started).Milliseconds() {
			t.Errorf("attempt %d: a bar of %d ms", i, got)
		}
	}
	losses := elements(page, "data-loss")
	if len(losses) != 2 || losses[0]["data-attempt"] != "0" || losses[1].number("data-step") != 899 {
		t.Errorf("the losses are %v", losses)
	}
	if !strings.Contains(page, `data-outcome="trained"`) {
		t.Error("the outcome is missing")
	}
}

// The stacks are what was measured, before and after the change, and their parts add up.
func TestStacksShowMeasurements(t *testing.T) {
	for name, held := range map[string][2]int64{"lightning": {9431919616, 7324835328}, "deepspeed": {6782537728, 5019397632}} {
		page := pageOf(t, copied(t, name))
		rows := elements(page, "data-held-bytes")
		if len(rows) != 2 {
			t.Fatalf("%s: %d stacks", name, len(rows))
		}
		for i, row := range rows {
			sum := int64(0)
			for _, part := range elements(page, "data-part") {
				if part["data-attempt"] == fmt.Sprint(i) {
					sum += part.number("data-bytes")
				}
			}
			if row.number("data-held-bytes") != held[i] || sum != held[i] {
				t.Errorf("%s, attempt %d: held %v, parts %d, want %d", name, i, row, sum, held[i])
			}
		}
	}
}

// The page of a run that did not train has its next steps: the reason, the command, the diff.
func TestReportShowsTheNextSteps(t *testing.T) {
	v := launcher.Verdict{Outcome: strategy.Failed, Reason: "it failed", Attempts: []launcher.AttemptSummary{}, Next: []strategy.Advice{
		{Kind: strategy.NextPatch, Reason: "makes train.py:8 an argument", Command: "git apply next.patch", Diff: "--- a/train.py\n+++ b/train.py\n-BATCH = 64\n+BATCH = args.batch\n"},
		{Kind: strategy.NextHardware, Reason: "a card of 24 GB would do"},
	}}
	dir := journaled(t, launcher.Began{Name: "gpt", At: day}, launcher.Started{At: day}, launcher.Ended{}, launcher.Decided{Decision: strategy.Decision{Outcome: strategy.Failed}}, launcher.Finished{Verdict: v})
	if err := os.WriteFile(filepath.Join(dir, journal.HintsFile), []byte(`["another hint"]`), 0o600); err != nil {
		t.Fatal(err)
	}
	page := pageOf(t, dir)
	for _, want := range []string{
		`<dd>makes train.py:8 an argument: <code class="paste">git apply next.patch</code><pre class="diff">--- a/train.py`, "BATCH = args.batch\n</pre>", "<dd>a card of 24 GB would do</dd>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(page, "another hint") {
		t.Error("the hints are shown as well")
	}
}

// What readers look for first comes first: the outcome, the cause, the change, the hint.
func TestTheOrderOfThePage(t *testing.T) {
	dir, _ := rescued(t)
	if err := os.WriteFile(filepath.Join(dir, journal.HintsFile), []byte(`["to start with this plan next time, type: torchrun train.py --gradient_checkpointing true"]`), 0o600); err != nil {
		t.Fatal(err)
	}
	page, at := pageOf(t, dir), 0
	for _, words := range []string{
		`data-outcome="trained"`, "after 2 attempts in 1m13s", "<h1>two</h1>", "attempt 0: CUDA out of memory in forward on rank 0", "checkpointing none→full, allocator default→expandable",
		"to start with this plan next time, type", `<code class="paste">torchrun train.py --gradient_checkpointing true</code>`,
		"<h2>Attempts</h2>", "<h2>What filled the memory</h2>", "<h2>Loss</h2>", `<details id="attempt-0"`, "runner-up", "slower: a step takes 1.03 times as long",
		"torch.OutOfMemoryError", "precision: precision is already bf16", `<details id="attempt-1"`, "predicted 5.4–5.8, measured 4.7 GiB: 13.1 % below the mean", "--gradient_checkpointing false",
		"<h2>Environment</h2>", "hf-trainer", "2 × NVIDIA H200", "mode predict", "<h2>Files</h2>", `<a href="journal.jsonl">`, `<a href="attempt-0/samples.jsonl">`, "written by gpurun v9",
	} {
		i := strings.Index(page[at:], words)
		if i < 0 {
			t.Fatalf("%q does not follow in %d bytes of %d", words, at, len(page))
		}
		at += i
	}
}

// What is not known is described by text, or omitted.
func TestUnknownValues(t *testing.T) {
	page := pageOf(t, copied(t, "lightning"))
	for _, words := range []string{"memory by phase"} {
		if !strings.Contains(page, words) {
			t.Errorf("%q is missing", words)
		}
	}
	for _, words := range []string{"<h2>Loss</h2>", "saved and cost", "NaN", "%!", "<nil>", "ZgotmplZ"} {
		if strings.Contains(page, words) {
			t.Errorf("%q is there", words)
		}
	}
}

// TestReportOfTenThousandAttemptsIsSmall: it shows the first and the last ones.
func TestReportOfTenThousandAttemptsIsSmall(t *testing.T) {
	const attempts = 10_000
	plan := strategy.Plan{"micro_batch_size": "8"}
	events := []launcher.Event{launcher.Began{Run: "r", Name: "gpt", At: day, Plan: plan}}
	var v launcher.Verdict
	for n := range attempts {
		at := day.Add(time.Duration(n) * time.Minute)
		events = append(events, launcher.Started{N: n, Plan: plan, At: at},
			launcher.Ended{Evidence: strategy.Evidence{Attempt: n, Plan: plan, Ranks: 8, Started: at, Ended: at.Add(50 * time.Second)}},
			launcher.Decided{Diagnosis: strategy.Diagnosis{Cause: cause.NCCLError, Fatal: true, Rank: 3}, Decision: strategy.Decision{Relaunch: true, Reason: "attempt: NCCL error"}})
		v.Attempts = append(v.Attempts, launcher.AttemptSummary{N: n, Plan: plan, Cause: cause.NCCLError, Seconds: strategy.Seconds(50 * time.Second)})
	}
	v.Outcome, v.Reason = strategy.Failed, "attempt 9999: NCCL error"
	page := pageOf(t, journaled(t, append(events, launcher.Finished{Verdict: v})...))
	for _, want := range []string{"attempt 0", "attempt 9999", "after 10000 attempts"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
}

// TestReportShowsLostGPUTime: in its head, where something was lost.
func TestReportShowsLostGPUTime(t *testing.T) {
	run := func(g *strategy.GPUTime) string {
		v := launcher.Verdict{Outcome: strategy.Trained, GPUTime: g, Attempts: []launcher.AttemptSummary{{}}}
		return pageOf(t, journaled(t, launcher.Began{Run: "r", Name: "gpt", At: day}, launcher.Started{At: day}, launcher.Ended{}, launcher.Decided{}, launcher.Finished{Verdict: v}))
	}
	const want = "<dt>time</dt><dd>used 2.5 GPU-h, 31 GPU-s of it for nothing</dd>"
	if page := run(&strategy.GPUTime{Total: 9000, Lost: 31, Rescued: 8640, Rescues: 1}); !strings.Contains(page, want) {
		t.Errorf("no %q in\n%.3000s", want, page)
	}
	if page := run(&strategy.GPUTime{Total: 9000}); strings.Contains(page, "<dt>time</dt>") {
		t.Error("nothing was lost")
	}
}
