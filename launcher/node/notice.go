package node

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

const (
	// reserve is how long before the end of the time ranks are stopped at the latest:
	// their grace, the sweep and the verdict have to fit into it.
	reserve = time.Minute
	// checkpointLook is how often to look for a new checkpoint, and checkpointQuiet how
	// long nothing of it must have been written before it counts.
	checkpointLook  = time.Second
	checkpointQuiet = 2 * time.Second
	// askBound is how long the scheduler may take to say when the time ends.
	askBound = 5 * time.Second
)

// preemptedBound is how long the scheduler may take to say whether a SIGTERM is a preemption.
// The ranks' grace has to fit behind it.
const preemptedBound = 3 * time.Second

// PreemptionNotice is what a notice is called that came as SIGTERM, since the scheduler
// preempts the job.
const PreemptionNotice = "preemption"

// DeadlineNotice is what a notice is called that gpurun gives itself, since its own
// deadline is near.
const DeadlineNotice = "deadline"

// What a notice means, as launch.on_notice has it.
const (
	NoticeAuto = "auto"
	NoticeStop = "stop"
	NoticeGoOn = "go-on"
)

// NoticeOptions say what a notice means here: a signal by which somebody announces
// that the time ends.
type NoticeOptions struct {
	// Mode is NoticeStop, NoticeGoOn, or NoticeAuto: the run stops where its time is known
	// to end or the scheduler starts the job again.
	Mode string
	// Grace is how long ranks train on where the end is not known.
	Grace time.Duration
	// Deadline is by when the run has to be over, as the user says; zero for none.
	Deadline time.Time
	// Scheduler asks until when the job may run, zero where nobody knows, and whether it
	// is started again afterwards; nil without a scheduler.
	Scheduler func(ctx context.Context) (end time.Time, again bool)
	// Checkpoint is the newest complete checkpoint of which something was written at or
	// after since, empty for none; nil where the job cannot go on from any.
	Checkpoint func(since time.Time) string
}

// meaning says whether the run stops for a notice, and when the time ends, zero where
// that is not known. A preemption, SIGTERM, always has an end. SIGUSR2 stops a run only where
// somebody has said so: to many programs it means something else.
func (o NoticeOptions) meaning(ctx context.Context, sig unix.Signal) (stop bool, end time.Time) {
	if o.Mode == NoticeGoOn {
		return false, time.Time{}
	}
	end, again := o.ends(ctx)
	return o.Mode == NoticeStop || sig == unix.SIGTERM || sig != unix.SIGUSR2 && (again || !end.IsZero()), end
}

// ends is when the time ends, zero where that is not known, and whether the scheduler
// starts the job again afterwards.
func (o NoticeOptions) ends(ctx context.Context) (end time.Time, again bool) {
	if o.Scheduler != nil {
		ctx, cancel := context.WithTimeout(ctx, askBound)
		defer cancel()
		end, again = o.Scheduler(ctx)
	}
	if end.IsZero() || !o.Deadline.IsZero() && o.Deadline.Before(end) {
		end = o.Deadline
	}
	return end, again
}

// Ends is by when the run has to be over, the zero time where nobody knows.
func (o NoticeOptions) Ends(ctx context.Context) time.Time {
	end, _ := o.ends(ctx)
	return end
}

// until is when ranks are stopped at the latest, for a notice that came now. Where the
// end is nearer than the reserve, half of what is left is theirs.
func (o NoticeOptions) until(now, end time.Time) time.Time {
	if end.IsZero() {
		return now.Add(o.Grace)
	}
	if last := end.Add(-reserve); last.After(now.Add(reserve / 2)) {
		return last
	}
	return now.Add(max(0, min(end.Sub(now)/2, reserve/2)))
}

// A notice is the first that came, and what becomes of it.
type notice struct {
	name    string
	sig     unix.Signal
	decided chan struct{} // closed when stop is known
	stop    bool
	caught  bool
}

// OnNotice says, once, what a notice means; one that has come before waits for it. With a deadline gpurun gives itself
// the notice in time.
func (s *Signals) OnNotice(o NoticeOptions) {
	s.mu.Lock()
	s.onNotice = o
	s.mu.Unlock()
	close(s.meant)
	if o.Deadline.IsZero() || o.Mode == NoticeGoOn {
		return
	}
	s.owner.Go(func() {
		near := time.NewTimer(time.Until(o.Deadline.Add(-reserve - o.Grace)))
		defer near.Stop()
		select {
		case <-near.C:
			s.announce(DeadlineNotice, unix.SIGUSR1)
		case <-s.over:
		}
	})
}

// AskWhether says how the scheduler is asked at SIGTERM whether it preempts the job.
func (s *Signals) AskWhether(preempted func(context.Context) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.preempted = preempted
}

// terminate takes a SIGTERM in, which ends the run, or is a notice where the job is
// preempted. Slurm sends two.
func (s *Signals) terminate() {
	s.mu.Lock()
	ask, known := s.preempted, s.asking
	if ask != nil && known == nil {
		s.asking = make(chan struct{})
	}
	s.mu.Unlock()
	switch {
	case ask == nil:
		s.stop(unix.SIGTERM, false)
	case known == nil:
		s.owner.Go(func() { s.learn(ask) })
	}
}

