package strategy

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// How long the failure detector waits after a failure for messages that may never come.
const (
	// CollectWindow is the wait for the other ranks' last messages after the first failure.
	// SymptomWindow is the wait after a failure that another rank must have caused: its cause is
	// often printed later (an NCCL error comes before its peer's traceback).
	CollectWindow = 2 * time.Second
	SymptomWindow = 10 * time.Second
	// PeerWindow is the wait for the other ranks' last messages after a rank has reported a root
	// cause. Only ranks that fail at the same moment add new information.
	PeerWindow = 300 * time.Millisecond
	// StrongWindow is how long a rank may live after it reported its end, and how long its peers
	// may live while the job's checkpoint grows.
	StrongWindow = 5 * time.Second
	// AskingMargin is how much longer than Evidence.Questions a rank may be asked: it ends its
	// questions by a clock of its own.
	AskingMargin = 2 * time.Second
)

// When a rank that printed an out-of-memory traceback counts as hanging.
const (
	// patienceSteps is the permitted silence after the traceback, in multiples of the longest
	// step.
	patienceSteps = 5
	// outliving is the time, in multiples of its patience, after which a rank that still writes
	// is no longer a suspect: a training whose steps are not recognised may be silent later.
	outliving = 10
	// streamLag is the largest delay of a line on one stream behind newer output on the other:
	// the two streams of a rank are two pipes.
	streamLag = time.Second
	// asleep is the delay of a call from which gpurun concludes that it was suspended in the
	// meantime.
	asleep = 250 * time.Millisecond
)

// A Stop orders the stop of ranks: of all of them, except for StopPeers.
type Stop struct {
	At     time.Time  `json:"at"`
	Reason StopReason `json:"reason"`
	// Rank is the one that hangs, or for StopPeers the one that named the cause; -1 if ranks have
	// failed.
	Rank int     `json:"rank"`
	For  Seconds `json:"for_seconds,omitempty"` // how long it has hung
}

// A StopReason is the reason to stop ranks.
type StopReason string

// The reasons.
const (
	StopFailed    StopReason = "failed"    // ranks have failed, and the others cannot continue
	StopPeers     StopReason = "peers"     // a rank reported a root cause and is ending; the others are stopped
	StopLingering StopReason = "lingering" // a rank reported its end and did not exit
	StopSilent    StopReason = "silent"    // a rank printed an out-of-memory traceback and then nothing
	StopStalled   StopReason = "stalled"   // no rank has made a step
	StopUnfit     StopReason = "unfit"     // a GPU was found broken before the first step
)

// String is the action and its reason, in one sentence.
func (s Stop) String() string {
	if notice := s.Notice(); notice != "" {
		return notice
	}
	return "ranks have failed, and all ranks are stopped"
}

// Notice is the reason to stop ranks that have not failed; empty if they have.
func (s Stop) Notice() string {
	since := s.For.Duration().Round(time.Second)
	switch s.Reason {
	case StopLingering:
		return fmt.Sprintf("rank %d raised an exception and has not ended for %s: it hangs, and all ranks are stopped",
			s.Rank, since)
	case StopSilent:
		return fmt.Sprintf("rank %d printed an out-of-memory traceback and then nothing for %s: it hangs, and all ranks are stopped", s.Rank, since)
	case StopStalled:
		return fmt.Sprintf("no rank has made a step for %s: the job hangs, and all ranks are stopped", since)
	case StopUnfit:
		return "a GPU is not fit to train on, and no step was made yet: the attempt is ended"
	}
	return ""
}

// A Detector decides when the ranks of a running attempt have to be stopped. It uses the same
// evidence as Diagnose, and the times of its facts. It has no clock: each call passes the time.
type Detector struct {
	evidence *Evidence

	// seen is the time of the first state of each finding from which the job has not recovered,
	// by the finding's index in the fold.
	seen map[int]time.Time
	// exits has the ranks that ended badly, and raised the ranks that reported their end, which
	// is strong evidence.
	exits, raised map[int]failure
	asks          map[int]asking // by rank that reported questions
	named         time.Time      // time of the first evidence of a cause outside the output: a kill, a crash
	due           time.Time      // when suspects have to be checked again; zero: never
	woke          time.Time      // when gpurun was last found to have been suspended
	// apart: the peers of the ranks that named a cause have been stopped. From then on gpurun
	// itself may have caused messages and exits.
	apart bool
	unfit bool // a GPU on which the ranks have just been started was found broken
}

