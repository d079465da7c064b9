package launcher

import (
	"maps"
	"reflect"

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
	// Permitted is what the processes of the attempt may do in place, and PermittedThen what the journal has, if
	// that differs; both absent for nothing. InPlace are the steps that ranks did again, and Refused the latest
	// failure that they did not answer so.
	Permitted     *strategy.InPlaceOrders  `json:"permitted_in_place,omitempty"`
	PermittedThen *strategy.InPlaceOrders  `json:"permitted_in_place_then,omitempty"`
	InPlace       []strategy.InPlace       `json:"in_place,omitempty"`
	Refused       *strategy.InPlaceRefusal `json:"in_place_refused,omitempty"`
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
	var permit func(*Replayed)     // adds what is permitted in place in the latest attempt
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
		case Started:
			permit = e.permit(began, run.State)
		case SpedUp:
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
			r := Replayed{Attempt: last.N, Diagnosis: last.Diagnosis, Decision: d, Same: sameDecision(d, e.Decision),
				Evidence: evidence, Snapshots: evidence.Snapshots(), InPlace: last.InPlace}
			if last.N == 0 {
				r.Recalled = began.Job.Recalled
			}
			_, r.Refused = evidence.InPlaceRefused()
			if permit != nil {
				permit(&r)
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

// permit decides again what an attempt may do in place, before has the attempts before it. Evidence has the device,
// and so the attempt has to be over.
func (e Started) permit(began Began, before State) func(*Replayed) {
	return func(r *Replayed) {
		before.Job = began.Job
		r.Permitted = strategy.AllowInPlace(began.Policy, before.arming(), before.History, e.Plan, r.Evidence.Accelerator)
		if !reflect.DeepEqual(r.Permitted, e.InPlace) {
			r.PermittedThen = e.InPlace
		}
	}
}

// sameDecision reports whether two decisions have the same effect.
func sameDecision(a, b strategy.Decision) bool {
	return maps.Equal(a.Next, b.Next) && a.Outcome == b.Outcome && a.Remedy == b.Remedy && (a.Late == "") == (b.Late == "")
}
