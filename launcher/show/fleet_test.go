package show

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// fleetRun is the journal of a run with two gpuruns, in which each attempt but the last ran out of memory.
func fleetRun(attempts int, middle string) []launcher.Event {
	first := runBegan("gpt", 1)
	second := runBegan("gpt", 90)
	events := []launcher.Event{first}
	var v launcher.Verdict
	for n := range attempts {
		plan := strategy.Plan{"micro_batch_size": strategy.Value(fmt.Sprint(1 << (attempts - 1 - n)))}
		why := cause.CUDAOOM
		if n == attempts-1 {
			why = cause.None
			events = append(events, second)
		}
		events = append(events, launcher.Started{N: n, Plan: plan, At: morning, Command: strategy.Command{Argv: []string{"python3", "src/gpt.py"}}},
			launcher.Ended{Evidence: strategy.Evidence{Attempt: n, Plan: plan, Facts: []strategy.Fact{{Content: strategy.Gap(middle)}}}},
			launcher.Decided{Diagnosis: strategy.Diagnosis{Cause: why}, Decision: strategy.Decision{Relaunch: why != cause.None, Reason: middle}, GPUTime: &strategy.GPUTime{Total: 7200, Lost: 60, Rescues: 1}})
		v.Attempts = append(v.Attempts, launcher.AttemptSummary{N: n, Plan: plan, Cause: why})
	}
	v.Outcome, v.Reason, v.Model, v.GPUTime = strategy.Trained, "attempt 1: trained", "GPT2LMHeadModel 124M", &strategy.GPUTime{Total: 7200, Lost: 60, Rescued: 7000, Rescues: 1}
	return append(events, launcher.Finished{Verdict: v, Since: second.At, Started: attempts})
}

// TestSummaryListsTheSameAsTheWholeJournal: also where the verdict is long, and in journals of earlier versions.
func TestSummaryListsTheSameAsTheWholeJournal(t *testing.T) {
	long := fleetRun(3, strings.Repeat("x", 40<<10))
	verdict := long[len(long)-1].(launcher.Finished)
	verdict.Verdict.Reason = strings.Repeat("r", 30<<10)
	earlier := fleetRun(3, strings.Repeat("x", 40<<10))
	earlier[len(earlier)-1] = launcher.Finished{Verdict: verdict.Verdict}
	unstarted := fleetRun(2, "")
	last := unstarted[len(unstarted)-1].(launcher.Finished)
	last.Started, last.Verdict.Attempts = 2, append(last.Verdict.Attempts, launcher.AttemptSummary{N: 2, Plan: strategy.Plan{"micro_batch_size": "64"}, Cause: cause.UserError})
	unstarted[len(unstarted)-1] = last
	for name, events := range map[string][]launcher.Event{
		"short": fleetRun(2, ""), "long": fleetRun(3, strings.Repeat("x", 40<<10)), "one attempt": fleetRun(1, strings.Repeat("x", 40<<10)),
		"a long verdict": append(long[:len(long)-1:len(long)-1], verdict), "of an earlier version": earlier,
		"cut off": long[:len(long)-1], "an attempt that could not be started": unstarted,
	} {
		dir := writeRun(t, filepath.Join(t.TempDir(), "gpt", "run"), events...)
		got := LookAtRun(dir)
		whole, _, err := journal.Outline(dir)
		want := Entry{Path: dir, Name: "run", Job: "gpt"}
		run := journal.RunOf(whole)
		want.fill(run)
		want.count(run)
		end := run.End()
		if err != nil || end == nil && got.End != nil || end != nil && (got.Code != end.Code || got.Reason != end.Reason) {
			t.Fatalf("%s: ends with %+v, want %+v (%v)", name, got.End, end, err)
		}
		for _, pair := range [][2]any{
			{got.Job, want.Job}, {got.Script, want.Script}, {got.Began, want.Began}, {got.Since, want.Since}, {got.Attempts, want.Attempts}, {got.Changed, want.Changed},
			{got.Plan, want.Plan}, {got.Causes, want.Causes}, {got.GPUTime, want.GPUTime}, {got.Model, want.Model},
		} {
			if diff := cmp.Diff(pair[1], pair[0]); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		if got.Began.Equal(got.Since) || got.Script != "src/gpt.py" || got.User == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// reads returns how many bytes this process has read, by how many system calls.
func reads(t *testing.T) (bytes, calls int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip(err)
	}
	if _, err := fmt.Sscanf(strings.ReplaceAll(string(text), "\n", " "), "rchar: %d wchar: %d syscr: %d", &bytes, new(int), &calls); err != nil {
		t.Fatal(err)
	}
	return bytes, calls
}

// TestListingReadsTheEndsOfJournals: what is read of a run does not grow with its journal, whose middle has
// the evidence of all ranks. 10,000 runs take 3 s at most at 300 µs each.
func TestListingReadsTheEndsOfJournals(t *testing.T) {
	const runs, mostBytes, mostCalls = 40, 40 << 10, 10
	dir := t.TempDir()
	for i := range runs {
		writeRun(t, filepath.Join(dir, fmt.Sprintf("user%d/work/.gpurun/gpt/run%d", i%4, i)), fleetRun(3, strings.Repeat("x", 100<<10))...)
	}
	bytes, calls := reads(t)
	all, err := MeasuredRuns(dir)
	bytesAfter, callsAfter := reads(t)
	if err != nil || len(all) != runs || all[0].Outcome != "trained" {
		t.Fatalf("%d runs, %v", len(all), err)
	}
	per, perCalls := (bytesAfter-bytes)/runs, (callsAfter-calls)/runs
	t.Logf("%d bytes and %d reads a run, of journals of %d bytes", per, perCalls, 600<<10)
	if per > mostBytes || perCalls > mostCalls {
		t.Errorf("%d bytes and %d reads a run, want at most %d and %d", per, perCalls, mostBytes, mostCalls)
	}
}

// BenchmarkTenThousandRuns lists the runs of 20 users.
func BenchmarkTenThousandRuns(b *testing.B) {
	dir := b.TempDir()
	events := fleetRun(2, strings.Repeat("x", 4<<10))
	var text []byte
	for _, e := range events {
		line, err := launcher.Encode(e, morning)
		if err != nil {
			b.Fatal(err)
		}
		text = append(append(text, line...), '\n')
	}
	for i := range 10_000 {
		run := filepath.Join(dir, fmt.Sprintf("user%d/work%d/.gpurun/gpt/run%d", i%20, i%5, i))
		if err := os.MkdirAll(filepath.Join(run, "attempt-0", "rank0"), 0o755); err != nil {
			b.Fatal(err)
		}
		for name, text := range map[string]string{journal.File: string(text), "lock": "host n, pid 1\n", "verdict.json": "{}", "attempt-0/rank0/stdout.log": "x"} {
			if err := os.WriteFile(filepath.Join(run, name), []byte(text), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	for b.Loop() {
		if all, err := MeasuredRuns(dir); err != nil || len(all) != 10_000 {
			b.Fatalf("%d, %v", len(all), err)
		}
	}
}
