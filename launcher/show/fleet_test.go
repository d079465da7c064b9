package show

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	return append(events, launcher.Finished{Verdict: v})
}

// TestListedRunHasWhatItCost: by its journal, also if its verdict was not written.
func TestListedRunHasWhatItCost(t *testing.T) {
	events := fleetRun(3, "")
	for name, events := range map[string][]launcher.Event{"ended": events, "cut off": events[:len(events)-1]} {
		got := LookAtRun(writeRun(t, filepath.Join(t.TempDir(), "gpt", "run"), events...))
		if got.Causes[cause.CUDAOOM] != 2 || got.GPUTime == nil || got.GPUTime.Lost != 60 || got.Attempts != 3 ||
			got.Script != "src/gpt.py" || got.User == "" || got.Began.Equal(got.Since) || (got.Model != "") != (name == "ended") {
			t.Errorf("%s: %+v", name, got)
		}
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
