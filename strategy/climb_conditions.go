package strategy

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	// worthTimes is how many times its cost a relaunch has to save, and worthLeast the
	// least that it has to.
	worthTimes = 3
	worthLeast = 10 * time.Minute
	// lastHour is how long before the end of the time a plan that works is left alone.
	lastHour = time.Hour
)

// A condition has to hold before a run goes up to a faster plan.
type condition struct {
	// lacks says why it does not hold, empty where it does.
	lacks func(*situation, faster) string
	// later: it may come to hold while the attempt runs.
	later bool
}

// conditions are asked in this order: what the policy says first, what only takes time
// last.
var conditions = []condition{
	{lacks: climbsOff},
	{lacks: wentUpBefore},
	{lacks: losesData},
	{lacks: neverResumed},
	{lacks: endUnknown, later: true},
	{lacks: tooLate},
	{lacks: notWorthIt},
	{lacks: noNewCheckpoint, later: true},
}

func climbsOff(s *situation, _ faster) string {
	switch {
	case !s.policy.Climb:
		return "recovery.climb = false"
	case s.policy.Mode != Predict:
		return fmt.Sprintf("recovery.mode = %q", s.policy.Mode)
	}
	return ""
}

func wentUpBefore(s *situation, _ faster) string {
	if slices.ContainsFunc(s.history, func(a Attempt) bool { return a.Climb != nil }) {
		return "a run goes up once"
	}
	return ""
}

// losesData: a resume is not known to keep the data and the checkpoint with this change.
func losesData(s *situation, f faster) string {
	r := s.job.Resumption
	switch {
	case r.Data != "":
		return "on resuming, " + r.Data
	case r.Own && !r.Exact:
		return `nothing says that the job goes on with the next sample when it resumes: resume.data = "kept" does`
	}
	for _, k := range Knobs {
		if shift := r.Shifts[k]; shift != "" && f.plan[k] != s.plan[k] {
			return "on resuming, " + shift
		}
	}
	return s.job.outlived(cmp.Or(s.inventory.Checkpoint, "of this run"), s.plan, f.plan)
}

// neverResumed: nobody vouches for the job's resuming, and it has not been seen.
func neverResumed(s *situation, _ faster) string {
	worked := func(a Attempt) bool { return a.From != "" && !a.Fresh && a.Stepping.Steps > 0 }
	if s.job.Resumption.Exact || slices.ContainsFunc(s.history, worked) {
		return ""
	}
	return "no attempt of this run has resumed from a checkpoint and made a step"
}

func endUnknown(s *situation, _ faster) string {
	at := s.last.Stepping
	if at.Total <= 0 || at.Last > at.Total || at.Steps < 2 || at.For <= 0 {
		return "the remaining steps are not known"
	}
	return ""
}

func tooLate(s *situation, _ faster) string {
	if d := s.inventory.Deadline; !d.IsZero() && d.Sub(s.inventory.At) < lastHour {
		return "the time here ends within the hour"
	}
	return ""
}

func notWorthIt(s *situation, f faster) string {
	cost, saved := s.relaunchCost(), s.saving(f)
	switch {
	case cost <= 0:
		return "what a relaunch costs has not been seen"
	case saved <= worthLeast:
		return fmt.Sprintf("it would save %s, and %s at least are worth a relaunch", saved.Round(time.Second), worthLeast)
	case saved <= worthTimes*cost:
		return fmt.Sprintf("it would save %s, and a relaunch costs %s until the first step", saved.Round(time.Second), cost.Round(time.Second))
	}
	return ""
}

func noNewCheckpoint(s *situation, _ faster) string {
	if s.inventory.Checkpoint == "" || !s.inventory.CheckpointWritten.After(s.last.Started) {
		return "the attempt has written no complete checkpoint"
	}
	return ""
}

// relaunchCost is the longest that an attempt of this run took from its start to its
// first step, 0 where none was seen.
func (s *situation) relaunchCost() time.Duration {
	longest := Seconds(0)
	for _, a := range s.history {
		longest = max(longest, a.Stepping.Before)
	}
	return longest.Duration()
}

// saving is the time that a faster plan takes off what is left; off what the attempt has
// done, where it has ended.
func (s *situation) saving(f faster) time.Duration {
	at := s.last.Stepping
	if at.Steps < 2 || f.gain <= 1 {
		return 0
	}
	left := at.Total - at.Last
	if !s.last.Ended.IsZero() {
		left = at.Steps
	}
	step := float64(at.For) / float64(at.Steps-1)
	return time.Duration(step * float64(left) * (1 - 1/f.gain))
}
