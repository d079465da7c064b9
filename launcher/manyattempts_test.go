package launcher

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// manyAttempts is a run whose network fails again and again, each time after a new checkpoint.
func manyAttempts(n int) []Event {
	begin := time.Unix(1_700_000_000, 0).UTC()
	plan := strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "4"}
	events := []Event{Began{Run: "r", Job: strategy.Job{Ranks: 8}, Plan: plan, At: begin}}
	resume := ""
	for i := range n {
		at := begin.Add(time.Duration(i) * 10 * time.Minute)
		saved := at.Add(7 * time.Minute)
		inventory := strategy.Inventory{At: at.Add(9 * time.Minute), Checkpoint: fmt.Sprintf("out/ckpt-%d", i), CheckpointWritten: saved}
		evidence := strategy.Evidence{Attempt: i, Plan: plan, Ranks: 8, Started: at, Ended: at.Add(9 * time.Minute), Facts: []strategy.Fact{
			{Rank: 3, Source: "stderr", Content: &strategy.Finding{Code: cause.NCCLError, Raised: true, Rank: 3, Phase: cause.Collective, Line: 1, Text: "torch.distributed.DistBackendError: NCCL error"}},
			{Rank: 3, Source: "exit", Content: &strategy.Exit{Code: 1}},
			{Rank: 0, Source: "stdout", Content: &strategy.Progress{Steps: 100, First: 100 * i, Last: 100*i + 99}},
		}}
		events = append(events, Started{N: i, Plan: plan, Checkpoint: resume, Written: saved.Add(-10 * time.Minute), Rescue: i > 0, At: at}, Ended{Evidence: evidence},
			Decided{Decision: strategy.Decision{Relaunch: true, Rule: "transient", Next: plan, Resume: inventory.Checkpoint}, Inventory: inventory})
		resume = inventory.Checkpoint
	}
	return events
}

// costOf returns the bytes that a fold allocates, and those that its result keeps.
func costOf(fold func() any) (allocated, kept int64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	result := fold()
	runtime.ReadMemStats(&after)
	allocated = int64(after.TotalAlloc - before.TotalAlloc)
	runtime.GC()
	runtime.ReadMemStats(&after)
	kept = int64(after.HeapAlloc) - int64(before.HeapAlloc)
	runtime.KeepAlive(result)
	return allocated, kept
}

// TestAttemptsAreFoldedInLinearTime: a journal of four times as many attempts takes four times the work and
// the memory. An attempt keeps what later decisions and the verdict read, at most 2 KiB.
func TestAttemptsAreFoldedInLinearTime(t *testing.T) {
	const few, many, mostKept = 1_000, 4_000, 2 << 10
	resume := func(events []Event) func() any {
		return func() any { s, _ := Resume(nil, "r", events); return s }
	}
	allocated, _ := costOf(resume(manyAttempts(few)))
	events := manyAttempts(many)
	allocatedMany, kept := costOf(resume(events))
	t.Logf("%d attempts: %d bytes allocated; %d: %d, and %d kept for each", few, allocated, many, allocatedMany, kept/many)
	if allocatedMany > allocated*5 {
		t.Errorf("%d attempts allocate %d bytes, %d attempts %d: not linear", few, allocated, many, allocatedMany)
	}
	if kept > many*mostKept {
		t.Errorf("an attempt keeps %d bytes, want at most %d", kept/many, mostKept)
	}
	s, _ := Resume(nil, "r", events)
	decide := func(history []strategy.Attempt) func() any {
		return func() any {
			return strategy.Decide(strategy.Policy{Mode: strategy.Predict, MaxAttempts: 2 * many, TransientRetries: 3}, s.Job, history, s.inventory)
		}
	}
	one, _ := costOf(decide(s.History[:few]))
	oneMany, _ := costOf(decide(s.History))
	t.Logf("a decision allocates %d bytes after %d attempts, %d after %d", one, few, oneMany, many)
	if oneMany > one*5 {
		t.Errorf("a decision allocates %d bytes after %d attempts, and %d after %d", one, few, oneMany, many)
	}
	want := strategy.GPUTime{Total: 8 * 540 * many, Lost: 8 * 120 * many, Rescued: 8 * 420 * (many - 1), Rescues: many - 1}
	if len(s.History) != many || len(s.Verdict.Attempts) != many || *s.Verdict.GPUTime != want {
		t.Errorf("%d attempts, %d in the verdict, %+v, want %+v", len(s.History), len(s.Verdict.Attempts), *s.Verdict.GPUTime, want)
	}
}
