package strategy

import (
	"fmt"
	"strings"
	"time"
)

// A Pending is an attempt that was decided, or started, before gpurun ended. It runs when the run
// is started again.
type Pending struct {
	N          int
	Plan       Plan
	Checkpoint string // from which it starts; empty: the beginning
	// Ran: ranks have run with the plan since the decision, and may have written a newer
	// checkpoint. Began is the time of their start; zero: not known.
	Ran   bool
	Began time.Time
}

// Checkpoints lists the checkpoints from which a restarted run can continue.
type Checkpoints struct {
	Decided bool      // the checkpoint of the pending attempt is still complete
	Newest  string    // the newest complete one that the run wrote; empty for none
	Written time.Time // time of Newest
}

// A Restart is the checkpoint from which a pending attempt starts.
type Restart struct {
	Checkpoint string
	Notice     string // the difference from the decision; empty: none
	// Refused is the reason why the attempt must not start, and Hint what the user can do.
	Refused, Hint string
}

// Again chooses the checkpoint from which a pending attempt starts when the run is started again
// after the attempts of the history. It uses the checkpoint of the decision if that still exists,
// and a newer one only if the attempt has run since. A checkpoint that the attempt's plan cannot
// read counts as missing. Again refuses to repeat more work than the policy allows.
func Again(p Policy, j Job, history []Attempt, next Pending, found Checkpoints) Restart {
	if !next.Ran && (next.Checkpoint == "" || found.Decided) {
		return Restart{Checkpoint: next.Checkpoint}
	}
	gone := fmt.Sprintf("the checkpoint %s is gone or not complete", next.Checkpoint)
	unreadable := ""
	if found.Newest != "" {
		if unreadable = j.unreadable(found.Newest, wroteIt(history, next, found), next.Plan); unreadable == "" {
			r := Restart{Checkpoint: found.Newest}
			if next.Checkpoint != "" && !found.Decided && next.Checkpoint != found.Newest {
				r.Notice = fmt.Sprintf("%s: attempt %d starts from %s", gone, next.N, found.Newest)
			}
			return r
		}
	}
	if found.Decided || next.Checkpoint == "" {
		return Restart{Checkpoint: next.Checkpoint}
	}
	if unreadable == "" {
		unreadable = "there is no other of this run"
	}
	lost := gone + ", and " + unreadable
	work := time.Duration(0)
	for _, a := range history {
		work += a.Lasted()
	}
	if p.RestartFromZero > 0 && work > p.RestartFromZero.Duration() {
		return Restart{
			Refused: fmt.Sprintf("attempt %d would start from the beginning and repeat %s of work: %s", next.N,
				work.Round(time.Second), lost),
			Hint: fmt.Sprintf("put the checkpoint back, or start a new run with recovery.restart_from_zero above %s",
				p.RestartFromZero),
		}
	}
	return Restart{Notice: fmt.Sprintf("%s: attempt %d starts from the beginning", lost, next.N)}
}

// wroteIt returns the plan of the attempt that wrote the newest checkpoint: the last one that had
// started by then.
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

// unreadable returns why a checkpoint that was written with one plan cannot be resumed with
// another; empty if it can.
func (j Job) unreadable(checkpoint string, from, to Plan) string {
	for _, k := range Knobs {
		if v, known := to[k]; known && !j.Knobs[k].Outlives(from[k], v) {
			return fmt.Sprintf("the checkpoint %s does not survive %s %s→%s: %s", checkpoint, k.Short(), from[k], v,
				j.Knobs[k].Checkpoint.Reason)
		}
	}
	return ""
}

// caveat names what the framework does not guarantee about the data when a relaunch resumes.
func (s *situation) caveat(d Decision) string {
	if !d.Relaunch || d.Resume == "" {
		return ""
	}
	var words []string
	if data := s.job.Resumption.Data; data != "" {
		words = append(words, data)
	}
	for _, k := range Knobs {
		if shift := s.job.Resumption.Shifts[k]; shift != "" && s.turned(k, d.Next) {
			words = append(words, shift)
		}
	}
	return strings.Join(words, "; ")
}

// turned reports whether an attempt that may have written the checkpoint had another value for a
// knob.
func (s *situation) turned(k Knob, next Plan) bool {
	for _, a := range s.history {
		if a.Plan[k] != next[k] {
			return true
		}
	}
	return false
}

// tick bounds the lag of the kernel's clock for file times behind the clock that a process reads:
// a tick of the slowest kernel, and one more.
const tick = 20 * time.Millisecond

// WrittenBefore reports whether a file is older than a moment. Some file systems store whole
// seconds: there, a file from the same second is not older.
func WrittenBefore(written, moment time.Time) bool {
	if written.Nanosecond() == 0 {
		return written.Before(moment.Truncate(time.Second))
	}
	return written.Before(moment.Add(-tick))
}
