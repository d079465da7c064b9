package launcher

import (
	"maps"

	"github.com/gpurun/gpurun/strategy"
)

// A Replayed is one decision of a run, made again from the same facts.
type Replayed struct {
	Attempt   int                `json:"attempt"`
	Diagnosis strategy.Diagnosis `json:"diagnosis"`
	Decision  strategy.Decision  `json:"decision"`
	// Same: the journal has the same decision.
	Same bool `json:"same"`
	// Then is the reason in the journal, if the decision differs.
	Then string `json:"then,omitempty"`
	// Recorded is the journal's decision if another version of gpurun made it, even if it is the same.
	Recorded *Recorded `json:"recorded,omitempty"`
	// Recalled is the remembered plan that attempt 0 ran with; absent if it ran as written, and for later
	// attempts.
	Recalled *strategy.Recalled `json:"recalled,omitempty"`
	// Stopped is when and why the failure detector stops the attempt's ranks, given the same facts; absent if
	// they end by themselves.
	Stopped *strategy.Stop `json:"stopped,omitempty"`
	// Snapshots are the contents of the ranks' allocators when memory ran out; absent for none.
	Snapshots []strategy.Snapshot `json:"snapshots,omitempty"`
	// Evidence is the evidence for both decisions; Diagnosis.Because indexes its facts.
	Evidence strategy.Evidence `json:"-"`
}

// Recorded is a decision as another version of gpurun made it.
type Recorded struct {
	Version   string             `json:"version"`
	Diagnosis strategy.Diagnosis `json:"diagnosis"`
	Decision  strategy.Decision  `json:"decision"`
}

// Replay makes the decisions of a journal again with the strategy of this gpurun, whose version is given. It
// skips a decision without an attempt before it, which only a modified journal contains.
func Replay(events []Event, version string) []Replayed {
	out := []Replayed{}
	var began Began
	var run resumed
	var evidence strategy.Evidence // of the latest attempt
	add := func(r Replayed, then strategy.Decision, diagnosis strategy.Diagnosis) {
		if !r.Same {
			r.Then = then.Reason
		}
		if began.Version != version {
			r.Recorded = &Recorded{Version: began.Version, Diagnosis: diagnosis, Decision: then}
		}
		out = append(out, r)
	}
	for _, e := range events {
		switch e := e.(type) {
		case Began:
			began = e
		case Climbed:
			add(e.replay(began, run.History), e.Decision, e.Attempt.Diagnosis)
		case Exited:
			evidence = e.Evidence
		case Ended:
			evidence = e.Evidence
		case Decided:
			if len(run.History) == 0 {
				break
			}
			last := run.History[len(run.History)-1]
			d := strategy.Decide(began.Policy, began.Job, run.History, e.Inventory)
			r := Replayed{Attempt: last.N, Diagnosis: last.Diagnosis, Decision: d, Same: sameDecision(d, e.Decision), Evidence: evidence, Snapshots: evidence.Snapshots()}
			if last.N == 0 {
				r.Recalled = began.Job.Recalled
			}
			if stop, ok := strategy.Replay(evidence); ok {
				r.Stopped = &stop
			}
			add(r, e.Decision, e.Diagnosis)
		}
		run.take(e)
	}
	return out
}

// sameDecision reports whether two decisions have the same effect.
func sameDecision(a, b strategy.Decision) bool {
	return maps.Equal(a.Next, b.Next) && a.Outcome == b.Outcome && a.Rung == b.Rung && (a.Late == "") == (b.Late == "")
}
