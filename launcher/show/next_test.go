package show

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// TestSummaryOfALongRunIsBounded: the process that ran it prints the same as gpurun verdict, with the time of all attempts.
func TestSummaryOfALongRunIsBounded(t *testing.T) {
	for _, outcome := range []strategy.Outcome{strategy.Trained, strategy.Failed} {
		const attempts = journal.Recent + 30
		v := launcher.Verdict{Outcome: outcome, Reason: "the end"}
		events := []launcher.Event{launcher.Began{Name: "gpt", Plan: first}}
		for n := range attempts {
			events = append(events, launcher.Started{N: n, Plan: first}, launcher.Ended{Evidence: strategy.Evidence{Attempt: n, Started: time.Unix(0, 0), Ended: time.Unix(60, 0)}},
				launcher.Decided{Decision: strategy.Decision{Relaunch: n < attempts-1, Outcome: outcome}})
			v.Attempts = append(v.Attempts, launcher.AttemptSummary{N: n})
		}
		var live, later bytes.Buffer
		p := people(&live, true)
		p.Recall(events[:1])
		show(p, append(events[1:], launcher.Finished{Verdict: v})...)
		WriteVerdict(&later, p.Dir, journal.RunOf(events), v, "")
		_, end, _ := strings.Cut(live.String(), "gpurun: summary: ")
		if _, same, _ := strings.Cut(later.String(), "gpurun: summary: "); end != same || !strings.Contains(end, " after 130 attempts in 2h10m0s") || strings.Count(end, "\n") > journal.Recent+10 {
			t.Errorf("%s: printed\n%s\nand later\n%s", outcome, end, same)
		}
		lines := strings.Split(end, "\n")
		gap := slices.IndexFunc(lines, func(line string) bool { return strings.HasSuffix(line, " more attempts") })
		if gap < 0 || lines[gap] != "gpurun:   … 124 more attempts" {
			t.Errorf("%s:\n%s", outcome, end)
		}
	}
}

// TestEndFitsAScreen: after the traceback, the end of a run that did not train takes at most 19 rows of 100
// columns, with every command whole; of a diff it shows all or nothing.
func TestEndFitsAScreen(t *testing.T) {
	diff := func(lines int) string {
		return "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n" + strings.Repeat("+    parser.add_argument(\"--accum\", type=int, default=1)\n", lines)
	}
	for _, test := range []struct {
		attempts, diff int
		shown          bool
	}{{1, 4, true}, {1, 40, false}, {3, 8, false}, {20, 0, true}, {20, 30, false}} {
		var out bytes.Buffer
		p := people(&out, true)
		p.Report = "/runs/r1/report.html"
		show(p, launcher.Began{Name: "gpt", Plan: first})
		v := launcher.Verdict{Outcome: strategy.Exhausted, Reason: "attempt 1: CUDA out of memory in backward on rank 0 (wanted 2.0 GiB, 0.3 GiB free of 80 GiB); no allowed plan fits"}
		oom := strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Phase: cause.Backward, Rank: 0}
		for n := range test.attempts {
			show(p, launcher.Started{N: n, Plan: first}, launcher.Ended{Evidence: strategy.Evidence{Attempt: n, Started: time.Unix(0, 0), Ended: time.Unix(60, 0)}},
				launcher.Decided{Diagnosis: oom, Decision: strategy.Decision{Relaunch: n < test.attempts-1, Outcome: strategy.Exhausted, Changed: strategy.Changes{
					strategy.MicroBatchSize: {"64", "32"}, strategy.GradientAccumulationSteps: {"1", "2"}, strategy.ActivationCheckpointing: {"none", "full"}, strategy.Allocator: {"default", "expandable"},
				}}})
			v.Attempts = append(v.Attempts, launcher.AttemptSummary{N: n})
		}
		command := "gpurun --numerics mixed-precision python train.py --batch-size 64"
		v.Next = []strategy.Advice{
			{Kind: strategy.NextPatch, Reason: "adds the arguments", Command: "git apply next.patch && " + command, Diff: diff(test.diff)},
			{Kind: strategy.NextPolicy, Reason: "allows precision fp32→bf16", Command: command},
			{Kind: strategy.NextHardware, Reason: "held between steps: parameters 154 = 462 of 436 MiB usable"},
		}
		show(p, launcher.Finished{Verdict: v})
		_, end, found := strings.Cut(out.String(), "gpurun: summary: ")
		lines := strings.Split(strings.TrimSuffix(end, "\n"), "\n")
		if n := rows(lines); !found || n > screenRows {
			t.Errorf("%d attempts: %d rows\n%s", test.attempts, n, end)
		}
		for _, want := range []string{
			"gpurun: error: " + v.Reason + "\n", "gpurun: next: 1. adds the arguments\n    git apply next.patch && " + command + "\n",
			"gpurun: next: 2. allows precision fp32→bf16\n    " + command + "\n", "gpurun: report: ",
		} {
			if !strings.Contains(end, want) {
				t.Errorf("%d attempts: no %q in\n%s", test.attempts, want, end)
			}
		}
		if n := strings.Count(end, "add_argument"); n != map[bool]int{true: test.diff}[test.shown] {
			t.Errorf("%d attempts: %d of %d lines of the diff are shown\n%s", test.attempts, n, test.diff, end)
		}
	}
}

// TestNextStepsAreHints: the report and gpurun status show the same steps as the end of the run.
func TestNextStepsAreHints(t *testing.T) {
	var out bytes.Buffer
	p := people(&out, true)
	show(p, launcher.Began{Name: "gpt"}, launcher.Ended{}, launcher.Decided{Decision: strategy.Decision{Outcome: strategy.Failed}})
	v := launcher.Verdict{Outcome: strategy.Failed, Attempts: make([]launcher.AttemptSummary, 1), Next: []strategy.Advice{
		{Kind: strategy.NextInspect, Reason: "look at train.py:3", Command: "tail -n 20 log"}, {Kind: strategy.NextHardware, Reason: "a card of 24 GB would do"},
	}}
	show(p, launcher.Finished{Verdict: v})
	if got := strings.Join(p.hints, "\n"); got != "look at train.py:3: tail -n 20 log\na card of 24 GB would do" {
		t.Errorf("%q", got)
	}
}