// A failure is the time at which a rank failed.
type failure struct {
	at     time.Time
	victim bool // caused by another rank's failure
}

// An asking is when a rank reported its first question, and when the last has to be answered.
type asking struct{ since, until time.Time }

// NewDetector returns a detector that adds facts to the evidence of a new attempt.
func NewDetector(e *Evidence) *Detector {
	return &Detector{evidence: e, seen: map[int]time.Time{}, exits: map[int]failure{}, raised: map[int]failure{},
		asks: map[int]asking{}}
}

// Add adds a fact that arrived now to the evidence, and reports whether it may change the
// verdict.
func (d *Detector) Add(f Fact, now time.Time) (matters bool) {
	d.evidence.Add(f)
	switch content := f.Content.(type) {
	case *Exit:
		d.exit(f.Rank, content, now)
	case *Kills:
		if content.Count > 0 {
			d.name(now)
		}
	case *ProcessEnd:
		if d.evidence.Ranks == 1 { // the shell above it may start another one
			delete(d.raised, f.Rank)
		}
	case *Lost: // the other ranks wait in vain for the node's ranks
		d.name(now)
		for _, rank := range content.Ranks {
			d.exits[rank] = failure{at: now}
		}
	case *DriverEvent:
		if finding, ok := f.DriverEvent().Finding(); ok && finding.Weight == cause.WeightCause {
			d.name(now)
		}
		d.unfit = d.unfit || content.Kind == cause.UnfitEvent
	case *Finding:
		d.find(f, now)
	case *Asking:
		d.ask(f.Rank, content.For, now)
	case *Sign:
	default:
		return false
	}
	return true
}

func (d *Detector) exit(rank int, exit *Exit, now time.Time) {
	switch {
	case exit.Stopped:
	case exit.Code == 0 && d.evidence.folded().masked(rank):
		d.exits[rank] = failure{at: now}
	case exit.Code == 0 && d.apart: // too late: its report has already stopped the others
	case exit.Code == 0:
		delete(d.raised, rank) // it ended well after all
	default:
		d.exits[rank] = failure{at: now}
		// SIGABRT names no cause: NCCL's watchdog ends a rank with it when another one is lost.
		if slices.Contains([]int{sigKILL, sigSEGV, sigBUS, sigILL, sigFPE}, exit.Signal) {
			d.name(now)
		}
	}
}

func (d *Detector) name(now time.Time) {
	if d.named.IsZero() {
		d.named = now
	}
}

func (d *Detector) find(f Fact, now time.Time) {
	n := d.evidence.folded().known[identityOf(&f)]
	if f.Finding().Weight.Over() {
		delete(d.seen, n) // another one may take its place
		return
	}
	if d.seen[n].IsZero() {
		d.seen[n] = now
	}
	if !strong(f) || d.apart {
		return // a peer that gpurun has stopped raises, too
	}
	victim := f.Finding().Weight == cause.WeightSymptom
	if before, known := d.raised[f.Rank]; !known || before.victim && !victim {
		d.raised[f.Rank] = failure{at: now, victim: victim}
	}
}

// ask notes that a rank asks questions for a time, or with 0 that all are answered. All questions of a rank
// together are bounded.
func (d *Detector) ask(rank int, bound Seconds, now time.Time) {
	limit := d.evidence.Questions.Duration()
	if limit <= 0 {
		return
	}
	a, again := d.asks[rank]
	if !again {
		a.since = now
	}
	a.until = earlier(now.Add(max(bound.Duration(), 0)), a.since.Add(limit+AskingMargin))
	d.asks[rank] = a
}

// ends is the time from which a rank that reported its end has StrongWindow: its report, or the end of its
// questions.
func (d *Detector) ends(rank int, f failure) time.Time { return latest(f.at, d.asks[rank].until) }

// strong reports whether a rank reported its end. SystemExit and KeyboardInterrupt are not
// failures.
func strong(f Fact) bool {
	return ownWord(f.Source) && said(f.Finding()) && !f.Finding().Beside
}

