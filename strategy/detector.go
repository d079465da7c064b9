package strategy

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// How long the failure detector waits for things that may never come.
const (
	// CollectWindow gathers the other ranks' last words after the first failure;
	// SymptomWindow is for failures that others must have caused, whose cause is
	// often printed later (an NCCL error comes before its peer's traceback).
	CollectWindow = 2 * time.Second
	SymptomWindow = 10 * time.Second
	// StrongWindow is how long a rank may live on after it reported its own end.
	StrongWindow = 5 * time.Second

	// patienceSteps is how many of the longest steps a rank may be silent after an
	// out-of-memory traceback.
	patienceSteps = 5
	// outliving is for how many times its patience a suspect has to go on writing until
	// it is none any more: a training whose steps nobody recognises may be silent later.
	outliving = 10
	// streamLag is how much later than what was written after it a rank's line may be
	// read: its two streams are two pipes.
	streamLag = time.Second
	// asleep is by how much the detector is asked too late where gpurun did not run in
	// the meantime.
	asleep = 250 * time.Millisecond
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
}

// A failure is how a rank came to fail.
type failure struct {
	at     time.Time
	victim bool // of what other ranks' failures bring about
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
	case f.Finding != nil:
		d.find(f, now)
	default:
		return f.Sign != nil
	}
	return true
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

// Next is when Verdict has to be asked again if no fact comes before, the zero time
// for never. A rank's silence is known only where its sign of life was added: see
// Suspects.
func (d *Detector) Next() time.Time { return earlier(d.deadline(), d.due) }

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

// Suspects are the ranks that printed an out-of-memory traceback and live on. That is
// weak evidence: a job that handles the error prints the same. Their signs of life
// should be added before Verdict is asked.
func (d *Detector) Suspects() []int {
	var ranks []int
	for _, i := range d.suspects() {
		if rank := d.evidence.folded().findings[i].rank; !slices.Contains(ranks, rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// suspects are the indexes of the findings that make ranks suspect.
func (d *Detector) suspects() []int {
	c := d.evidence.folded()
	var all []int
	for i, s := range c.findings {
		_, ended := c.exits[s.rank]
		if outOfMemory(s.finding.Code) && s.finding.Raised && s.finding.Weight == cause.WeightCause && !ended {
			all = append(all, i)
		}
	}
	return all
}

// Verdict reports whether the ranks have to be stopped now, and why: because some have
// failed, or because a suspect was silent for long enough. A rank that goes on writing,
// an emergency checkpoint for example, is left alone as long as it does; one that has
// gone on for very long is no suspect any more.
func (d *Detector) Verdict(now time.Time) (Stop, bool) {
	if at := d.deadline(); !at.IsZero() && !now.Before(at) {
		if rank, f, ok := d.lingering(); ok {
			return Stop{At: now, Reason: StopLingering, Rank: rank, For: Seconds(now.Sub(f.at))}, true
		}
		return Stop{At: now, Reason: StopFailed, Rank: -1}, true
	}
	// Ranks are suspended together with gpurun, or with the whole machine.
	if !d.due.IsZero() && now.Sub(d.due) > asleep {
		d.woke = now
	}
	d.due = time.Time{}
	for _, i := range d.suspects() {
		rank, sign := d.signOf(i)
		patience := max(d.evidence.HangTimeout.Duration(), patienceSteps*sign.Longest.Duration())
		if trains(d.seen[i], sign) || sign.Output.Sub(d.seen[i]) >= outliving*patience {
			continue
		}
		last := latest(latest(d.seen[i], sign.Output), latest(sign.Others, d.woke))
		if silent := now.Sub(last); silent >= patience {
			return Stop{At: now, Reason: StopSilent, Rank: rank, For: Seconds(silent)}, true
		}
		d.due = earlier(d.due, last.Add(patience))
	}
	return Stop{}, false
}

// signOf is the rank of a finding and what it last let see of itself.
func (d *Detector) signOf(i int) (rank int, sign Sign) {
	c := d.evidence.folded()
	rank = c.findings[i].rank
	if at, known := c.signs[rank]; known {
		sign = *c.facts[at].Sign
	}
	return rank, sign
}

// trains reports whether a suspect has gone on training since a traceback: it has made
// a step since, or another rank has made one that it began after the traceback. A rank
// that synchronises with the suspect ends at most the step that it was in.
func trains(traceback time.Time, sign Sign) bool {
	after := traceback.Add(streamLag)
	return sign.Step.After(after) || sign.Others.After(after.Add(sign.Longest.Duration()))
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

// A Stop says that all ranks have to be stopped.
type Stop struct {
	At     time.Time  `json:"at"`
	Reason StopReason `json:"reason"`
	// Rank is the one that hangs, -1 where ranks have failed by themselves.
	Rank int `json:"rank"`
	// For is how long it has hung.
	For Seconds `json:"for_seconds,omitempty"`
}

// A StopReason is why ranks are stopped.
type StopReason string

// The reasons. Ranks have failed and the others cannot go on; a rank told of its own
// end and lives on; a rank printed an out-of-memory traceback and then nothing.
const (
	StopFailed    StopReason = "failed"
	StopLingering StopReason = "lingering"
	StopSilent    StopReason = "silent"
)

// Notice tells people why ranks are stopped that have not failed by themselves, empty
// where they have.
func (s Stop) Notice() string {
	since := s.For.Duration().Round(time.Second)
	switch s.Reason {
	case StopLingering:
		return fmt.Sprintf("rank %d raised an exception and has not ended for %s: it hangs, and all ranks are stopped", s.Rank, since)
	case StopSilent:
		return fmt.Sprintf("rank %d printed an out-of-memory traceback and then nothing for %s: it hangs, and all ranks are stopped", s.Rank, since)
	}
	return ""
}

// earlier is the earlier of two times, where zero is no time.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
