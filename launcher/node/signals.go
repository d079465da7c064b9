package node

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/ranks"
)

// Signals handles the signals that reach gpurun, whether ranks run or not:
//
//	TERM        stops the ranks and the run; another changes nothing, since Slurm sends two. At a
//	            preemption by the scheduler it is a notice
//	INT         the same; a second one, whenever it comes, kills the ranks at once
//	HUP         as TERM, unless it was ignored when gpurun started (nohup)
//	QUIT        shows the state of the run, which continues
//	USR1, USR2  a notice that the time here ends (notice.go): journaled, and passed to the ranks that
//	            have a handler; no attempt is started after it
//	TSTP, CONT  pause the ranks, those of other nodes too, and then gpurun; resume all
//	WINCH       the rank's pseudo-terminal takes the size of the console
//	PIPE        nothing, so that a closed console does not end gpurun
//	TTOU        ignored: output from the background would stop gpurun, and not the ranks
//
// An inherited SIG_IGN for INT is kept too, since a shell without job control ignores INT in its background
// jobs.
type Signals struct {
	signals chan os.Signal
	cancel  context.CancelCauseFunc
	over    chan struct{}
	meant   chan struct{} // closed when onNotice is set
	owner   sync.WaitGroup

	mu       sync.Mutex    // guards what follows
	log      *EventLog     // nil until there is a run directory
	running  *attempt      // nil while no ranks run
	starting bool          // ranks are being started, and the first of them may run
	grace    time.Duration // of the ranks that run or are being started
	late     []unix.Signal // that came for ranks that were being started
	stopped  bool          // the run is to end
	hurried  bool          // its ranks get no grace
	paused   bool
	onNotice NoticeOptions
	screen   *ranks.Screen // on which gpurun draws; nil for none
	noticed  *notice       // the first; nil for none
	// preempted queries the scheduler whether it preempts the job; nil without a scheduler. asking is nil
	// before the first SIGTERM, and is closed once the answer is known.
	preempted func(context.Context) bool
	asking    chan struct{}
	share     func(unix.Signal) // passes notices, TSTP and CONT to other nodes; nil without any
}

// Listen handles signals until Close. The context ends, with a *launcher.Signal as its cause, when a signal
// stops gpurun.
func Listen(ctx context.Context) (context.Context, *Signals) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &Signals{signals: make(chan os.Signal, 32), cancel: cancel, over: make(chan struct{}), meant: make(chan struct{})}
	caught := []os.Signal{
		unix.SIGTERM, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH, unix.SIGPIPE,
	}
	for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGINT} {
		if !signal.Ignored(sig) {
			caught = append(caught, sig)
		}
	}
	signal.Notify(s.signals, caught...)
	signal.Ignore(unix.SIGTTOU)
	s.owner.Go(s.serve)
	return ctx, s
}

// Close ends the handling. Signals stay caught: between the verdict and the end of the process they must not
// change the exit code.
func (s *Signals) Close() {
	close(s.over)
	s.owner.Wait()
	s.cancel(nil)
}

func (s *Signals) serve() {
	pressed := false
	for {
		select {
		case <-s.over:
			return
		case sig := <-s.signals:
			number := sig.(unix.Signal)
			hurry := number == unix.SIGINT && pressed
			pressed = pressed || number == unix.SIGINT
			s.handle(number, hurry)
		}
	}
}

func (s *Signals) handle(sig unix.Signal, hurry bool) {
	switch sig {
	case unix.SIGTERM:
		s.terminate()
	case unix.SIGINT, unix.SIGHUP:
		s.stop(sig, hurry)
	case unix.SIGQUIT:
		s.showState()
	case unix.SIGUSR1, unix.SIGUSR2:
		s.announce(unix.SignalName(sig), sig)
	case unix.SIGTSTP:
		s.pause()
	case unix.SIGCONT:
		s.resume()
	case unix.SIGWINCH:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.running != nil {
			_ = s.running.out.Resize() // best effort
			s.running.group.Signal(sig)
		}
	}
}

