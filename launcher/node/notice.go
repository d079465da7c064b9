package node

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

const (
	// reserve is the least time between the ranks' stop and the end of the job's time. The ranks' grace, the
	// sweep and the verdict need it.
	reserve = time.Minute
	// checkpointLook is the interval at which gpurun looks for a new checkpoint. checkpointQuiet is how long
	// nothing must have written to it before it counts as complete.
	checkpointLook  = time.Second
	checkpointQuiet = 2 * time.Second
	// askBound bounds the request to the scheduler for the end of the time, and preemptedBound the request
	// whether a SIGTERM is a preemption. The second is shorter because the ranks' grace begins only after it.
	askBound, preemptedBound = 5 * time.Second, 3 * time.Second
)

// Names of notices that are not signals: a preemption, which the scheduler announces with SIGTERM, and
// gpurun's own deadline.
const (
	PreemptionNotice = "preemption"
	DeadlineNotice   = "deadline"
)

// The values of launch.on_notice.
const (
	NoticeAuto = "auto"
	NoticeStop = "stop"
	NoticeGoOn = "go-on"
)

// NoticeOptions define the effect of a notice, a signal that announces the end of the job's time.
type NoticeOptions struct {
	// Mode is NoticeStop, NoticeGoOn or NoticeAuto. With NoticeAuto the run stops if the end of its time is
	// known, or if the scheduler starts the job again.
	Mode string
	// Grace is how long ranks continue if the end of the time is not known.
	Grace time.Duration
	// Deadline is the user's; zero for none.
	Deadline time.Time
	// Scheduler returns the end of the job's time, zero if not known, and whether the job is started again
	// afterwards; nil without a scheduler.
	Scheduler func(ctx context.Context) (end time.Time, again bool)
	// Checkpoint returns the newest complete checkpoint that was written at or after since, at least in part;
	// empty for none. It is nil if the job cannot resume.
	Checkpoint func(since time.Time) string
}

// meaning returns whether the run stops for a notice, and when the time ends, zero if not known. A preemption
// (SIGTERM) always has an end. SIGUSR2 stops a run only in mode NoticeStop, since it means something else to
// many programs.
func (o NoticeOptions) meaning(ctx context.Context, sig unix.Signal) (stop bool, end time.Time) {
	if o.Mode == NoticeGoOn {
		return false, time.Time{}
	}
	end, again := o.ends(ctx)
	return o.Mode == NoticeStop || sig == unix.SIGTERM || sig != unix.SIGUSR2 && (again || !end.IsZero()), end
}

// ends returns the end of the time, zero if not known, and whether the scheduler starts the job again.
func (o NoticeOptions) ends(ctx context.Context) (end time.Time, again bool) {
	if o.Scheduler != nil {
		ctx, cancel := context.WithTimeout(ctx, askBound)
		defer cancel()
		end, again = o.Scheduler(ctx)
	}
	if deadline := byClock(o.Deadline, time.Now()); end.IsZero() || !deadline.IsZero() && deadline.Before(end) {
		end = deadline
	}
	return end, again
}

// byClock returns the time that the wall clock will show at a deadline: the deadline is as far away as when it was
// read, though the clock may have been set since. Differences below a second are drift, and change nothing.
func byClock(deadline, now time.Time) time.Time {
	if deadline.IsZero() {
		return deadline
	}
	shown := now.Round(0).Add(deadline.Sub(now))
	if shown.Sub(deadline.Round(0)).Abs() < time.Second {
		return deadline
	}
	return shown
}

// Ends returns the time by which the run must be over, zero if not known.
func (o NoticeOptions) Ends(ctx context.Context) time.Time {
	end, _ := o.ends(ctx)
	return end
}

// until returns when to stop the ranks after a notice that came now. If the end is nearer than the reserve,
// the ranks get half of the remaining time.
func (o NoticeOptions) until(now, end time.Time) time.Time {
	if end.IsZero() {
		return now.Add(o.Grace)
	}
	if last := end.Add(-reserve); last.After(now.Add(reserve / 2)) {
		return last
	}
	return now.Add(max(0, min(end.Sub(now)/2, reserve/2)))
}

// A notice is the first notice of the run, and its effect.
type notice struct {
	name    string
	sig     unix.Signal
	decided chan struct{} // closed when stop is known
	stop    bool
	caught  bool
}

// OnNotice sets, once, the effect of a notice, also of an earlier one. With a deadline, gpurun itself issues
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

// AskWhether sets the function that queries the scheduler at SIGTERM whether it preempts the job.
func (s *Signals) AskWhether(preempted func(context.Context) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.preempted = preempted
}

// terminate handles a SIGTERM: at a preemption it is a notice, else it ends the run. Slurm sends two.
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

// learn queries whether a SIGTERM is a preemption.
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

// announce handles a notice. The first decides about the run. Each is passed to the ranks that have a handler
// for it; SIGTERM is passed as SIGUSR1, since it would end them.
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
		s.owner.Go(func() { s.decideNotice(n) })
		return
	}
	s.note("%s: another notice, passed to the ranks that listen for it", name)
}

// Share sets the function that passes each later notice on to the other nodes, also TSTP and CONT, and a
// second INT as KILL.
func (s *Signals) Share(pass func(unix.Signal)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.share = pass
}

