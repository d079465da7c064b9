package journal

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// endedRun is the end of attempt n, which ran for a minute.
func endedRun(n int) launcher.Ended {
	at := time.Unix(1700000000, 0)
	return launcher.Ended{Evidence: strategy.Evidence{Attempt: n, Started: at, Ended: at.Add(time.Minute)}}
}

func relaunch() launcher.Decided {
	return launcher.Decided{Decision: strategy.Decision{Relaunch: true, Ineffective: strategy.Changes{strategy.MicroBatchSize: {"4", "8"}}}}
}

// TestAttemptsHavePhases: each event that a journal can have, and what it makes of the attempts.
func TestAttemptsHavePhases(t *testing.T) {
	began, start := launcher.Began{Run: "r"}, func(n int) launcher.Started { return launcher.Started{N: n} }
	over := launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Stopped}}
	for name, test := range map[string]struct {
		events  []launcher.Event
		want    []AttemptStage
		over    int
		running bool
	}{
		"nothing":                    {[]launcher.Event{began}, nil, 0, false},
		"runs":                       {[]launcher.Event{began, start(0)}, []AttemptStage{Running}, 0, true},
		"exited":                     {[]launcher.Event{began, start(0), launcher.Exited{}}, []AttemptStage{Exited}, 0, true},
		"ended":                      {[]launcher.Event{began, start(0), launcher.Exited{}, endedRun(0)}, []AttemptStage{Ended}, 1, false},
		"decided":                    {[]launcher.Event{began, start(0), endedRun(0), relaunch()}, []AttemptStage{Decided}, 1, false},
		"the next runs":              {[]launcher.Event{began, start(0), endedRun(0), relaunch(), start(1)}, []AttemptStage{Decided, Running}, 1, true},
		"cut off":                    {[]launcher.Event{began, start(0), began}, []AttemptStage{CutOff}, 1, false},
		"cut off, and the next runs": {[]launcher.Event{began, start(0), began, start(1)}, []AttemptStage{CutOff, Running}, 1, true},
		"cut off once it had exited": {[]launcher.Event{began, start(0), launcher.Exited{}, began}, []AttemptStage{Ended}, 1, false},
		"could not be started":       {[]launcher.Event{began, start(0), endedRun(0), relaunch(), endedRun(1)}, []AttemptStage{Decided, Ended}, 2, false},
		"stopped while it starts":    {[]launcher.Event{began, start(0), over}, []AttemptStage{Running}, 0, false},
	} {
		r := RunOf(test.events)
		var got []AttemptStage
		for i, a := range r.Attempts {
			if got = append(got, a.Phase); a.N != i {
				t.Errorf("%s: attempt %d has the number %d", name, i, a.N)
			}
		}
		if len(got) != len(test.want) || len(r.Over()) != test.over || r.Running() != test.running {
			t.Fatalf("%s: phases %v, %d over, running %v", name, got, len(r.Over()), r.Running())
		}
		if l := r.Launched(); name == "could not be started" && l.N != 0 || l == nil && got != nil {
			t.Errorf("%s: launched last was %+v", name, l)
		}
		for i := range got {
			if got[i] != test.want[i] {
				t.Errorf("%s: phases %v, want %v", name, got, test.want)
			}
		}
	}
}

// TestEndOfAResumedRunIsForgotten: by the next gpurun, or the next attempt.
func TestEndOfAResumedRunIsForgotten(t *testing.T) {
	end := launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Retry, Code: 75}}
	events := []launcher.Event{launcher.Began{Run: "r", Name: "first"}, launcher.Started{N: 0}, endedRun(0), relaunch(), end}
	r := RunOf(events)
	if r.Verdict == nil || r.Verdict.Code != 75 || r.Decision == nil {
		t.Errorf("at its end: verdict %v, decision %v", r.Verdict, r.Decision)
	}
	last := r.Last()
	if last.Lasted() != time.Minute || last.Used().String() != "micro_batch_size=8" {
		t.Errorf("the attempt lasted %s with %s", last.Lasted(), last.Used())
	}
	r.Add(launcher.Began{Run: "r", Name: "second"})
	if r.Verdict != nil || r.Decision != nil || r.First.Name != "first" || r.Began.Name != "second" {
		t.Errorf("begun again: verdict %v, decision %v, began as %q, then as %q", r.Verdict, r.Decision, r.First.Name, r.Began.Name)
	}
}

