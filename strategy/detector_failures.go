package strategy

import (
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// How long the failure detector waits after a failure for things that may never come.
const (
	// CollectWindow gathers the other ranks' last words after the first failure;
	// SymptomWindow is for failures that others must have caused, whose cause is
	// often printed later (an NCCL error comes before its peer's traceback).
	CollectWindow = 2 * time.Second
	SymptomWindow = 10 * time.Second
	// StrongWindow is how long a rank may live on after it reported its own end.
	StrongWindow = 5 * time.Second
)

// A failure is how a rank came to fail.
type failure struct {
	at     time.Time
	victim bool // of what other ranks' failures bring about
}

func (d *Detector) exit(f Fact, now time.Time) {
	switch {
	case f.Exit.Stopped:
	case f.Exit.Code == 0:
		delete(d.raised, f.Rank) // it ended well nevertheless
	default:
		d.exits[f.Rank] = failure{at: now}
		if crash(f.Exit.Signal) {
			d.name(now)
		}
	}
}

// crash reports whether a signal is a cause in itself. SIGABRT is not: NCCL's
// watchdog ends the rank with it when another one is lost.
func crash(signal int) bool {
	switch signal {
	case sigKILL, sigSEGV, sigBUS, sigILL, sigFPE:
		return true
	}
	return false
}

func (d *Detector) name(now time.Time) {
	if d.named.IsZero() {
		d.named = now
	}
}

func (d *Detector) find(f Fact, now time.Time) {
	n := d.evidence.folded().known[identityOf(&f)]
	if f.Finding.Weight.Over() {
		delete(d.seen, n) // another one may take its place
		return
	}
	if d.seen[n].IsZero() {
		d.seen[n] = now
	}
	if _, known := d.raised[f.Rank]; !known && strong(f) {
		d.raised[f.Rank] = failure{at: now, victim: f.Finding.Weight == cause.WeightSymptom}
	}
}

// strong reports whether a rank told of its own end. A rank that leaves by
// SystemExit or KeyboardInterrupt does not fail by it.
func strong(f Fact) bool {
	own := f.Source == "error.json" || f.Source == "probe"
	leaves := f.Finding.Weight == cause.WeightSymptom && (f.Finding.Code == cause.UserError || f.Finding.Code == cause.Preempted)
	return own && !leaves
}

// deadline is when the ranks have to be stopped because of those that have failed,
// the zero time for never. A rank that told of its end may take StrongWindow for it.
// One that is gone leaves CollectWindow for the others' last words; but if it only
// suffered from another rank's failure, the cause has SymptomWindow to come, and
// from then on CollectWindow.
func (d *Detector) deadline() time.Time {
	var first time.Time
	by := func(f failure, window time.Duration) {
		at := f.at.Add(window)
		if c := d.cause(); f.victim && !c.IsZero() {
			at = earlier(at, latest(f.at, c).Add(CollectWindow))
		}
		first = earlier(first, at)
	}
	for rank, f := range d.exits {
		window := CollectWindow
		if f.victim = d.victim(rank); f.victim {
			window = SymptomWindow
		}
		by(f, window)
	}
	for _, f := range d.raised {
		window := StrongWindow
		if f.victim {
			window = SymptomWindow
		}
		by(f, window)
	}
	return first
}

// victim reports whether a rank only said what other ranks' failures bring about.
func (d *Detector) victim(rank int) bool {
	victim := false
	for _, s := range d.evidence.folded().findings {
		if s.rank != rank {
			continue
		}
		if s.finding.Weight == cause.WeightCause {
			return false
		}
		victim = victim || s.finding.Weight == cause.WeightSymptom && s.finding.Code != cause.UserError && s.finding.Code != cause.Preempted
	}
	return victim
}

// cause is when the first cause was seen, on any rank, the zero time for never.
func (d *Detector) cause() time.Time {
	first := d.named
	for i, s := range d.evidence.folded().findings {
		if s.finding.Weight == cause.WeightCause {
			first = earlier(first, d.seen[i])
		}
	}
	return first
}

// lingering is a rank that told of its own end and has not ended, where no rank has
// ended badly.
func (d *Detector) lingering() (rank int, f failure, ok bool) {
	for r, of := range d.raised {
		if _, ended := d.evidence.folded().exits[r]; !ended && (!ok || of.at.Before(f.at)) {
			rank, f, ok = r, of, true
		}
	}
	return rank, f, ok && len(d.exits) == 0
}
