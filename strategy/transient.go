package strategy

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A failure that passes, such as a lost network, does not count where one of these
// lies between it and the one before, or a new complete checkpoint.
const (
	refillSteps = 100
	refillTime  = 10 * time.Minute
)

// unprovenRefills bounds how often that may be so, one failure after another, while
// the job gets no further than it has been: it repeats the same steps, or saves as
// soon as it starts.
const unprovenRefills = 20

// waits are the times before a relaunch after a failure that passes, by how many of
// them counted. What does not pass in a minute may take several.
var waits = []time.Duration{0, 0, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute}

// transientCauses are the causes that pass by themselves.
var transientCauses = []cause.Code{cause.NCCLError, cause.NCCLTimeout, cause.Hang}

// A Stepping is what was seen of the training steps of one attempt: of each figure the
// largest that a rank showed. It is zero where no steps can be seen.
type Stepping struct {
	// Steps is how many were made.
	Steps int `json:"steps,omitempty"`
	// Last is the number of the last one.
	Last int `json:"last,omitempty"`
	// For is the time from the first to the last.
	For Seconds `json:"for_seconds,omitempty"`
	// Before is the time from the attempt's start to the first.
	Before Seconds `json:"before_seconds,omitempty"`
	// Total is the number of steps that the job has, 0 if unknown.
	Total int `json:"total,omitempty"`
}

// Stepping is what was seen of the attempt's steps.
func (e *Evidence) Stepping() Stepping {
	var s Stepping
	c := e.folded()
	for _, i := range c.progress {
		p := c.facts[i].Progress
		s.Steps, s.Last, s.For, s.Total = max(s.Steps, p.made()), max(s.Last, p.Last), max(s.For, p.For), max(s.Total, p.Total)
		if at := c.facts[i].Time; !at.IsZero() && !e.Started.IsZero() {
			s.Before = max(s.Before, Seconds(at.Sub(e.Started))-p.For)
		}
	}
	if s.Total == 0 && s.Steps > 0 {
		s.Total = e.told(s.Last)
	}
	return s
}

// told is the number of steps that the job has, as its processes say, where they cannot
// count something else than its lines do: a step beyond the last. It is 0 if unknown.
func (e *Evidence) told(last int) int {
	total := 0
	for _, said := range e.folded().reports() {
		total = max(total, said.TotalSteps)
	}
	if total < last {
		return 0
	}
	return total
}

// made is how many steps lie behind the lines that told of them: a job may tell of
// every hundredth, or of one again and again. Numbers that begin anew are counted by
// their lines.
func (p *Progress) made() int {
	if p.Steps > 0 && p.Last >= p.First {
		return p.Last - p.First + 1
	}
	return p.Steps
}

// A spending is how far the budget for one kind of failure that passes is used up.
type spending struct {
	counted int // since the last that did not count
	// progress says why the last one does not count, empty where it does.
	progress string
	// unproven is how many did not count since the job last got further than before.
	unproven int
}

// spent goes through the history's failures of one kind. What the job reached
// between two of them refills the budget.
func (s *situation) spent(kind func(Diagnosis) bool) spending {
	var sum spending
	var since, before Attempt // what lies between two failures; the one before
	furthest := 0
	for _, a := range s.history {
		since.Stepping.Steps += a.Stepping.Steps
		since.Stepping.For += a.Stepping.For
		since.Stepping.Last = max(since.Stepping.Last, a.Stepping.Last)
		since.Checkpoint, since.CheckpointWritten = a.Checkpoint, a.CheckpointWritten
		if !kind(a.Diagnosis) {
			continue
		}
		sum.add(since.progress(before), since.Stepping.Last > furthest)
		furthest = max(furthest, since.Stepping.Last)
		before, since = since, Attempt{}
	}
	return sum
}

// add takes in one more failure.
func (sum *spending) add(progress string, further bool) {
	switch sum.progress = progress; {
	case progress == "":
		sum.counted++
		return
	case further:
		sum.unproven = 0
	default:
		sum.unproven++
	}
	sum.counted = 0
}

// progress says what was reached since the failure before, empty for too little.
func (a Attempt) progress(before Attempt) string {
	switch {
	case a.newCheckpoint(before):
		return "the new checkpoint " + a.Checkpoint
	case a.Stepping.Steps >= refillSteps:
		return fmt.Sprintf("%d steps", a.Stepping.Steps)
	case a.Stepping.For.Duration() >= refillTime:
		return fmt.Sprintf("%s of steps", a.Stepping.For.Duration().Round(time.Second))
	}
	return ""
}

// newCheckpoint reports whether a checkpoint was written since. A file may be written
// again under the same name, and a newest one may be deleted.
func (a Attempt) newCheckpoint(before Attempt) bool {
	switch {
	case a.Checkpoint == "":
		return false
	case a.CheckpointWritten.IsZero() || before.CheckpointWritten.IsZero():
		return a.Checkpoint != before.Checkpoint
	}
	return a.CheckpointWritten.After(before.CheckpointWritten)
}

// transient runs the same plan again, as long as the budget lasts.
func transient(s *situation) Decision {
	n := s.spent(Diagnosis.passes)
	switch {
	case n.counted > s.policy.TransientRetries && n.counted > 1 && s.hungAlike(n.counted):
		return s.stop(Failed, fmt.Sprintf("it hung at the same place %d times, so that it would again", n.counted))
	case n.counted > s.policy.TransientRetries && s.cause(cause.GPUHardware):
		return notOnThisNode(s)
	case n.counted > s.policy.TransientRetries:
		return s.stop(Retry, fmt.Sprintf("recovery.transient_retries = %d are used up", s.policy.TransientRetries))
	case n.unproven > unprovenRefills:
		return s.stop(Retry, fmt.Sprintf("%d such failures came after some steps or a checkpoint, and the job got no further than before", n.unproven))
	case n.progress != "":
		return samePlan(fmt.Sprintf("again (after %s, which refills recovery.transient_retries = %d)", n.progress, s.policy.TransientRetries))(s)
	}
	wait := waits[min(n.counted, len(waits)-1)]
	how := fmt.Sprintf("again (%d of %d)", n.counted, s.policy.TransientRetries)
	if wait > 0 {
		how = fmt.Sprintf("again after %s (%d of %d)", wait, n.counted, s.policy.TransientRetries)
	}
	d := samePlan(how)(s)
	d.After = Seconds(wait)
	return d
}

// hungAlike reports whether the last so many attempts all hung, with the ranks at the same
// places.
func (s *situation) hungAlike(n int) bool {
	last := s.history[len(s.history)-min(n, len(s.history)):]
	return !slices.ContainsFunc(last, func(a Attempt) bool {
		return a.Diagnosis.Cause != cause.Hang || a.Diagnosis.Error == "" || a.Diagnosis.Error != s.diagnosis.Error
	})
}
