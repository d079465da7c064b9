package launcher

import (
	"syscall"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// outliving is for how many times its patience a suspect has to go on writing until
// it is none any more: a training whose steps nobody recognises may be silent later.
const outliving = 10

// An outlook is what the facts so far say about how a running attempt goes on: which
// ranks have failed, which are about to, and which may be hanging. It is told the
// time and asks no clock.
type outlook struct {
	// live are the sightings that the job has not outlived, in their last state.
	live map[sightingID]sighted
	// exits are the ranks that ended badly by themselves, and raised those that told
	// of their own end: strong evidence.
	exits, raised map[int]failure
	// ended are all ranks whose process is gone.
	ended map[int]bool
	// named is when something other than words named a cause: a kill, a crash.
	named time.Time

	unnumbered int
}

// A sightingID tells sightings apart; one that is given again has the same.
type sightingID struct {
	rank           int
	source, stream string
	seq            int
}

type sighted struct {
	rank int
	said cause.Sighting
	at   time.Time // when it was seen first
}

// A failure is how a rank came to fail.
type failure struct {
	at     time.Time
	victim bool // by what other ranks' failures bring about
}

func newOutlook() *outlook {
	return &outlook{live: map[sightingID]sighted{}, exits: map[int]failure{}, raised: map[int]failure{}, ended: map[int]bool{}}
}

// add takes a fact that came now.
func (o *outlook) add(f strategy.Fact, now time.Time) {
	switch {
	case f.Exit != nil:
		o.exit(f, now)
	case f.Kills != nil && f.Kills.Count > 0:
		o.name(now)
	case f.DriverEvent != nil:
		if said, ok := f.DriverEvent.Sighting(); ok && causes(said) {
			o.name(now)
		}
	case f.Sighting != nil:
		o.sight(f, now)
	}
}

func (o *outlook) exit(f strategy.Fact, now time.Time) {
	o.ended[f.Rank] = true
	switch {
	case f.Exit.Stopped:
	case f.Exit.Code == 0:
		delete(o.raised, f.Rank) // it ended well nevertheless
	default:
		o.exits[f.Rank] = failure{at: now}
		if crash(f.Exit.Signal) {
			o.name(now)
		}
	}
}

// crash reports whether a signal is a cause in itself. SIGABRT is not: NCCL's
// watchdog ends the rank with it when another one is lost.
func crash(signal int) bool {
	switch syscall.Signal(signal) {
	case syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE:
		return true
	}
	return false
}

func (o *outlook) name(now time.Time) {
	if o.named.IsZero() {
		o.named = now
	}
}

func (o *outlook) sight(f strategy.Fact, now time.Time) {
	said := *f.Sighting
	id := sightingID{f.Rank, f.Source, said.Stream, said.Seq}
	if said.Seq == 0 {
		o.unnumbered++
		id.seq = -o.unnumbered
	}
	s := sighted{rank: f.Rank, said: said, at: now}
	if before, ok := o.live[id]; ok {
		s.at = before.at
	}
	if said.Handled || said.WentOn {
		delete(o.live, id)
		return
	}
	o.live[id] = s
	if _, known := o.raised[f.Rank]; !known && strong(f) {
		o.raised[f.Rank] = failure{at: now, victim: said.Symptom}
	}
}

// strong reports whether a rank told of its own end. A rank that leaves by
// SystemExit or KeyboardInterrupt does not fail by it.
func strong(f strategy.Fact) bool {
	own := f.Source == "error.json" || f.Source == "probe"
	leaves := f.Sighting.Symptom && (f.Sighting.Code == cause.UserError || f.Sighting.Code == cause.Preempted)
	return own && !leaves
}

// deadline is when the ranks have to be stopped because of those that have failed,
// the zero time for never. A rank that told of its end may take strongWindow for it.
// One that is gone leaves collectWindow for the others' last words; but if it only
// suffered from another rank's failure, the cause has symptomWindow to come, and
// from then on collectWindow.
func (o *outlook) deadline() time.Time {
	var first time.Time
	by := func(f failure, window time.Duration) {
		at := f.at.Add(window)
		if c := o.cause(); f.victim && !c.IsZero() {
			at = earlier(at, latest(f.at, c).Add(collectWindow))
		}
		first = earlier(first, at)
	}
	for rank, f := range o.exits {
		window := collectWindow
		if f.victim = o.victim(rank); f.victim {
			window = symptomWindow
		}
		by(f, window)
	}
	for _, f := range o.raised {
		window := strongWindow
		if f.victim {
			window = symptomWindow
		}
		by(f, window)
	}
	return first
}

// lingering is a rank that told of its own end and has not ended, where no rank has
// ended badly.
func (o *outlook) lingering() (rank int, f failure, ok bool) {
	for r, of := range o.raised {
		if !o.ended[r] && (!ok || of.at.Before(f.at)) {
			rank, f, ok = r, of, true
		}
	}
	return rank, f, ok && len(o.exits) == 0
}

// victim reports whether a rank only said what other ranks' failures bring about.
func (o *outlook) victim(rank int) bool {
	victim := false
	for _, s := range o.live {
		if s.rank != rank {
			continue
		}
		if causes(s.said) {
			return false
		}
		victim = victim || s.said.Symptom && s.said.Code != cause.UserError && s.said.Code != cause.Preempted
	}
	return victim
}

// cause is when the first cause was seen, on any rank, the zero time for never.
func (o *outlook) cause() time.Time {
	first := o.named
	for _, s := range o.live {
		if causes(s.said) {
			first = earlier(first, s.at)
		}
	}
	return first
}

func causes(s cause.Sighting) bool { return !s.Symptom && !s.Weak }

// suspects are the sightings of ranks that printed an out-of-memory traceback and
// live on. That is weak evidence: a job that handles the error prints the same.
func (o *outlook) suspects() []sighted {
	var all []sighted
	for _, s := range o.live {
		oom := s.said.Code == cause.CUDAOOM || s.said.Code == cause.HostOOM
		if oom && s.said.Raised && causes(s.said) && !o.ended[s.rank] {
			all = append(all, s)
		}
	}
	return all
}

// streamLag is how much later than what was written after it a rank's line may be
// read: its two streams are two pipes.
const streamLag = time.Second

// trains reports whether a suspect has gone on training: it has made a step since,
// or another rank has made one that it began after the traceback. A rank that
// synchronises with the suspect ends at most the step that it was in.
func (s sighted) trains(sign Sign) bool {
	after := s.at.Add(streamLag)
	return sign.Step.After(after) || sign.Others.After(after.Add(sign.Longest))
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