// TestRankWithTheCauseIsNamed: of ranks that print no steps the processes count them,
// beyond the latest line of the one that does, and know of no end.
func TestRankWithTheCauseIsNamed(t *testing.T) {
	lines, counts := strategy.Sample{Step: 10, Total: 1000, Batches: true}, strategy.Sample{Step: 17}
	for _, samples := range [][]strategy.Sample{{lines, counts}, {counts, lines}, {lines, counts, {Step: 9, Total: 1000}}} {
		r := RunOf([]launcher.Event{launcher.Began{Run: "train"}, launcher.Started{}})
		if lead := &r.Progress.Lead; !r.Sample(0, samples, time.Now()) || lead.Step != 10 || lead.Total != 1000 {
			t.Errorf("%+v: step %d of %d", samples, lead.Step, lead.Total)
		}
	}
}

// TestSamplesHaveTheCeiling: the job's, where it is less than what the device has.
func TestSamplesHaveTheCeiling(t *testing.T) {
	r := RunOf([]launcher.Event{launcher.Began{Run: "train", Job: strategy.Job{Ceiling: 40}}, launcher.Started{}})
	given := []strategy.Sample{{Allowed: 80, Peak: 7}, {Rank: 1}, {Rank: 2, Allowed: 30}}
	if r.Sample(1, given, time.Now()) {
		t.Error("samples of another attempt count")
	}
	if !r.Sample(0, given, time.Now()) || r.Progress.Peak != 7 || given[0].Allowed != 80 {
		t.Errorf("%+v", r.Progress)
	}
	for i, want := range []int64{40, 40, 30} {
		if got := r.Progress.Samples[i].Allowed; got != want {
			t.Errorf("rank %d may hold %d, want %d", i, got, want)
		}
	}
}

// TestEndWithoutAVerdict: a gpurun that was killed after its last decision has ended the run.
func TestEndWithoutAVerdict(t *testing.T) {
	stop := launcher.Decided{Decision: strategy.Decision{Outcome: strategy.Failed, Code: 1, Reason: "why"}, Diagnosis: strategy.Diagnosis{Cause: cause.GPUHardware}}
	r := RunOf([]launcher.Event{launcher.Began{Run: "r"}, launcher.Started{}, endedRun(0), stop})
	if end := r.End(); end == nil || end.Outcome != strategy.Failed || end.Code != 1 || end.Reason != "why" {
		t.Errorf("it ended with %+v", end)
	}
	if !r.GPUFailed() {
		t.Error("no GPU failed")
	}
	r.Add(launcher.Began{Run: "r"})
	r.Add(launcher.Started{N: 1})
	if r.End() != nil || !r.GPUFailed() {
		t.Errorf("gone on with: ended with %+v, a GPU failed: %v", r.End(), r.GPUFailed())
	}
	if r := RunOf(nil); r.End() != nil || r.GPUFailed() {
		t.Errorf("a new run: %+v", r)
	}
}

// A decision that a stricter policy requires is about the attempt that ran out of memory, not about one that was
// stopped or killed after it.
func TestDecisionAgainIsAboutTheFailedAttempt(t *testing.T) {
	began, start := launcher.Began{Run: "r"}, func(n int) launcher.Started { return launcher.Started{N: n} }
	stop := launcher.Decided{Decision: strategy.Interrupted(15)}
	last := launcher.Decided{Diagnosis: strategy.Diagnosis{Cause: cause.CUDAOOM}, Decision: strategy.Decision{Outcome: strategy.Exhausted}}
	for name, since := range map[string][]launcher.Event{
		"killed": {start(1), began}, "stopped": {start(1), endedRun(1), stop, began}, "stopped, and killed": {start(1), endedRun(1), stop, began, start(2), began},
	} {
		r := RunOf(append(append([]launcher.Event{began, start(0), endedRun(0), relaunch()}, since...), last))
		if first, second := r.Attempts[0], r.Attempts[1]; first.Decision.Outcome != strategy.Exhausted || second.Diagnosis.Cause == cause.CUDAOOM {
			t.Errorf("%s: %+v, %+v", name, first.Decision, second.Decided)
		}
	}
}
