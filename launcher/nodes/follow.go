package nodes

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/nodes/wire"
	"github.com/gpurun/gpurun/strategy"
)

// FollowOptions are what a follower has to know.
type FollowOptions struct {
	Hello    Hello
	Patience Patience
	// Dial reaches the head: wire.Dialer's.
	Dial func(context.Context) (*wire.Link, error)
	// Begin makes what runs attempts here, once the head has said in which run; note tells
	// people something, where the head is.
	Begin func(w Welcome, note func(string)) (Here, error)
	// Grace is what ranks get that nobody leads any more.
	Grace time.Duration
	// Waits tells people that node 0 has not been reached for a while, and why; nil: nobody.
	Waits func(why string)
	// Seen has what this node's ranks let see of themselves; nil: nobody looks on.
	Seen *seen
}

// Here is what runs attempts on a follower's own machine.
type Here struct {
	Recipe  launcher.Recipe
	Starter launcher.Starter
	World   launcher.World
	Store   launcher.Store
	// Notice passes a notice on to the ranks that listen for it, and pauses them at TSTP until
	// CONT; Close ends what is not
	// needed any more; nil for nobody and nothing.
	Notice func(syscall.Signal)
	Close  func()
}

// An End is how the launch ended for a follower.
type End struct {
	Code   int
	Reason string
	Told   bool // by the head: it is the end of the run, which people read there
}

// A follower does as the head says. The goroutine of Follow owns its state machine.
type follower struct {
	*actor
	opts     FollowOptions
	dials    context.Context // over once the node has left: it looks for the head no more
	stopDial context.CancelFunc

	machine *Follower
	link    *wire.Link // nil without one
	ended   *End
	final   bool    // what was heard last is how the run ends
	welcome Welcome // of the head that it follows
	begun   string  // the head's generation for which there is a here
	here    *Here
	unable  error // why there is no here
	local   *local
	why     string // its ranks were ended last that nobody led any more; empty: none were
}

// Follow takes part in a launch until it ends, and says how. No rank runs then.
func Follow(ctx context.Context, o FollowOptions) End {
	f := &follower{actor: newActor(context.WithoutCancel(ctx)), opts: o}
	f.machine = NewFollower(f, o.Hello, o.Patience)
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
			if why := f.machine.Looks(); why != "" && f.opts.Waits != nil && f.now() >= noteAfter {
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
		_ = f.link.Close() // after what was sent on it
	}
	f.close()
	return *f.ended
}

// say tells the head something.
func (f *follower) say(m Message) {
	f.own(func() { f.machine.Say(f.now(), m) })
}

// stopped ends this node's part at a signal of its own.
func (f *follower) stopped(why error) {
	end := End{Code: strategy.CodeRetry, Reason: "it was stopped"}
	var signal *launcher.Signal
	if errors.As(why, &signal) {
		end.Code, end.Reason = 128+int(signal.Number), signal.Error()
	}
	f.machine.Say(f.now(), Leaving{Why: end.Reason})
	if f.why != "" {
		end.Reason += "; its ranks were ended before: " + f.why
	}
	if f.ended == nil {
		f.ended = &end
	}
	f.endRanks(f.opts.Grace)
}

// dialPause is how soon the head is tried again.
const dialPause = 300 * time.Millisecond

// dial keeps a link to the head, and hears it.
func (f *follower) dial() {
	for f.dials.Err() == nil {
		link, err := f.opts.Dial(f.dials)
		if err != nil {
			f.own(func() {
				mistrusted := errors.Is(err, wire.ErrMistrusted)
				f.machine.Unreached(f.now(), err.Error(), mistrusted || errors.Is(err, wire.ErrRefused), mistrusted)
			})
			select {
			case <-time.After(dialPause):
			case <-f.dials.Done():
			}
			continue
		}
		f.hear(link)
	}
}

// hear takes what comes on a link, to its end.
func (f *follower) hear(link *wire.Link) {
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
			f.machine.Hear(f.now(), m)
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

func (f *follower) send(m Message) {
	if f.link != nil {
		_ = send(f.link, stamped(m)) // a link that is over is seen by who hears it
	}
}

func (f *follower) drop() {
	if link := f.link; link != nil {
		f.link = nil
		f.owner.Go(func() { _ = link.Close() })
	}
}

func (f *follower) tell() { f.machine.Say(f.now(), f.local.alive()) }

func (f *follower) leave(code int, reason string) {
	if f.ended == nil {
		f.ended = &End{Code: code, Reason: reason, Told: f.final}
	}
	f.stopDial()
}

// stamped has the time at which a message was sent, where that matters.
func stamped(m Message) Message {
	switch m := m.(type) {
	case Event:
		m.At = time.Now()
		return m
	case Alive:
		m.At = time.Now()
		return m
	}
	return m
}

// do carries out an order of the head's.
func (f *follower) do(order Message) {
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
		if len(o.Spare) > 0 {
			if ranks := f.local.running(); ranks != nil {
				ranks.StopPeers(o.Signal, o.Spare)
			}
			return
		}
		f.local.stop(o.Signal, o.Grace)
	case Release:
		if ranks := f.local.running(); ranks != nil {
			ranks.Release()
		}
	case Stacks:
		if ranks := f.local.running(); ranks != nil {
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

// notice passes on what node 0 was told by a signal.
func (f *follower) notice(signal syscall.Signal) {
	if f.here != nil && f.here.Notice != nil {
		f.here.Notice(signal)
	}
}

// begin makes what runs attempts here, once for each head. No rank runs then.
func (f *follower) begin(w Welcome) {
	if f.begun == w.Gen {
		return
	}
	f.close()
	f.begun = w.Gen
	here, err := f.opts.Begin(w, func(text string) {
		f.owner.Go(func() { f.say(Note{Text: text}) }) // who notes something must not wait for the owner
	})
	if err != nil {
		f.unable = err
		return
	}
	f.here = &here
}

// close ends what runs attempts here.
func (f *follower) close() {
	if f.here != nil && f.here.Close != nil {
		f.here.Close()
	}
	f.here, f.unable = nil, nil
}

// endRanks ends ranks that nobody leads.
func (f *follower) endRanks(grace time.Duration) {
	if f.local != nil {
		f.local.stop(sigterm, grace)
	}
}

// abandon ends ranks that have no head any more, and says why where this node's part of the
// run is kept: the head may never hear of it.
func (f *follower) abandon(why string) {
	f.why = why
	f.endRanks(f.opts.Grace)
	if f.here != nil {
		_ = f.here.Store.Append(launcher.Noticed{Text: "the ranks of this node are ended: " + why}) // as good as it can be kept
	}
}

// over takes that none of an attempt's ranks runs any more. The owner calls it.
func (f *follower) over(l *local, m Message) {
	if f.local != l {
		return // it has said so
	}
	f.local = nil
	f.machine.Say(f.now(), m)
}
