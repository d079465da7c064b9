package journal

import (
	"maps"
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// Recent is Run.Most of a process that shows the latest attempts of a run, and First how many of them are the first.
const Recent, First = 100, 10

// A Tally sums up attempts; the zero value has none.
type Tally struct {
	Attempts int
	Lasted   time.Duration           // how long they ran, without those that were cut off
	CutOff   []launcher.Started      // those that were cut off, without their commands
	Causes   map[cause.Code]int      // of those that a decision followed
	Remedies map[strategy.Remedy]int // the remedies of these decisions
	// InPlaceSteps ran out of memory and were done again, which took InPlaceTime.
	InPlaceSteps int
	InPlaceTime  strategy.Seconds
}

func (t *Tally) add(a *AttemptState) {
	t.Attempts++
	t.Lasted += a.Lasted()
	if a.Phase == CutOff {
		t.CutOff = append(t.CutOff, launcher.Started{N: a.N, At: a.At})
	}
	steps, took := strategy.InPlaceCost(a.Again)
	t.InPlaceSteps, t.InPlaceTime = t.InPlaceSteps+steps, t.InPlaceTime+took
	if a.Phase != Decided {
		return
	}
	if t.Causes == nil {
		t.Causes, t.Remedies = map[cause.Code]int{}, map[strategy.Remedy]int{}
	}
	t.Causes[a.Diagnosis.Cause]++
	for _, remedy := range a.Decision.Remedies {
		t.Remedies[remedy]++
	}
}

// Tally sums up all attempts of the run.
func (r *Run) Tally() Tally {
	t := r.Omitted
	t.CutOff, t.Causes, t.Remedies = slices.Clone(t.CutOff), maps.Clone(t.Causes), maps.Clone(t.Remedies)
	for i := range r.Attempts {
		t.add(&r.Attempts[i])
	}
	return t
}

// begin adds an attempt, and omits an earlier one beyond Most.
func (r *Run) begin(a AttemptState) {
	if at := min(First, r.Most-1); r.Most > 0 && len(r.Attempts) >= r.Most {
		r.Omitted.add(&r.Attempts[at])
		r.Attempts = slices.Delete(r.Attempts, at, at+1)
		for i := range r.starts {
			if r.starts[i].first > at {
				r.starts[i].first--
			}
		}
	}
	r.Attempts = append(r.Attempts, a)
}
