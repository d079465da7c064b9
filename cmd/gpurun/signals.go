package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// secondPress is how soon a second Ctrl-C means that ranks are killed at once.
const secondPress = 2 * time.Second

// A desk takes in the signals that reach gpurun, and passes each to whom it
// concerns, whether ranks run at that moment or not:
//
//	TERM        stops the ranks and the run; another changes nothing, since Slurm sends two
//	INT         the same; a second one within 2 s kills the ranks at once
//	HUP         as TERM, unless it was ignored when gpurun started (nohup)
//	QUIT        tells where the run stands, which goes on
//	USR1, USR2  a notice: journaled, and passed to the ranks that have a handler;
//	            no attempt is started after it, since the time here ends
//	TSTP, CONT  stop the ranks and then gpurun; let both go on
//	WINCH       the rank's pseudo-terminal takes the size of the console
//	PIPE        nothing, so that a closed console does not end gpurun
//	TTOU        ignored: words from the background would stop gpurun, and not the ranks
//
// An inherited SIG_IGN for INT is honoured too: a shell without job control
// starts its background jobs so.
type desk struct {
	signals chan os.Signal
	cancel  context.CancelCauseFunc
	over    chan struct{}
	owner   sync.WaitGroup

	mu       sync.Mutex    // guards what follows
	ledger   *ledger       // nil until there is a run directory
	running  *attempt      // nil while no ranks run
	starting bool          // ranks are being started, and the first of them may run
	grace    time.Duration // of the ranks that run or are being started
	late     []unix.Signal // that came for ranks that were being started
	stopped  bool          // the run is to end
	hurried  bool          // and its ranks get no grace
	paused   bool
	noticed  string // the last notice
}

// listen opens the desk. The context ends, with a *launcher.Signal as its cause,
// when a signal asks gpurun to stop.
func listen(ctx context.Context) (context.Context, *desk) {
	ctx, cancel := context.WithCancelCause(ctx)
	d := &desk{signals: make(chan os.Signal, 32), cancel: cancel, over: make(chan struct{})}
	caught := []os.Signal{
		unix.SIGTERM, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH, unix.SIGPIPE,
	}
	for _, s := range []os.Signal{unix.SIGHUP, unix.SIGINT} {
		if !signal.Ignored(s) {
			caught = append(caught, s)
		}
	}
	signal.Notify(d.signals, caught...)
	signal.Ignore(unix.SIGTTOU)
	d.owner.Go(d.serve)
	return ctx, d
}

// close closes the desk. Signals stay caught: what comes between the verdict and
// the end of the process must not change the exit code.
func (d *desk) close() {
	close(d.over)
	d.owner.Wait()
	d.cancel(nil)
}

func (d *desk) serve() {
	var pressed time.Time
	for {
		select {
		case <-d.over:
			return
		case s := <-d.signals:
			number := s.(unix.Signal)
			hurry := number == unix.SIGINT && !pressed.IsZero() && time.Since(pressed) < secondPress
			if number == unix.SIGINT {
				pressed = time.Now()
			}
			d.handle(number, hurry)
		}
	}
}

func (d *desk) handle(s unix.Signal, hurry bool) {
	switch s {
	case unix.SIGTERM, unix.SIGINT:
		d.stop(s, s, hurry)
	case unix.SIGHUP:
		d.stop(unix.SIGTERM, s, false)
	case unix.SIGQUIT:
		d.tellState()
	case unix.SIGUSR1, unix.SIGUSR2:
		d.note("%s: a notice, passed to the ranks that listen for it; no attempt is started after it", unix.SignalName(s))
		d.announce(unix.SignalName(s))
		d.pass(s)
	case unix.SIGTSTP:
		d.pause()
	case unix.SIGCONT:
		d.resume()
	case unix.SIGWINCH:
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.running != nil {
			_ = d.running.out.Resize() // a size is not worth a word
			d.running.group.Signal(s)
		}
	}
}

