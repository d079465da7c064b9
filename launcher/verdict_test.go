package launcher

import (
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// The verdict has the savings of each change, even with attempts that were cut off. It is the same if it is
// made again from the journal.
func TestTheVerdictHasPrices(t *testing.T) {
	const gib = 1 << 30
	small := strategy.Plan{strategy.ActivationCheckpointing: "full"}
	first := strategy.Plan{strategy.ActivationCheckpointing: "none"}
	measured := func(n int, plan strategy.Plan, m memory.Measurement) Ended {
		e := strategy.Evidence{Attempt: n, Plan: plan, Ranks: 1}
		if m.Failed != "" {
			e.Facts = append(e.Facts, strategy.Fact{Source: "stderr", Content: &strategy.Finding{Code: cause.CUDAOOM, Raised: true, Text: "CUDA out of memory"}})
		}
		e.Facts = append(e.Facts, strategy.Fact{Source: "probe", Content: (*strategy.Measurement)(&m)})
		return Ended{Evidence: e}
	}
	more := Decided{Decision: strategy.Decision{Relaunch: true, Next: small, Remedy: strategy.RemedyCheckpointing, Changed: first.Changed(small)}}
	events := []Event{
		Began{Plan: first, Job: strategy.Job{Ranks: 1}},
		Started{N: 0, Plan: first}, measured(0, first, memory.Measurement{Failed: "forward", Allocated: 20 * gib, Requested: 2 * gib}), more,
		Started{N: 1, Plan: small}, // and its gpurun was killed
		Began{Plan: first, Job: strategy.Job{Ranks: 1}},
		Started{N: 2, Plan: small}, measured(2, small, memory.Measurement{Steps: 20, Peak: 9 * gib, StepSeconds: 1}),
		Decided{Decision: strategy.Decision{Outcome: strategy.Trained}},
	}
	state, done := Resume(first, "r", events)
	attempts := state.Verdict.Attempts
	if !done || len(attempts) != 3 || attempts[0].Price != nil || attempts[1].Price != nil || attempts[2].Price == nil {
		t.Fatalf("done %v, attempts %+v", done, attempts)
	}
	if got, want := attempts[2].Price.String(), "checkpointing none→full saved at least 13.0 GiB (22.0→9.0)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// They are not computed while the run continues. A stopped run has them.
	events[len(events)-1] = more
	if state, _ = Resume(first, "r", events); state.Verdict.Attempts[2].Price != nil {
		t.Error("a run that goes on has prices")
	}
	if state.end(strategy.Interrupted(15)); state.Verdict.Attempts[2].Price == nil || state.Verdict.Outcome != strategy.Stopped {
		t.Errorf("stopped: %+v", state.Verdict)
	}
}
