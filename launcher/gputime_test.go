package launcher

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// gpuTimeRun is a run on four ranks: the first attempt runs out of memory after 100 s and a checkpoint at 70 s,
// the second one is killed together with gpurun after a checkpoint at 250 s, the third one trains from there.
func gpuTimeRun() []Event {
	begin := time.Unix(1_700_000_000, 0).UTC()
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	ended := func(n, from, to int, code int) Ended {
		facts := []strategy.Fact{{Source: "exit", Content: &strategy.Exit{Code: code}}}
		if code != 0 {
			facts = append([]strategy.Fact{{Source: "stderr", Content: &strategy.Finding{Code: cause.CUDAOOM, Raised: true, Rank: -1, Phase: cause.Backward, Line: 1, Text: "torch.cuda.OutOfMemoryError: CUDA out of memory."}}}, facts...)
		}
		return Ended{Evidence: strategy.Evidence{Attempt: n, Plan: strategy.Plan{}, Ranks: 4, Started: at(from), Ended: at(to), Facts: facts}}
	}
	smaller := strategy.Plan{strategy.MicroBatchSize: "4"}
	return []Event{
		Began{Run: "r", Job: strategy.Job{Ranks: 4}, At: begin},
		Started{N: 0, At: begin}, ended(0, 0, 100, 1),
		Decided{Decision: strategy.Decision{Relaunch: true, Next: smaller, Resume: "ckpt-7"}, Inventory: strategy.Inventory{Checkpoint: "ckpt-7", CheckpointWritten: at(70)}},
		Started{N: 1, Plan: smaller, Checkpoint: "ckpt-7", Written: at(70), Rescue: true, At: at(110)},
		Began{Run: "r", Job: strategy.Job{Ranks: 4}, At: at(300)},
		Started{N: 2, Plan: smaller, Checkpoint: "ckpt-25", Written: at(250), At: at(300)}, ended(2, 300, 1300, 0),
		Decided{Decision: strategy.Decision{Outcome: strategy.Trained}, Inventory: strategy.Inventory{Checkpoint: "ckpt-99", CheckpointWritten: at(1200)}},
	}
}

// TestGPUTimeIsTheSameAfterARestart: the journal has all that it depends on.
func TestGPUTimeIsTheSameAfterARestart(t *testing.T) {
	events := gpuTimeRun()
	s, done := Resume(nil, "r", events[:4])
	first := strategy.GPUTime{Total: 400, Lost: 120}
	if done || s.Verdict.GPUTime == nil || *s.Verdict.GPUTime != first {
		t.Errorf("after the first attempt: %+v, want %+v", s.Verdict.GPUTime, first)
	}
	if s.Next.Written.IsZero() || !s.Next.Rescue {
		t.Errorf("the next attempt is %+v", s.Next)
	}
	s, done = Resume(nil, "r", events)
	// 140 s of the attempt that was cut off are behind the checkpoint that the last one resumed.
	want := strategy.GPUTime{Total: 4 * (100 + 140 + 1000), Lost: 120, Rescued: 4 * (140 + 1000), Rescues: 1, AtLeast: true}
	if !done || *s.Verdict.GPUTime != want {
		t.Errorf("at the end: %+v, want %+v", s.Verdict.GPUTime, want)
	}
	stopped := events[len(events)-1].(Decided)
	stopped.Decision.Outcome = strategy.Stopped
	s, _ = Resume(nil, "r", append(events[:len(events)-1:len(events)-1], stopped))
	want.Lost, want.Rescued = want.Lost+400, want.Rescued-400 // since the last checkpoint
	if *s.Verdict.GPUTime != want {
		t.Errorf("stopped: %+v, want %+v", s.Verdict.GPUTime, want)
	}
}

// TestClockThatIsPutBackGivesNoNegativeTime: of a resumed run only the journal's times are known.
func TestClockThatIsPutBackGivesNoNegativeTime(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, -365 * 24 * time.Hour, 365 * 24 * time.Hour} {
		events := gpuTimeRun()
		for i, e := range events {
			switch e := e.(type) {
			case Ended:
				e.Evidence.Ended = e.Evidence.Ended.Add(jump)
				events[i] = e
			case Decided:
				e.Inventory.CheckpointWritten = e.Inventory.CheckpointWritten.Add(jump)
				events[i] = e
			}
		}
		s, _ := Resume(nil, "r", events)
		for _, a := range s.Verdict.Attempts {
			if a.Seconds < 0 {
				t.Errorf("%s: attempt %d took %s", jump, a.N, a.Seconds)
			}
		}
		if g := s.Verdict.GPUTime; g.Total < 0 || g.Lost < 0 || g.Rescued < 0 || g.Lost > g.Total || g.Rescued > g.Total {
			t.Errorf("%s: %+v", jump, *g)
		}
		for _, d := range Replay(events, "v") {
			if d.Decision.After < 0 {
				t.Errorf("%s: %+v", jump, d.Decision)
			}
		}
	}
}
