package strategy

import (
	"fmt"
	"time"
)

// A Pending is an attempt that was decided, or begun, before gpurun ended, and that
// runs when the run is started again.
type Pending struct {
	N    int
	Plan Plan
	// Checkpoint is what it was to start from, empty for the beginning.
	Checkpoint string
	// Ran says that ranks have run with the plan since that was decided, and may have
	// written a newer one; Began is when they started, the zero time where nobody knows.
	Ran   bool
	Began time.Time
}

// Checkpoints is what there is to start from when a run is started again.
type Checkpoints struct {
	// Decided says that the checkpoint of the pending attempt is still complete.
	Decided bool
	// Newest is the newest complete one that the run wrote, and Written when that was;
	// empty for none.
	Newest  string
	Written time.Time
}

// A Restart says from where a pending attempt starts.
type Restart struct {
	Checkpoint string
	// Notice tells people what is not as it was decided, empty where all is.
	Notice string
	// Refused says why the attempt must not start, empty where it may; Hint is what the
	// user can do about it.
	Refused, Hint string
}

// Again decides from where a pending attempt starts, when the run is started again
// after the attempts of the history. What was decided holds, as far as it is still
// there: a checkpoint that was decided is used, a newer one only where the attempt has
// run since. One that it cannot go on from, since it was written with another plan, is
// none. Work beyond the policy's bound is not thrown away.
func Again(p Policy, j Job, history []Attempt, next Pending, found Checkpoints) Restart {
	if !next.Ran && (next.Checkpoint == "" || found.Decided) {
		return Restart{Checkpoint: next.Checkpoint}
	}
	lost := ""
	if found.Newest != "" {
		from := wroteIt(history, next, found)
		if lost = j.outlived(found.Newest, from, next.Plan); lost == "" {
			return Restart{Checkpoint: found.Newest, Notice: instead(next, found)}
		}
	}
	switch {
	case found.Decided:
		return Restart{Checkpoint: next.Checkpoint}
	case next.Checkpoint == "":
		return Restart{}
	case lost == "":
		lost = fmt.Sprintf("the checkpoint %s is gone or not complete, and there is no other of this run", next.Checkpoint)
	default:
		lost = fmt.Sprintf("the checkpoint %s is gone or not complete, and %s", next.Checkpoint, lost)
	}
	if work := worked(history); p.RestartFromZero > 0 && work > p.RestartFromZero.Duration() {
		return Restart{
			Refused: fmt.Sprintf("attempt %d would start from the beginning and repeat %s of work: %s", next.N, work.Round(time.Second), lost),
			Hint:    fmt.Sprintf("put the checkpoint back, or start a new run with recovery.restart_from_zero above %s", p.RestartFromZero),
		}
	}
	return Restart{Notice: fmt.Sprintf("%s: attempt %d starts from the beginning", lost, next.N)}
}

// wroteIt is the plan of the attempt that wrote the newest checkpoint: the last that
// had begun by then.
func wroteIt(history []Attempt, next Pending, found Checkpoints) Plan {
	if next.Ran && (next.Began.IsZero() || found.Written.IsZero() || !WrittenBefore(found.Written, next.Began)) {
		return next.Plan
	}
	plan := next.Plan
	for _, a := range history {
		if found.Written.IsZero() || !WrittenBefore(found.Written, a.Started) {
			plan = a.Plan
		}
	}
	return plan
}

// outlived says why a checkpoint that was written with one plan is none for another,
// empty where it is one.
func (j Job) outlived(checkpoint string, from, to Plan) string {
	for _, k := range Knobs {
		if v, known := to[k]; known && !j.Knobs[k].Outlives(from[k], v) {
			return fmt.Sprintf("the checkpoint %s does not survive %s %s→%s: %s", checkpoint, k.Short(), from[k], v, j.Knobs[k].Checkpoint.Reason)
		}
	}
	return ""
}

// instead tells that another checkpoint takes the place of the one that was decided.
func instead(next Pending, found Checkpoints) string {
	if next.Checkpoint == "" || found.Decided || next.Checkpoint == found.Newest {
		return ""
	}
	return fmt.Sprintf("the checkpoint %s is gone or not complete: attempt %d starts from %s", next.Checkpoint, next.N, found.Newest)
}

// worked is how long the attempts of a history ran.
func worked(history []Attempt) time.Duration {
	sum := time.Duration(0)
	for _, a := range history {
		sum += a.Lasted()
	}
	return sum
}
