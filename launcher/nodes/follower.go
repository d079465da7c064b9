package nodes

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher"

	"github.com/gpurun/gpurun/strategy"
)

// FollowOptions are the options of a follower.
type FollowOptions struct {
	Hello Hello
	// Join and Replaces come from the engine: see followerMachine.
	Join     time.Duration
	Replaces bool
	// Dial connects to the head (wire.Dialer.Dial).
	Dial func(context.Context) (*Link, error)
	// Begin returns the means to run attempts here, once the head has named the run. note shows the user a
	// text on node 0.
	Begin func(w Welcome, note func(string)) (Resources, error)
	// Grace is the grace of ranks whose head is gone.
	Grace time.Duration
	// Waits is called once if node 0 has not been reached for a while, with the reason. May be nil.
	Waits func(why string)
	// Samples has samples of this node's ranks; nil for none.
	Samples *sampleStore
}

// Resources has the means to run attempts on a follower's machine.
type Resources struct {
	Recipe  launcher.Recipe
	Starter launcher.Starter
	World   launcher.World
	Store   launcher.Store
	// Notice passes a notice on to the ranks that have a handler for it, and pauses them from TSTP to CONT.
	// Close releases all resources. Both may be nil.
	Notice func(syscall.Signal)
	Close  func()
}

// An End is how the launch ended for a follower.
type End struct {
	Code     int
	Reason   string
	FromHead bool // the head sent it: it is the end of the run, which node 0 shows
}

// An follower is the gpurun of a follower. The goroutine of Follow owns it and its state machine.
type follower struct {
	*actor
	opts     FollowOptions
	dials    context.Context // done once the node has left and dials the head no more
	stopDial context.CancelFunc

	machine   *followerMachine
	link      *Link // nil without one
	ended     *End
	final     bool    // the last message on the link was Final
	welcome   Welcome // from the head that it follows
	begun     string  // generation of the head that here belongs to
	resources *Resources
	unable    error // why begin failed
	local     *localAttempt
	why       string // why the last ranks were abandoned, empty if none were
}

// Follow takes part in a launch until it ends and no rank runs any more.
func Follow(ctx context.Context, o FollowOptions) End {
	if o.Samples == nil {
		o.Samples = &sampleStore{}
	}
	f := &follower{actor: newActor(context.WithoutCancel(ctx)), opts: o}
	f.machine = newFollowerMachine(f, o.Hello, o.Join, o.Replaces)
	f.dials, f.stopDial = context.WithCancel(f.done)
	f.owner.Go(f.dial)
	defer f.owner.Wait()
	defer f.end()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	stopped := ctx.Done()
	for f.ended == nil || f.local != nil {
		select {
		case do := <-f.todo:
			do()
		case <-tick.C:
			if why := f.machine.WhyUnlinked(); why != "" && f.opts.Waits != nil && f.now() >= noteAfter {
				f.opts.Waits(why)
				f.opts.Waits = nil
			}
			f.machine.Tick(f.now())
		case <-stopped:
			stopped = nil
			f.stopped(context.Cause(ctx))
		}
	}
	if f.link != nil {
		_ = f.link.Close() // after the messages sent on it
	}
	f.close()
	return *f.ended
}

// report sends the head a message, from any goroutine but the owner.
func (f *follower) report(m Message) {
	f.own(func() { f.machine.Report(f.now(), m) })
}

// stopped ends this node's part at its own signal.
func (f *follower) stopped(why error) {
	end := End{Code: strategy.CodeRetry, Reason: "it was stopped"}
	var signal *launcher.Signal
	if errors.As(why, &signal) {
		end.Code, end.Reason = 128+int(signal.Number), signal.Error()
	}
	f.machine.Report(f.now(), Leaving{Why: end.Reason})
	if f.why != "" {
		end.Reason += "; its ranks were ended before: " + f.why
	}
	if f.ended == nil {
		f.ended = &end
	}
	f.local.stop(sigterm, f.opts.Grace)
}

// dialPause is the pause between two attempts to reach the head.
const dialPause = 300 * time.Millisecond