// NamesCause reports whether a fact is strong evidence: a rank's report of its end with the root
// cause.
func (f Fact) NamesCause() bool {
	return f.Finding() != nil && f.Finding().Weight == cause.WeightCause && strong(f)
}

// Next is the time at which Verdict has to be called again if no fact comes before; zero: never.
func (d *Detector) Next() time.Time {
	return earlier(earlier(d.peersDue(), d.deadline()), d.due)
}

// Verdict reports whether ranks have to be stopped now, which, and why. It returns StopPeers
// once; after that the caller continues to call it as before. The signs of life of the Watched
// ranks have to be added first.
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
		if As[*Sign](c.facts[i]).Steps > 0 {
			return true
		}
	}
	return c.steps > 0
}

// deadline is the time at which all ranks have to be stopped because some have failed; zero:
// never. If a rank has reported a root cause, the detector waits only for the end of that rank,
// see partings. Otherwise a failed rank leaves CollectWindow for the others' last messages. If it
// was only a victim, the detector waits SymptomWindow for the cause, and after the cause
// CollectWindow.
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

// partings returns until when ranks may live after one has reported a root cause. Its peers have
// PeerWindow, or StrongWindow if the job's checkpoint grows meanwhile. Each rank that reported a
// cause has StrongWindow, or until it ends; none is stopped while one of them is asked questions.
// Both times are zero if no rank has reported one.
func (d *Detector) partings() (peers, named time.Time) {
	var first, living, asked time.Time
	c := d.evidence.folded()
	for rank, f := range d.raised {
		if f.victim {
			continue
		}
		first = earlier(first, f.at)
		if _, ended := c.exits[rank]; !ended {
			living = earlier(living, d.ends(rank, f).Add(StrongWindow))
			asked = latest(asked, d.asks[rank].until)
		}
	}
	if first.IsZero() {
		return first, first
	}
	peers = first.Add(PeerWindow)
	if i, known := c.signs[-1]; known {
		if saved := As[*Sign](c.facts[i]).Saved; saved.After(first) && saved.Before(peers) {
			peers = first.Add(StrongWindow)
		}
	}
	return peers, latest(latest(first, living), asked)
}

// peersDue is the time at which the peers of the ranks that reported a cause have to be stopped
// before these; zero: never.
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

// Named lists the ranks that reported a root cause. StopPeers stops all others.
func (d *Detector) Named() []int {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.raised)), func(rank int) bool { return d.raised[rank].victim })
}

// victim reports whether a rank only showed consequences of other ranks' failures.
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

// cause is the time of the first cause on any rank; zero: none.
func (d *Detector) cause() time.Time {
	first := d.named
	for i, s := range d.evidence.folded().findings {
		if s.finding.Weight == cause.WeightCause {
			first = earlier(first, d.seen[i])
		}
	}
	return first
}

// lingering returns a rank that reported its end and has not ended. A victim counts only if no
// rank has reported a root cause and none has ended badly.
func (d *Detector) lingering() (rank int, f failure, ok bool) {
	named := len(d.Named()) > 0
	for r, of := range d.raised {
		if named && of.victim {
			continue
		}
		if _, ended := d.evidence.folded().exits[r]; !ended && (!ok || d.ends(r, of).Before(d.ends(rank, f))) {
			rank, f, ok = r, of, true
		}
	}
	return rank, f, ok && (named || len(d.exits) == 0)
}

// suspects lists the findings, by index, of ranks that printed an out-of-memory traceback and
// still run. That is weak evidence: a job that handles the error prints the same.
func (d *Detector) suspects() []int {
	c := d.evidence.folded()
	var all []int
	for i, s := range c.findings {
		_, ended := c.exits[s.rank]
		if s.finding.Code.OutOfMemory() && s.finding.Raised && s.finding.Weight == cause.WeightCause && !ended {
			all = append(all, i)
		}
	}
	return all
}

