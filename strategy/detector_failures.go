package strategy

import (
	"slices"
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
	// PeerWindow gathers the other ranks' last words after a rank has named a root
	// cause itself: what is certain needs no more than those that fail at the same
	// moment.
	PeerWindow = 300 * time.Millisecond
	// StrongWindow is how long a rank may live on after it reported its own end, and
	// its peers while the job's checkpoint grows.
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
	case f.Exit.Code == 0 && d.evidence.folded().masked(f.Rank):
		d.exits[f.Rank] = failure{at: now}
	case f.Exit.Code == 0 && d.apart: // too late: others have been stopped by its word
	case f.Exit.Code == 0:
		delete(d.raised, f.Rank) // it ended well nevertheless
	default:
		d.exits[f.Rank] = failure{at: now}
		if crash(f.Exit.Signal) {
			d.name(now)
		}
	}
}

// lose takes a node's loss for the bad end of its ranks: the others wait for them in vain.
func (d *Detector) lose(l Lost, now time.Time) {
	d.name(now)
	for _, rank := range l.Ranks {
		d.exits[rank] = failure{at: now}
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
	if !strong(f) || d.apart {
		return // a peer that gpurun has stopped raises, too
	}
	victim := f.Finding.Weight == cause.WeightSymptom
	if before, known := d.raised[f.Rank]; !known || before.victim && !victim {
		d.raised[f.Rank] = failure{at: now, victim: victim}
	}
}

// strong reports whether a rank told of its own end. A rank that leaves by
// SystemExit or KeyboardInterrupt does not fail by it.
func strong(f Fact) bool {
	return ownWord(f.Source) && said(f.Finding) && !f.Finding.Beside
}

// deadline is when all ranks have to be stopped because of those that have failed, the
// zero time for never. Where a rank named a root cause itself, nothing else is waited
// for than its own end, see partings. Else a rank that is gone leaves CollectWindow for
// the others' last words; but if it only suffered from another rank's failure, or told
// so, the cause has SymptomWindow to come, and from then on CollectWindow.
func (d *Detector) deadline() time.Time {
	if peers, all := d.partings(); !all.IsZero() {
		return latest(peers, all)
	}
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
		by(f, SymptomWindow)
	}
	return first
}

// partings are until when ranks may live on after one has named a root cause by its own
// word: its peers for PeerWindow, or StrongWindow where the job's checkpoint is seen to
// grow meanwhile; those that named one for StrongWindow each, or until they have ended.
// Both are zero where no rank has named one. Words in the output, exits and symptoms
// change neither.
func (d *Detector) partings() (peers, named time.Time) {
	var first, living time.Time
	for rank, f := range d.raised {
		if f.victim {
			continue
		}
		first = earlier(first, f.at)
		if _, ended := d.evidence.folded().exits[rank]; !ended {
			living = earlier(living, f.at.Add(StrongWindow))
		}
	}
	if first.IsZero() {
		return first, first
	}
	peers = first.Add(PeerWindow)
	if at := d.saved(); at.After(first) && at.Before(peers) {
		peers = first.Add(StrongWindow)
	}
	return peers, latest(first, living)
}

// saved is when the job's checkpoint was seen to grow, the zero time for never.
func (d *Detector) saved() time.Time {
	c := d.evidence.folded()
	if i, known := c.signs[-1]; known {
		return c.facts[i].Sign.Saved
	}
	return time.Time{}
}

// peersDue is when the peers of those that named a cause have to be stopped before
// these, the zero time for never.
func (d *Detector) peersDue() time.Time {
	if d.apart || len(d.Named()) == 0 {
		return time.Time{}
	}
	ended := d.evidence.folded().exits
	for rank := range d.evidence.Ranks {
		_, gone := ended[rank]
		if f, raised := d.raised[rank]; !gone && (!raised || f.victim) {
			peers, _ := d.partings()
			return peers
		}
	}
	return time.Time{}
}

// Named are the ranks that named a root cause by their own word. StopPeers is about all
// others.
func (d *Detector) Named() []int {
	var ranks []int
	for rank, f := range d.raised {
		if !f.victim {
			ranks = append(ranks, rank)
		}
	}
	slices.Sort(ranks)
	return ranks
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
		victim = victim || s.finding.Weight == cause.WeightSymptom && said(s.finding)
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

// NamesCause reports whether a fact is a rank's own word of its end, and the root cause
// of it: strong evidence.
func (f Fact) NamesCause() bool {
	return f.Finding != nil && f.Finding.Weight == cause.WeightCause && strong(f)
}

// lingering is a rank that told of its own end and has not ended. One that only suffered
// counts where no rank has named a root cause and none has ended badly.
func (d *Detector) lingering() (rank int, f failure, ok bool) {
	named := len(d.Named()) > 0
	for r, of := range d.raised {
		if named && of.victim {
			continue
		}
		if _, ended := d.evidence.folded().exits[r]; !ended && (!ok || of.at.Before(f.at)) {
			rank, f, ok = r, of, true
		}
	}
	return rank, f, ok && (named || len(d.exits) == 0)
}
