package strategy

import (
	"maps"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// Evidence is all that is known about one attempt.
type Evidence struct {
	Attempt int       `json:"attempt"`
	Plan    Plan      `json:"plan"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	Ranks   int       `json:"ranks"`
	// Accelerator is what the job trains on: "cuda" or "cpu".
	Accelerator string `json:"accelerator"`
	// Facts are in the order in which they came. Add keeps them; a reader who
	// wants to know what they come to asks the methods below, or Diagnose.
	Facts []Fact `json:"facts"`
	// HangTimeout is the silence after an out-of-memory traceback that meant that a
	// rank hangs, 0 where nobody watched the ranks.
	HangTimeout Seconds `json:"hang_timeout_seconds,omitempty"`
	// Stalls says when the job counted as one that hangs; nil: never.
	Stalls *StallRule `json:"stalls,omitempty"`
	// StopSignal is the signal by which somebody asked gpurun to stop, 0 for none.
	StopSignal int `json:"stop_signal,omitempty"`
	// Notice is by which signal somebody announced that the time here ends; nil for none.
	Notice *Notice `json:"notice,omitempty"`
	// Halted says that gpurun stopped the ranks because a change had not taken effect.
	Halted bool `json:"halted,omitempty"`
	// Climb is the decision for which gpurun stopped the ranks: to go up to a faster plan.
	// It is nil for none. Kept says why the plan was kept where a faster one would fit.
	Climb *Decision `json:"climb,omitempty"`
	Kept  string    `json:"kept,omitempty"`

	// Unstarted is why no rank ran; nil where they did.
	Unstarted *Unstarted `json:"unstarted,omitempty"`

	fold *fold // of Facts, nil until somebody asks for it
}

// Add takes one more fact. It is the one place where facts are put together: a
// finding that is given again replaces the earlier one in its place, under the time
// of the first, and so do a rank's newer sign of life and a process's newer figures. Add has no clock; what the
// time makes of the facts is the Detector's business.
func (e *Evidence) Add(f Fact) {
	c := e.folded()
	if i, again := c.before(&f); again {
		e.Facts[i] = e.Facts[i].Updated(f)
		c.take(i)
		return
	}
	e.Facts = append(e.Facts, f)
	c.facts = e.Facts
	c.take(len(e.Facts) - 1)
}

// folded is the state of the facts. Facts that came by another way than Add, such as
// those of a journal, are folded when it is first asked for.
func (e *Evidence) folded() *fold {
	if e.fold == nil || len(e.fold.facts) != len(e.Facts) {
		e.fold = newFold(e.Facts)
	}
	return e.fold
}

// Same reports whether another fact is about the same finding, in another state.
func (f Fact) Same(other Fact) bool {
	return f.Finding != nil && other.Finding != nil && f.Finding.Seq > 0 && identityOf(&f) == identityOf(&other)
}

// Updated is the fact in a later state, under the time of the first.
func (f Fact) Updated(later Fact) Fact {
	if later.Sign != nil || later.Said != nil || later.Memory != nil || later.Snapshot != nil || later.Progress != nil {
		return later
	}
	if at := latest(later.Time, later.Again); at.After(f.Time) && !f.Time.IsZero() {
		later.Again = at
	}
	if !f.Time.IsZero() {
		later.Time = f.Time
	}
	return later
}

// Steps is the largest number of training steps that a rank told of.
func (e *Evidence) Steps() int { return e.folded().steps }

// Observed is the plan that the job says it uses. What its processes say outranks what
// was found in its output and its files; of several values of a knob there the first
// counts: a framework that helps itself later starts with what it was given.
func (e *Evidence) Observed(j Job) Plan { return e.folded().observed.With(e.inProcess(j)) }

// Fresh reports whether the job says that it starts from the beginning.
func (e *Evidence) Fresh() bool { return e.folded().fresh }

// Nothing is the line by which the job says that it found nothing to do, empty where
// it does not.
func (e *Evidence) Nothing() string { return e.folded().nothing }

// Stuck is a process that SIGKILL did not end, nil for none.
func (e *Evidence) Stuck() *Stuck {
	c := e.folded()
	if n := len(c.stuck); n > 0 {
		return c.facts[c.stuck[n-1]].Stuck
	}
	return nil
}

// Snapshots are what the allocators of ranks held when memory ran out, by rank.
func (e *Evidence) Snapshots() []Snapshot {
	c := e.folded()
	var all []Snapshot
	for _, rank := range slices.Sorted(maps.Keys(c.snapshots)) {
		all = append(all, *c.facts[c.snapshots[rank]].Snapshot)
	}
	return all
}

// ExitOf is how a rank ended, or what trained below it where the rank hides that; nil where
// nobody saw it.
func (e *Evidence) ExitOf(rank int) *Exit {
	c := e.folded()
	if i, ended := c.exits[rank]; ended {
		return c.exitAt(i)
	}
	return nil
}

// Exits is how many ranks have ended.
func (e *Evidence) Exits() int { return len(e.folded().exits) }

// EndedWell reports whether every rank ended with 0 by itself, and hides no failure by it.
func (e *Evidence) EndedWell() bool {
	c := e.folded()
	well := 0
	for _, i := range c.exits {
		if exit := c.exitAt(i); exit.Code == 0 && !exit.Stopped {
			well++
		}
	}
	return well > 0 && well >= e.Ranks
}

// StoppedToClimb is the decision for which the ranks were stopped, nil where they ended by
// themselves before, or somebody stopped the run meanwhile.
func (e *Evidence) StoppedToClimb() *Decision {
	if e.StopSignal != 0 || e.CutShort() != "" || e.EndedWell() {
		return nil
	}
	return e.Climb
}

// EvidenceFromLog makes evidence of the findings in saved output, where nothing
// else was observed. A nil exit code is one that nobody knows; a negative one is
// a signal's number, as Python reports it.
func EvidenceFromLog(findings []cause.Finding, exitCode *int) Evidence {
	var ev Evidence
	for i := range findings {
		ev.Facts = append(ev.Facts, Fact{Rank: findings[i].Rank, Source: findings[i].Stream, Finding: &findings[i]})
	}
	if exitCode != nil {
		exit := &Exit{Code: *exitCode}
		if *exitCode < 0 {
			exit.Signal = -*exitCode
			exit.Code = 128 + exit.Signal
		}
		ev.Facts = append(ev.Facts, Fact{Rank: -1, Source: "exit", Exit: exit})
	}
	return ev
}
