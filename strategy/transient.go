package strategy

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// The budget for transient failures is refilled by a new complete checkpoint, or by this many
// steps, or this much time of steps, since the failure before.
const (
	refillSteps = 100
	refillTime  = 10 * time.Minute
)

// unprovenRefills bounds the refills in a row while the job gets no further than before: it
// repeats the same steps, or saves as soon as it starts.
const unprovenRefills = 20

// waits are the waiting times before a relaunch, by the number of transient failures that count.
var waits = []time.Duration{0, 0, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute,
	5 * time.Minute}

var transientCauses = []cause.Code{cause.NCCLError, cause.NCCLTimeout, cause.Hang, cause.Storage}

// A Stepping sums up the observed training steps of one attempt: each figure is the largest of
// all ranks. It is zero if no steps can be seen.
type Stepping struct {
	Steps  int     `json:"steps,omitempty"`          // that were made
	Last   int     `json:"last,omitempty"`           // the number of the last one
	For    Seconds `json:"for_seconds,omitempty"`    // from the first to the last
	Before Seconds `json:"before_seconds,omitempty"` // from the attempt's start to the first
	Total  int     `json:"total,omitempty"`          // steps of the job, 0: unknown
}

// Stepping sums up the observed steps of the attempt.
func (e *Evidence) Stepping() Stepping {
	var s Stepping
	c := e.folded()
	for _, i := range c.progress {
		p := As[*Progress](c.facts[i])
		s.Steps, s.Last, s.For, s.Total = max(s.Steps, p.made()), max(s.Last, p.Last), max(s.For, p.For), max(s.Total,
			p.Total)
		if at := c.facts[i].Time; !at.IsZero() && !e.Started.IsZero() {
			s.Before = max(s.Before, Seconds(at.Sub(e.Started))-p.For)
		}
	}
	if s.Total == 0 && s.Steps > 0 {
		for _, r := range c.reports() {
			s.Total = max(s.Total, r.TotalSteps)
		}
		if s.Total < s.Last { // the processes and the lines count different things
			s.Total = 0
		}
	}
	return s
}

// made is the number of steps behind the lines: a job may print every hundredth step, or one step
// several times. If numbers start again, the lines are counted.
func (p *Progress) made() int {
	if p.Steps > 0 && p.Last >= p.First {
		return p.Last - p.First + 1
	}
	return p.Steps
}

// A spending is the use of the budget for one kind of transient failure.
type spending struct {
	counted  int    // since the last failure that did not count
	progress string // why the last failure does not count; empty: it does
	unproven int    // failures that did not count since the job last got further than before
}

// spent goes through the history's failures of one kind. The job's progress between two of them
// refills the budget.
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
		switch sum.progress = since.progress(before); {
		case sum.progress == "":
			sum.counted++
		case since.Stepping.Last > furthest:
			sum.counted, sum.unproven = 0, 0
		default:
			sum.counted, sum.unproven = 0, sum.unproven+1
		}
		furthest = max(furthest, since.Stepping.Last)
		before, since = since, Attempt{}
	}
	return sum
}

// progress describes the progress since the failure before; empty: too little.
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

// newCheckpoint reports whether a checkpoint was written since. A file may be written again under
// the same name, and the newest one may be deleted.
func (a Attempt) newCheckpoint(before Attempt) bool {
	switch {
	case a.Checkpoint == "":
		return false
	case a.CheckpointWritten.IsZero() || before.CheckpointWritten.IsZero():
		return a.Checkpoint != before.Checkpoint
	}
	return a.CheckpointWritten.After(before.CheckpointWritten)
}

// transient runs the same plan again, while the budget lasts.
func transient(s *situation) Decision {
	n, budget := s.spent(Diagnosis.passes), s.policy.TransientRetries
	switch {
	case n.counted > budget && n.counted > 1 && s.hungAlike(n.counted):
		return s.stop(Failed, fmt.Sprintf("it hung at the same place %d times, and would hang there again", n.counted))
	case n.counted > budget && s.cause(cause.GPUHardware):
		return notOnThisNode(s)
	case n.counted > budget:
		return s.stop(Retry, fmt.Sprintf("recovery.transient_retries = %d are used up", budget))
	case n.unproven > unprovenRefills:
		return s.stop(Retry,
			fmt.Sprintf("%d such failures came after some steps or a checkpoint, and the job got no further than before",
				n.unproven))
	case n.progress != "":
		return samePlan(fmt.Sprintf("again (after %s, which refills recovery.transient_retries = %d)", n.progress, budget))(s)
	}
	wait := waits[min(n.counted, len(waits)-1)]
	how := "again"
	if wait > 0 {
		how = fmt.Sprintf("again after %s", wait)
	}
	d := samePlan(fmt.Sprintf("%s (%d of %d)", how, n.counted, budget))(s)
	d.After = Seconds(wait)
	return d
}

// diskFull runs the same plan again once, since space may be freed meanwhile, and then ends the run.
func diskFull(s *situation) Decision {
	n, budget := s.spent(func(d Diagnosis) bool { return d.Cause == cause.DiskFull }), min(s.policy.TransientRetries, 1)
	if n.counted <= budget && n.unproven <= unprovenRefills && !s.repeatsTooMuch() {
		return samePlan("once more, in case that space was freed")(s)
	}
	d := s.stop(Retry, "started again once there is space, the job continues with the same plan")
	d.Code = CodeDisk
	return d
}

// hungAlike reports whether the last n attempts all hung with the ranks at the same places.
func (s *situation) hungAlike(n int) bool {
	last := s.history[len(s.history)-min(n, len(s.history)):]
	return !slices.ContainsFunc(last, func(a Attempt) bool {
		return a.Diagnosis.Cause != cause.Hang || a.Diagnosis.Error == "" || a.Diagnosis.Error != s.diagnosis.Error
	})
}
