package strategy

import (
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A Detector says when the ranks of a running attempt have to be stopped, and why. It
// decides by the same evidence as Diagnose, which it fills, and by when that came: it is
// told the time with each call, and asks no clock.
type Detector struct {
	evidence *Evidence

	// seen is when each finding that the job has not got over came first, by its index
	// in the fold.
	seen map[int]time.Time
	// exits are the ranks that ended badly by themselves, and raised those that told
	// of their own end: strong evidence.
	exits, raised map[int]failure
	// named is when something other than words named a cause: a kill, a crash.
	named time.Time
	due   time.Time // when suspects have to be looked at again, zero for never
	woke  time.Time // when it was last found that gpurun had been suspended
	// apart says that the peers of the ranks that named a cause have been stopped:
	// what any rank says or how it ends from then on may be gpurun's own doing.
	apart bool
	// unfit says that a GPU was found broken on which the ranks have just been started.
	unfit bool
}

// NewDetector returns a detector that fills the evidence of an attempt that begins.
func NewDetector(e *Evidence) *Detector {
	return &Detector{evidence: e, seen: map[int]time.Time{}, exits: map[int]failure{}, raised: map[int]failure{}}
}

// Add takes a fact that came now, and keeps it in the evidence. It reports whether the
// fact may change the verdict.
func (d *Detector) Add(f Fact, now time.Time) (matters bool) {
	d.evidence.Add(f)
	switch {
	case f.Exit != nil:
		d.exit(f, now)
	case f.Kills != nil:
		if f.Kills.Count > 0 {
			d.name(now)
		}
	case f.ProcessEnd != nil:
		if d.evidence.Ranks == 1 { // the shell above it may start another one
			delete(d.raised, f.Rank)
		}
	case f.Lost != nil:
		d.lose(*f.Lost, now)
	case f.DriverEvent != nil:
		if finding, ok := f.DriverEvent.Finding(); ok && finding.Weight == cause.WeightCause {
			d.name(now)
		}
		d.unfit = d.unfit || f.DriverEvent.Kind == cause.UnfitEvent
	case f.Finding != nil:
		d.find(f, now)
	default:
		return f.Sign != nil
	}
	return true
}

// Next is when Verdict has to be asked again if no fact comes before, the zero time
// for never. A rank's silence is known only where its sign of life was added: see
// Suspects.
func (d *Detector) Next() time.Time {
	return earlier(earlier(d.peersDue(), d.deadline()), d.due)
}

// Verdict reports whether ranks have to be stopped now, which, and why: because a GPU was
// found broken before the first step, because some have failed, or because one that may hang was silent for long enough. After StopPeers, which
// comes once, it has to be asked again as before.
func (d *Detector) Verdict(now time.Time) (Stop, bool) {
	if d.unfit && !d.stepped() {
		return Stop{At: now, Reason: StopUnfit, Rank: -1}, true
	}
	if at := d.deadline(); !at.IsZero() && !now.Before(at) {
		if rank, f, ok := d.lingering(); ok {
			return Stop{At: now, Reason: StopLingering, Rank: rank, For: Seconds(now.Sub(f.at))}, true
		}
		return Stop{At: now, Reason: StopFailed, Rank: -1}, true
	}
	if at := d.peersDue(); !at.IsZero() && !now.Before(at) {
		d.apart = true
		rank, _, _ := d.lingering()
		return Stop{At: now, Reason: StopPeers, Rank: rank}, true
	}
	if stop, silent := d.silence(now); silent {
		return stop, true
	}
	return d.stalled(now)
}

// stepped reports whether a rank has made a training step.
func (d *Detector) stepped() bool {
	c := d.evidence.folded()
	for _, i := range c.signs {
		if c.facts[i].Sign.Steps > 0 {
			return true
		}
	}
	return c.steps > 0
}