// silence reports whether a suspect was silent for too long, and otherwise sets the time of the
// next check. A rank that writes, for example an emergency checkpoint, is not stopped meanwhile.
// One that has written for very long is no longer a suspect.
func (d *Detector) silence(now time.Time) (Stop, bool) {
	// Ranks are suspended together with gpurun, or with the whole machine.
	if !d.due.IsZero() && now.Sub(d.due) > asleep {
		d.woke = now
	}
	d.due = time.Time{}
	c := d.evidence.folded()
	for _, i := range d.suspects() {
		rank, sign := c.findings[i].rank, Sign{}
		if at, known := c.signs[rank]; known {
			sign = *As[*Sign](c.facts[at])
		}
		patience := max(d.evidence.HangTimeout.Duration(), patienceSteps*sign.Longest.Duration())
		if trains(d.seen[i], sign) || sign.Output.Sub(d.seen[i]) >= outliving*patience {
			continue
		}
		last := latest(latest(d.ends(rank, failure{at: d.seen[i]}), sign.Output), latest(sign.Others, d.woke))
		if silent := now.Sub(last); silent >= patience {
			return Stop{At: now, Reason: StopSilent, Rank: rank, For: Seconds(silent)}, true
		}
		d.due = earlier(d.due, last.Add(patience))
	}
	return Stop{}, false
}

// trains reports whether a suspect has continued to train since a traceback: it has made a step
// since, or another rank has made a step that began after the traceback. A rank that synchronises
// with the suspect ends at most its current step.
func trains(traceback time.Time, sign Sign) bool {
	after := traceback.Add(streamLag)
	return sign.Step.After(after) || sign.Others.After(after.Add(sign.Longest.Duration()))
}

// Replay returns when and why the failure detector would stop all ranks, by an attempt's
// evidence; false if they would not have been stopped before the attempt ended.
//
// A fact counts from its time, but not before the facts that precede it. A finding from which the
// job recovered later (Fact.Again) counts in full until then. Only the last sign of life of each
// rank is known, which is enough: silence begins with it. It is not known when gpurun was
// suspended, nor when others stopped the ranks. Without a hang timeout, as in saved output,
// no rank is suspected.
func Replay(e Evidence) (Stop, bool) {
	again := Evidence{Ranks: e.Ranks, Started: e.Started, HangTimeout: e.HangTimeout, Stalls: e.Stalls,
		Questions: e.Questions}
	if again.HangTimeout == 0 {
		again.HangTimeout = unlimited
	}
	d := NewDetector(&again)
	for _, f := range e.Facts {
		if As[*Sign](f) != nil {
			d.Add(f, e.Started)
		}
	}
	if stop, ok := d.Verdict(e.Started); ok {
		return stop, true
	}
	for _, m := range moments(e) {
		before := m.at.Add(-1) // facts of the same moment count
		if exit := m.fact.Exit(); exit != nil && exit.Stopped {
			before = m.at // but not this one: the ranks were stopped before it ended
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

// unlimited is longer than any silence.
const unlimited = Seconds(100 * 365 * 24 * time.Hour)

// until calls Verdict each time that it is due, up to a time.
func (d *Detector) until(end time.Time) (Stop, bool) {
	for next := d.Next(); !next.IsZero() && !next.After(end); next = d.Next() {
		if stop, ok := d.Verdict(next); ok && stop.Reason != StopPeers {
			return stop, true
		}
	}
	return Stop{}, false
}

// A moment is when a detector receives a fact.
type moment struct {
	at   time.Time
	fact Fact
}

// moments lists the facts of an attempt in the order of arrival; a finding that changed its state
// appears at both times.
func moments(e Evidence) []moment {
	var all []moment
	now := e.Started
	for _, f := range e.Facts {
		if As[*Sign](f) != nil {
			continue
		}
		now = latest(now, f.Time)
		if f.Finding() != nil && f.Again.After(now) && f.Finding().Seq > 0 && f.Finding().Weight.Over() {
			all = append(all, moment{f.Again, f})
			first := *f.Finding()
			first.Weight = cause.WeightCause
			if f.Finding().Weight.Warning() {
				first.Weight = cause.WeightWarning
			}
			f.Content = (*Finding)(&first)
		}
		all = append(all, moment{now, f})
	}
	slices.SortStableFunc(all, func(a, b moment) int { return a.at.Compare(b.at) })
	return all
}