// stop asks the run to end as for the signal as; reason is the one that came.
func (d *desk) stop(as, reason unix.Signal, hurry bool) {
	d.mu.Lock()
	first := !d.stopped
	d.stopped = true
	d.hurried = d.hurried || hurry
	if hurry && d.running != nil {
		d.running.kill()
	}
	grace := d.grace
	d.mu.Unlock()
	d.cancel(&launcher.Signal{Number: as})
	switch {
	case first && grace > 0 && as == unix.SIGINT:
		d.note("%s: the ranks have %s to end; again within %s kills them", unix.SignalName(reason), grace, secondPress)
	case first && grace > 0:
		d.note("%s: the ranks have %s to end", unix.SignalName(reason), grace)
	}
}

// announce remembers a notice.
func (d *desk) announce(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.noticed = name
}

// notice is the last notice, empty for none.
func (d *desk) notice() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.noticed
}

// pass hands a signal to the ranks that run.
func (d *desk) pass(s unix.Signal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.running != nil:
		d.running.group.Signal(s)
	case d.starting:
		d.late = append(d.late, s)
	}
}

// pause stops the ranks, then gpurun itself. While ranks are being started it waits
// for them: gpurun must not be stopped beside ranks that run. The first process of
// a container cannot be stopped; its ranks can.
func (d *desk) pause() {
	d.mu.Lock()
	d.paused = true
	if d.running != nil {
		d.running.pause()
	}
	starting := d.starting
	d.mu.Unlock()
	if !starting {
		pauseSelf()
	}
}

// pauseSelf returns when somebody has let gpurun go on.
func pauseSelf() {
	_ = unix.Kill(unix.Getpid(), unix.SIGSTOP) // a process may always signal itself
}

func (d *desk) resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = false
	if d.running != nil {
		d.running.resume()
	}
}

// begin tells the desk that ranks are being started, which get grace when they are
// stopped. Adopt or leave follows.
func (d *desk) begin(grace time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.starting, d.grace = true, grace
}

// adopt tells the desk which ranks run. They get what came while they started.
func (d *desk) adopt(a *attempt) {
	d.mu.Lock()
	d.running, d.starting = a, false
	if d.hurried {
		a.kill()
	}
	for _, s := range d.late {
		a.group.Signal(s)
	}
	d.late = nil
	paused := d.paused
	if paused {
		a.pause()
	}
	d.mu.Unlock()
	if paused {
		pauseSelf()
	}
}

// leave tells the desk that no ranks run.
func (d *desk) leave() {
	d.mu.Lock()
	paused := d.paused && d.starting
	d.running, d.starting, d.grace, d.late = nil, false, 0, nil
	d.mu.Unlock()
	if paused {
		pauseSelf()
	}
}

// record tells the desk where notices are journaled.
func (d *desk) record(l *ledger) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ledger = l
}

func (d *desk) note(format string, args ...any) {
	d.mu.Lock()
	l := d.ledger
	d.mu.Unlock()
	if l != nil {
		l.note(fmt.Sprintf(format, args...))
	}
}

// tellState says where the run stands, and asks the ranks for the same: Python's
// faulthandler may listen.
func (d *desk) tellState() {
	d.mu.Lock()
	a, l := d.running, d.ledger
	d.mu.Unlock()
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
	l.note(fmt.Sprintf("SIGQUIT: %s; stacks of gpurun: %s", state, where))
	d.pass(unix.SIGQUIT)
}

// interrupted is the verdict of a run that a signal ends while no rank runs.
func interrupted(v launcher.Verdict, stop *launcher.Signal) launcher.Verdict {
	d := strategy.Interrupted(int(stop.Number))
	v.Outcome, v.Code, v.Reason = d.Outcome, d.Code, d.Reason
	return v
}

// stoppedEarly is the error of a run that a signal ends before there is a run
// directory, nil if none has come.
func stoppedEarly(ctx context.Context) error {
	var stop *launcher.Signal
	if !errors.As(context.Cause(ctx), &stop) {
		return ctx.Err()
	}
	d := strategy.Interrupted(int(stop.Number))
	return &coded{err: fmt.Errorf("%s before anything was started", d.Reason), code: d.Code}
}