// dial keeps a link to the head.
func (f *follower) dial() {
	for f.dials.Err() == nil {
		link, err := f.opts.Dial(f.dials)
		if err != nil {
			f.own(func() {
				mistrusted := errors.Is(err, ErrMistrusted)
				f.machine.Unreached(f.now(), err.Error(), mistrusted || errors.Is(err, ErrRefused), mistrusted)
			})
			select {
			case <-time.After(dialPause):
			case <-f.dials.Done():
			}
			continue
		}
		f.receive(link)
	}
}

// receive takes the head's messages from a link until it ends.
func (f *follower) receive(link *Link) {
	f.own(func() {
		f.link = link
		f.machine.Linked(f.now())
	})
	for {
		m, err := receive(f.dials, link)
		if err != nil {
			break
		}
		f.own(func() {
			_, f.final = m.(Final)
			f.machine.Receive(f.now(), m)
		})
	}
	f.own(func() {
		if f.link == link {
			f.link = nil
		}
		f.machine.Gone(f.now())
	})
	if f.done.Err() == nil {
		_ = link.Close()
	}
}

// send sends a message with the time of sending, where that matters.
func (f *follower) send(m Message) {
	switch stamped := m.(type) {
	case Event:
		stamped.At = time.Now()
		m = stamped
	case Alive:
		stamped.At = time.Now()
		m = stamped
	}
	if f.link != nil {
		_ = send(f.link, m) // no error handling: receive finds that the link has ended
	}
}

func (f *follower) drop() {
	if link := f.link; link != nil {
		f.link = nil
		f.owner.Go(func() { _ = link.Close() })
	}
}

func (f *follower) reportAlive() { f.machine.Report(f.now(), f.local.alive()) }

func (f *follower) leave(code int, reason string) {
	if f.ended == nil {
		f.ended = &End{Code: code, Reason: reason, FromHead: f.final}
	}
	f.stopDial()
}

// do carries out an order of the head's.
func (f *follower) do(order Message) {
	ranks := f.local.running()
	switch o := order.(type) {
	case Welcome:
		f.welcome = o
	case Prepare:
		f.begin(f.welcome)
		f.why = ""
		f.local = newLocal(f, o)
		f.owner.Go(f.local.prepare)
	case Start:
		if f.local != nil {
			f.local.waits = false
			f.owner.Go(f.local.run)
		}
	case Stop:
		switch {
		case len(o.Spare) == 0:
			f.local.stop(o.Signal, o.Grace)
		case ranks != nil:
			ranks.StopPeers(o.Signal, o.Spare)
		}
	case Release:
		if ranks != nil {
			ranks.Release()
		}
	case Stacks:
		if ranks != nil {
			f.owner.Go(ranks.Stacks)
		}
	case Notice:
		f.notice(syscall.Signal(o.Signal))
	case Pause:
		f.notice(syscall.SIGTSTP)
	case Resume:
		f.notice(syscall.SIGCONT)
	}
}

// notice passes a signal that node 0 got on to the ranks.
func (f *follower) notice(signal syscall.Signal) {
	if f.resources != nil && f.resources.Notice != nil {
		f.resources.Notice(signal)
	}
}

// begin makes f.resources, once for each head, while no rank runs.
func (f *follower) begin(w Welcome) {
	if f.begun == w.Generation {
		return
	}
	f.close()
	f.begun = w.Generation
	resources, err := f.opts.Begin(w, func(text string) {
		f.owner.Go(func() { f.report(Note{Text: text}) }) // in a goroutine: the caller may block the owner
	})
	if err != nil {
		f.unable = err
		return
	}
	f.resources = &resources
}

func (f *follower) close() {
	if f.resources != nil && f.resources.Close != nil {
		f.resources.Close()
	}
	f.resources, f.unable = nil, nil
}

// abandon stops ranks whose head is gone, and records why in this node's part of the run: the head
// may never learn it.
func (f *follower) abandon(why string) {
	f.why = why
	f.local.stop(sigterm, f.opts.Grace)
	if f.resources != nil {
		_ = f.resources.Store.Append(launcher.Noticed{Text: "the ranks of this node are ended: " + why}) // best effort
	}
}

// over takes the end of an attempt's ranks, once. The owner calls it.
func (f *follower) over(l *localAttempt, m Message) {
	if f.local != l {
		return
	}
	f.local = nil
	f.machine.Report(f.now(), m)
}