// learn asks whether the SIGTERM that came is a preemption.
func (s *Signals) learn(ask func(context.Context) bool) {
	ctx, cancel := s.untilOver()
	defer cancel()
	bounded, stop := context.WithTimeout(ctx, preemptedBound)
	defer stop()
	if ask(bounded) {
		s.announce(PreemptionNotice, unix.SIGTERM)
	} else {
		s.stop(unix.SIGTERM, false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.asking)
	s.asking = nil
}

// announce takes a notice in: the first decides about the run, and each is passed to the
// ranks that listen for it, SIGTERM as SIGUSR1, since ranks end by it.
func (s *Signals) announce(name string, sig unix.Signal) {
	s.mu.Lock()
	n, first := s.noticed, s.noticed == nil
	if first {
		n = &notice{name: name, sig: sig, decided: make(chan struct{})}
		s.noticed = n
	}
	s.mu.Unlock()
	if sig == unix.SIGTERM {
		sig = unix.SIGUSR1
	}
	caught := s.pass(sig)
	s.mu.Lock()
	n.caught = n.caught || caught
	share := s.share
	s.mu.Unlock()
	if share != nil {
		share(sig)
	}
	if first {
		s.owner.Go(func() { s.heed(n) })
		return
	}
	s.note("%s: another notice, passed to the ranks that listen for it", name)
}

// Share has each notice from now on passed on to the other nodes, too, TSTP and CONT, and a
// second INT as KILL.
func (s *Signals) Share(tell func(unix.Signal)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.share = tell
}

// Heed takes in a notice that node 0 was given. A scheduler that told all nodes has told
// this one's ranks already. At TSTP and CONT the ranks pause and go on, and gpurun does not.
func (s *Signals) Heed(sig unix.Signal) {
	s.mu.Lock()
	known, ranks := s.noticed != nil, s.running
	s.mu.Unlock()
	if sig == unix.SIGTSTP || sig == unix.SIGCONT {
		ranks.heed(sig == unix.SIGTSTP)
		return
	}
	if !known {
		s.announce(unix.SignalName(sig), sig)
	}
}

// heed decides what a notice means, and stops the run in time where it means that.
func (s *Signals) heed(n *notice) {
	came := time.Now()
	defer close(n.decided)
	select {
	case <-s.meant:
	case <-s.over:
		return
	}
	s.mu.Lock()
	o := s.onNotice
	s.mu.Unlock()
	ctx, cancel := s.untilOver()
	defer cancel()
	stop, end := o.meaning(ctx, n.sig)
	s.mu.Lock()
	n.stop = stop
	s.mu.Unlock()
	if !stop {
		s.note("%s: a notice, passed to the ranks that listen for it; no attempt is started after it", n.name)
		return
	}
	until := o.until(came, end)
	s.note("%s", o.plan(n.name, came, until, end))
	s.owner.Go(func() {
		why, stop := s.await(o, came, until)
		if !stop {
			return
		}
		s.note("%s: the run stops, and goes on when it is started again", why)
		s.cancel(&launcher.Signal{Number: unix.SIGTERM, Notice: n.name})
	})
}

// untilOver is a context that ends with what Listen began.
func (s *Signals) untilOver() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	s.owner.Go(func() {
		select {
		case <-s.over:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}

// plan says what a notice leads to.
func (o NoticeOptions) plan(name string, came, until, end time.Time) string {
	why := fmt.Sprintf("%s: a notice that the time here ends", name)
	if !end.IsZero() {
		why += " at " + end.Local().Format(time.TimeOnly)
	}
	more := until.Sub(came).Round(time.Second)
	if o.Checkpoint == nil {
		return fmt.Sprintf("%s, passed to the ranks that listen for it; the job has no checkpoint that it could go on from, and trains for %s more", why, more)
	}
	return fmt.Sprintf("%s, passed to the ranks that listen for it; the job trains until its next checkpoint, and %s at most", why, more)
}

// await returns when the run is to stop, and says why: no ranks run, a checkpoint is
// complete that was written since the notice came, or the time is up. It reports false
// where the run is over before.
func (s *Signals) await(o NoticeOptions, came, until time.Time) (why string, stop bool) {
	last := time.NewTimer(time.Until(until))
	defer last.Stop()
	look := time.NewTicker(checkpointLook)
	defer look.Stop()
	found := candidate{}
	for {
		s.mu.Lock()
		idle := s.running == nil && !s.starting
		s.mu.Unlock()
		if idle {
			return "no ranks run", true
		}
		select {
		case <-s.over:
			return "", false
		case <-last.C:
			return "the time is up", true
		case now := <-look.C:
			if o.Checkpoint != nil && found.complete(o.Checkpoint, came, now) {
				return "the checkpoint " + found.path + " is complete", true
			}
		}
	}
}

// A candidate is the first checkpoint that was seen since a notice.
type candidate struct {
	path string
	seen time.Time
}

// complete looks for it once more, and reports whether it can be gone on from: it is
// complete, and nothing of it was written for a while. The job may have written a newer
// one meanwhile.
func (c *candidate) complete(newest func(since time.Time) string, came, now time.Time) bool {
	if c.path == "" {
		if c.path = newest(came); c.path != "" {
			c.seen = now
		}
		return false
	}
	return now.Sub(c.seen) >= checkpointQuiet && newest(now.Add(-checkpointQuiet)) != c.path
}

// notice is the first notice that came, nil for none.
func (s *Signals) notice() *strategy.Notice {
	s.mu.Lock()
	asking := s.asking
	s.mu.Unlock()
	if asking != nil {
		<-asking
	}
	s.mu.Lock()
	n := s.noticed
	s.mu.Unlock()
	if n == nil {
		return nil
	}
	<-n.decided
	s.mu.Lock()
	defer s.mu.Unlock()
	return &strategy.Notice{Signal: n.name, Number: int(n.sig), Stop: n.stop, Caught: n.caught}
}

// stopsFor is the name of the notice that the run is stopping for, empty where it is
// for none.
func (s *Signals) stopsFor() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noticed != nil && s.noticed.stop {
		return s.noticed.name
	}
	return ""
}
