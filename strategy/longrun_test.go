package strategy

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// longRun is a history of n measured attempts that the network ended, each after a new checkpoint, before one that ends
// with a diagnosis.
func longRun(n int, last Diagnosis) []Attempt {
	var history []Attempt
	for i := range n {
		a := ended(i, sixteen, Diagnosis{Cause: cause.NCCLError, Fatal: true, Rank: 0})
		a.Checkpoint, a.CheckpointWritten = fmt.Sprint("ckpt-", i), a.Ended
		a.Observed = Plan{MicroBatchSize: "16", DataloaderWorkers: "4"}
		a.Measured = []memory.Measurement{recomputed(16)}
		history = append(history, a)
	}
	history[n-1].Diagnosis = last
	return history
}

// decisions are what gpurun decides about a long run.
func decisions(most int) map[string]func(history []Attempt) {
	policy := predicting(func(p *Policy) { p.MaxAttempts, p.Restarts, p.InPlace = 2*most, 2*most, true })
	return map[string]func(history []Attempt){
		"a failure of the job":   func(h []Attempt) { Decide(policy, gpt(1), h, h100) },
		"the prices of a run":    func(h []Attempt) { Prices(gpt(1), h) },
		"a faster plan":          func(h []Attempt) { FindSpeedup(policy, gpt(1), h[:len(h)-1], h[len(h)-1], h100) },
		"steps done in place":    func(h []Attempt) { AllowInPlace(policy, gpt(1), h, sixteen, "cuda") },
		"out of memory at last":  func(h []Attempt) { Decide(policy, gpt(1), withLast(h, oom(cause.Forward)), h100) },
		"the network once again": func(h []Attempt) { Decide(policy, gpt(1), withLast(h, h[0].Diagnosis), h100) },
	}
}

// endedByTheJob is how a long run ends before its decision.
var endedByTheJob = Diagnosis{Cause: cause.UserError, Fatal: true, Error: "E"}

// TestDecisionsAllocateLinearly: ten times as many attempts take about ten times the memory, not a hundred times.
// BenchmarkLongRuns measures the time.
func TestDecisionsAllocateLinearly(t *testing.T) {
	const few, many, most = 300, 3_000, 15
	for name, decide := range decisions(many) {
		allocates := func(n int) uint64 {
			history := longRun(n, endedByTheJob)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			decide(history)
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		short, long := allocates(few), allocates(many)
		t.Logf("%s: %d bytes after %d attempts, %d after %d", name, short, few, long, many)
		if long > most*max(short, 16<<10) {
			t.Errorf("%s: %d bytes after %d attempts, %d after %d", name, short, few, long, many)
		}
	}
}

// BenchmarkLongRuns measures a decision after 300 and after 3,000 attempts: it should take ten times as long, not a
// hundred times.
func BenchmarkLongRuns(b *testing.B) {
	for name, decide := range decisions(3_000) {
		for _, n := range []int{300, 3_000} {
			b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(name, " ", "-"), n), func(b *testing.B) {
				history := longRun(n, endedByTheJob)
				for b.Loop() {
					decide(history)
				}
			})
		}
	}
}

func withLast(history []Attempt, d Diagnosis) []Attempt {
	last := history[len(history)-1]
	last.Diagnosis = d
	return append(history[:len(history)-1:len(history)-1], last)
}