// stop ends the run for a signal.
func (s *Signals) stop(reason unix.Signal, hurry bool) {
	s.mu.Lock()
	first := !s.stopped
	s.stopped = true
	s.hurried = s.hurried || hurry
	if hurry && s.running != nil {
		s.running.kill()
	}
	grace, share := s.grace, s.share
	s.mu.Unlock()
	if hurry && share != nil {
		share(unix.SIGKILL)
	}
	cause := &launcher.Signal{Number: reason}
	if reason != unix.SIGINT {
		cause.Notice = s.stopsFor()
	}
	s.cancel(cause)
	switch {
	case hurry && grace > 0:
		s.note("SIGINT again: the ranks are killed")
	case reason == unix.SIGINT && grace > 0:
		s.note("SIGINT: the ranks have %s to end; a second Ctrl-C kills them at once", grace)
	case first && grace > 0:
		s.note("%s: the ranks have %s to end", unix.SignalName(reason), grace)
	}
}

// pass sends a signal to the running ranks, and reports whether one of them has a handler for it.
func (s *Signals) pass(sig unix.Signal) (caught bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.running != nil:
		caught = s.running.group.Signal(sig) > 0
	case s.starting:
		s.late = append(s.late, sig)
	}
	return caught
}

// pause stops the ranks, then gpurun itself. While ranks are being started it waits for them: gpurun must
// not be stopped while ranks run. The first process of a container cannot be stopped; its ranks can.
func (s *Signals) pause() {
	s.mu.Lock()
	s.paused = true
	if s.running != nil {
		s.running.pause()
	}
	starting, screen, share := s.starting, s.screen, s.share
	s.mu.Unlock()
	screen.Pause()
	if share != nil {
		share(unix.SIGTSTP)
	}
	if !starting {
		pauseSelf()
	}
}

// shows sets the screen that gpurun draws on, and clears while it is stopped.
func (s *Signals) shows(screen *ranks.Screen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.screen = screen
}

// pauseSelf returns when a signal has resumed gpurun.
func pauseSelf() {
	_ = unix.Kill(unix.Getpid(), unix.SIGSTOP) // no error: a process may always signal itself
}

func (s *Signals) resume() {
	s.mu.Lock()
	s.paused = false
	s.screen.Resume()
	if s.running != nil {
		s.running.resume()
	}
	share := s.share
	s.mu.Unlock()
	if share != nil {
		share(unix.SIGCONT)
	}
}

// begin marks the start of ranks, and their grace. Adopt or leave follows.
func (s *Signals) begin(grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting, s.grace = true, grace
}

// adopt sets the running ranks. They now get the signals that came while they started.
func (s *Signals) adopt(a *attempt) {
	s.mu.Lock()
	s.running, s.starting = a, false
	if s.hurried {
		a.kill()
	}
	for _, sig := range s.late {
		caught := a.group.Signal(sig) > 0
		if s.noticed != nil && caught {
			s.noticed.caught = true
		}
	}
	s.late = nil
	paused := s.paused
	if paused {
		a.pause()
	}
	s.mu.Unlock()
	if paused {
		pauseSelf()
	}
}

// leave marks that no ranks run.
func (s *Signals) leave() {
	s.mu.Lock()
	paused := s.paused && s.starting
	s.running, s.starting, s.grace, s.late = nil, false, 0, nil
	s.mu.Unlock()
	if paused {
		pauseSelf()
	}
}

// Record sets the journal for notices; nil for none.
func (s *Signals) Record(l *EventLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = l
}

func (s *Signals) note(format string, args ...any) {
	s.mu.Lock()
	l := s.log
	s.mu.Unlock()
	if l != nil {
		l.Note(fmt.Sprintf(format, args...))
	}
}

// showState notes the state of the run, and passes SIGQUIT to ranks that have a handler, such as Python's
// faulthandler.
func (s *Signals) showState() {
	s.mu.Lock()
	a, l := s.running, s.log
	s.mu.Unlock()
	if l == nil {
		return
	}
	state := "no ranks run"
	if a != nil {
		state = a.state(time.Now())
	}
	where, err := l.writeStacks()
	if err != nil {
		where = err.Error()
	}
	l.Note(fmt.Sprintf("SIGQUIT: %s; stacks of gpurun: %s", state, where))
	s.pass(unix.SIGQUIT)
}
