package strategy

import (
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// Replay tells from an attempt's evidence when and why the failure detector would stop
// all its ranks, as `gpurun explain` does from a journal. It reports false where the ranks
// would not have been stopped before the attempt ended.
//
// A fact counts from its time on, but not before those that came before it. A finding
// that the job got over later (Fact.Again) counts in full until then. Of a rank's signs
// of life the last is known, which is all that the verdict needs: silence begins with it.
// Not known are that gpurun itself was suspended in between, and when somebody else stopped
// the ranks. Evidence without a hang timeout, as of saved output,
// does not tell whether a rank was silent: no rank is suspected then.
func Replay(e Evidence) (Stop, bool) {
	again := Evidence{Ranks: e.Ranks, Started: e.Started, HangTimeout: e.HangTimeout, Stalls: e.Stalls}
	if again.HangTimeout == 0 {
		again.HangTimeout = unlimited
	}
	d := NewDetector(&again)
	for _, f := range e.Facts {
		if f.Sign != nil {
			d.Add(f, e.Started)
		}
	}
	if stop, ok := d.Verdict(e.Started); ok {
		return stop, true
	}
	for _, m := range moments(e) {
		before := m.at.Add(-1) // what comes at that instant counts
		if m.fact.Exit != nil && m.fact.Exit.Stopped {
			before = m.at // but the ranks were stopped before this one ended
		}
		if stop, ok := d.until(before); ok {
			return stop, true
		}
		if d.Add(m.fact, m.at) {
			if stop, ok := d.Verdict(m.at); ok && stop.Reason != StopPeers {
				return stop, true
			}
		}
	}
	return d.until(e.Ended)
}

// unlimited is a patience that no silence exhausts.
const unlimited = Seconds(100 * 365 * 24 * time.Hour)

// until asks for the verdict as often as it becomes due up to a time.
func (d *Detector) until(end time.Time) (Stop, bool) {
	for next := d.Next(); !next.IsZero() && !next.After(end); next = d.Next() {
		if stop, ok := d.Verdict(next); ok && stop.Reason != StopPeers {
			return stop, true
		}
	}
	return Stop{}, false
}

// A moment is when a detector learns of a fact.
type moment struct {
	at   time.Time
	fact Fact
}

// moments are the facts of an attempt in the order in which they came, a finding that
// was given again at both times.
func moments(e Evidence) []moment {
	var all []moment
	now := e.Started
	for _, f := range e.Facts {
		if f.Sign != nil {
			continue
		}
		now = latest(now, f.Time)
		if f.Finding != nil && f.Again.After(now) && f.Finding.Seq > 0 && f.Finding.Weight.Over() {
			later := moment{f.Again, f}
			first := *f.Finding
			first.Weight = cause.WeightCause
			if f.Finding.Weight.Warning() {
				first.Weight = cause.WeightWarning
			}
			f.Finding = &first
			all = append(all, moment{now, f}, later)
			continue
		}
		all = append(all, moment{now, f})
	}
	slices.SortStableFunc(all, func(a, b moment) int { return a.at.Compare(b.at) })
	return all
}