// Heed handles a notice that node 0 got, unless this node got it too. At TSTP and CONT the ranks pause and
// continue, and gpurun does not.
func (s *Signals) Heed(sig unix.Signal) {
	s.mu.Lock()
	known, ranks := s.noticed != nil, s.running
	s.mu.Unlock()
	if sig == unix.SIGTSTP || sig == unix.SIGCONT {
		ranks.setPaused(sig == unix.SIGTSTP)
		return
	}
	if !known {
		s.announce(unix.SignalName(sig), sig)
	}
}

// decideNotice decides the effect of a notice, and stops the run in time if necessary.
func (s *Signals) decideNotice(n *notice) {
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
		s.note("%s: the run stops, and continues when it is started again", why)
		s.cancel(&launcher.Signal{Number: unix.SIGTERM, Notice: n.name})
	})
}

// untilOver returns a context that Close ends.
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

// plan describes the effect of a notice.
func (o NoticeOptions) plan(name string, came, until, end time.Time) string {
	why := fmt.Sprintf("%s: a notice that the time here ends", name)
	if !end.IsZero() {
		why += " at " + end.Local().Format(time.TimeOnly)
	}
	more := until.Sub(came).Round(time.Second)
	if o.Checkpoint == nil {
		return fmt.Sprintf("%s, passed to the ranks that listen for it; the job has no checkpoint to continue from, and trains for %s more", why, more)
	}
	return fmt.Sprintf("%s, passed to the ranks that listen for it; the job trains until its next checkpoint, and %s at most", why, more)
}

// await returns when the run must stop, and why: no ranks run, a checkpoint written since the notice is
// complete, or the time is up. It reports false if the run is over before.
func (s *Signals) await(o NoticeOptions, came, until time.Time) (why string, stop bool) {
	last := time.NewTimer(time.Until(until))
	defer last.Stop()
	look := time.NewTicker(checkpointLook)
	defer look.Stop()
	found := freshCheckpoint{}
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

// A freshCheckpoint is the first checkpoint that was written after a notice.
type freshCheckpoint struct {
	path string
	seen time.Time
}

// complete reports whether a new checkpoint can be resumed from, since nothing has written to it for a while.
// The job may have written a newer one meanwhile.
func (c *freshCheckpoint) complete(newest func(since time.Time) string, came, now time.Time) bool {
	if c.path == "" {
		if c.path = newest(came); c.path != "" {
			c.seen = now
		}
		return false
	}
	return now.Sub(c.seen) >= checkpointQuiet && newest(now.Add(-checkpointQuiet)) != c.path
}

// notice returns the first notice that came, nil for none.
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

// stopsFor returns the name of the notice that stops the run, empty for none.
func (s *Signals) stopsFor() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noticed != nil && s.noticed.stop {
		return s.noticed.name
	}
	return ""
}

// farthest is how far ahead a deadline may be, in years. A later one is in another unit, such as milliseconds
// since 1970.
const farthest = 1

// ReadDeadline parses the time by which a run must be over: a time in RFC 3339, seconds since 1970, the next
// time that a clock shows "07:30", or a duration from now, such as "4h" or "90m". Empty means no deadline. It
// is an error if the run would have less time than the notice's grace and the last minute, since it would be
// stopped before it begins. The error has an exit code. The time has now's monotonic clock: it stays as far away if
// the wall clock is set.
func (o NoticeOptions) ReadDeadline(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		if seconds, bad := strconv.ParseInt(text, 10, 64); bad == nil && seconds > 1e9 {
			at, err = time.Unix(seconds, 0), nil
		} else if d, bad := time.ParseDuration(text); bad == nil {
			at, err = now.Add(d), nil
			if o.Mode != NoticeGoOn && d > 0 && d <= o.Grace+reserve {
				err = errext.Errorf(fmt.Sprintf("write more than %s: launch.notice_grace (%s) and a minute for the end are taken off", o.Grace+reserve, o.Grace), "--deadline: %s is too short to start anything", text)
				return time.Time{}, errext.WithCode(err, strategy.CodeUsage)
			}
		} else if clock, bad := time.Parse("15:04", text); bad == nil {
			at, err = nextClock(clock, now), nil
		}
	}
	switch {
	case err != nil:
		err = errext.Errorf("write a duration such as 4h, a time such as 07:30 or 2026-01-31T18:00:00+01:00, or seconds since 1970", "--deadline: %q is not a time", text)
	case !at.After(now):
		err = errext.Errorf("give a time to come", "--deadline: %s is over", text)
	case at.After(now.AddDate(farthest, 0, 0)):
		err = errext.Errorf("give a time within a year; a number is seconds since 1970", "--deadline: %s is in the year %d",
			text, at.UTC().Year())
	}
	return now.Add(at.Sub(now)), errext.WithCode(err, strategy.CodeUsage)
}

// nextClock returns the next time at which a clock here shows the given time of day.
func nextClock(clock, now time.Time) time.Time {
	at := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
	if !at.After(now) {
		at = time.Date(now.Year(), now.Month(), now.Day()+1, clock.Hour(), clock.Minute(), 0, 0, now.Location())
	}
	return at
}
