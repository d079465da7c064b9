package journal

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// attemptEvents are the events of attempt i, which ran for i seconds, did steps again in place, and left much evidence.
func attemptEvents(i int) []launcher.Event {
	plan, at := strategy.Plan{strategy.MicroBatchSize: "8"}, time.Unix(1_700_000_000+int64(i)*1000, 0)
	again := launcher.InPlace{InPlace: strategy.InPlace{Remedy: strategy.RemedySplit, Phase: "forward", Step: i, LastStep: i, Times: 1, Seconds: strategy.Seconds(time.Second)}}
	facts := make([]strategy.Fact, 20)
	for rank := range facts {
		facts[rank] = strategy.Fact{Rank: rank, Source: "stderr", Content: &strategy.Finding{Code: cause.NCCLError, Rank: rank, Text: fmt.Sprintf("NCCL error in attempt %d on rank %d", i, rank)}}
	}
	decision := strategy.Decision{Relaunch: true, Rule: "transient", Next: plan, Reason: fmt.Sprintf("attempt %d: the network failed", i), Remedies: []strategy.Remedy{strategy.RemedyAllocator}}
	return []launcher.Event{
		launcher.Started{N: i, Plan: plan, At: at}, again, launcher.Noticed{Text: fmt.Sprintf("notice %d", i)},
		launcher.Ended{Evidence: strategy.Evidence{Attempt: i, Plan: plan, Started: at, Ended: at.Add(time.Duration(i) * time.Second), Facts: facts}},
		launcher.Decided{Decision: decision, Diagnosis: strategy.Diagnosis{Fatal: true, Cause: cause.NCCLError}},
	}
}

// TestMemoryIsFlatOverTenThousandAttempts: a process that follows a run keeps a bounded number of attempts.
func TestMemoryIsFlatOverTenThousandAttempts(t *testing.T) {
	const few, many, mostGrowth = 1_000, 10_000, 64 << 10
	r := Run{Most: Recent}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var before int64
	for i := range many {
		for _, e := range attemptEvents(i) {
			r.Add(e)
		}
		if i+1 == few {
			before = heap()
		}
	}
	grown := heap() - before
	t.Logf("grown by %d bytes from %d to %d attempts", grown, few, many)
	if grown > mostGrowth {
		t.Errorf("grown by %d bytes from %d to %d attempts, want at most %d", grown, few, many, mostGrowth)
	}
	if len(r.Attempts) != Recent || len(r.Notices) != Recent || r.Tally().Attempts != many || r.Tally().Causes[cause.NCCLError] != many {
		t.Errorf("%d attempts, %d notices, %+v", len(r.Attempts), len(r.Notices), r.Tally())
	}
}

// TestOmittedAttemptsCount: a run that omits attempts has the first and the latest, and the sums of all.
func TestOmittedAttemptsCount(t *testing.T) {
	all, most := Run{}, Run{Most: 12}
	for i := range 40 {
		events := attemptEvents(i)
		if i%8 == 3 { // its gpurun is killed, and started again
			events = append(events[:1:1], launcher.Began{Restart: i})
		}
		for _, e := range events {
			all.Add(e)
			most.Add(e)
		}
	}
	if want := append(all.Attempts[:First:First], all.Attempts[len(all.Attempts)-12+First:]...); !reflect.DeepEqual(most.Attempts, want) {
		t.Errorf("%d attempts, want the first %d and the latest %d", len(most.Attempts), First, 12-First)
	}
	got, want := most.Tally(), all.Tally()
	slices.SortFunc(got.CutOff, func(a, b launcher.Started) int { return a.N - b.N })
	if all.Omitted.Attempts != 0 || len(want.CutOff) != 5 || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for i, s := range most.starts {
		if want := all.starts[i].first - most.Omitted.Attempts; s.first != max(want, min(all.starts[i].first, First)) {
			t.Errorf("start %d has the first attempt %d of %d", i, s.first, len(most.Attempts))
		}
	}
	for _, r := range []*Run{&all, &most} {
		if r.Launched().N != 39 || r.Last().N != 39 || r.Attempts[0].N != 0 {
			t.Errorf("launched last was %d of %d", r.Launched().N, len(r.Attempts))
		}
	}
}
