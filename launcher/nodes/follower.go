package nodes

import (
	"fmt"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A Follower is another node's side of a launch, as a state machine. Like Head it has no clock
// and no network. Its owner dials the head whenever there is no link, and says so; Tick has to
// come once a second.
type Follower struct {
	owner    followerOwner
	hello    Hello // how it presents itself
	patience Patience

	linked   bool
	gen      string // of the head that it follows
	attempt  int    // the latest that it was told of, -1 before the first
	stage    Stage
	seq      int     // of the last event
	unheard  []Event // that the head may not have
	last     Message // the last step that it told of, which it says again on a new link
	left     bool
	paused   bool // until the head says otherwise
	forsaken bool // its ranks were ended, or are being, since nobody led them

	heard    time.Duration // when anything was, of the head
	gone     time.Duration // since when there is no link
	refusing bool          // the head's machine answers, and nobody listens there
	refused  time.Duration // since when
	why      string        // there is no link, in words
	// mistrusted is since when the head is there and has another secret, while mistrusts is set.
	mistrusts  bool
	mistrusted time.Duration
	alive      time.Duration // when it last said that it is
}

// A followerOwner does what a Follower says.
type followerOwner interface {
	// send sends a message to the head, and drop closes the link.
	send(Message)
	drop()
	// do carries out an order of the head's.
	do(order Message)
	// tell says Alive.
	tell()
	// abandon ends the ranks, since nobody leads them any more.
	abandon(why string)
	// leave ends the follower, once its ranks are gone.
	leave(code int, reason string)
}

// Patience is what a follower knows of the engine that started it.
type Patience struct {
	// Join is how long it looks for a head, at the start and after one was lost.
	Join time.Duration
	// Replaces says that the engine puts another head in the place of a lost one while this
	// node lives.
	Replaces bool
}

// NewFollower makes a node that has not found the head yet.
func NewFollower(owner followerOwner, h Hello, p Patience) *Follower {
	h.Attempt = -1
	return &Follower{owner: owner, hello: h, patience: p, attempt: -1, stage: Idle}
}

// Linked says that there is a link to the head now.
func (f *Follower) Linked(now time.Duration) {
	if f.left {
		return
	}
	f.linked, f.refusing, f.mistrusts, f.heard = true, false, false, now
	f.hello.Attempt = -1
	if f.stage > Idle {
		f.hello.Attempt = f.attempt
	}
	f.send(f.hello)
}

// Gone says that it is over.
func (f *Follower) Gone(now time.Duration) {
	f.linked, f.gone = false, now
}

// Unreached says why there is no link, and whether the head's machine answers and nobody
// listens there, or somebody with another secret.
func (f *Follower) Unreached(now time.Duration, why string, refused, mistrusted bool) {
	if mistrusted && !f.mistrusts {
		f.mistrusted = now
	}
	f.mistrusts = mistrusted
	if refused && !f.refusing {
		f.refused = now
	}
	f.refusing, f.why = refused, why
}

// Looks says why no head has been found yet, empty where one has.
func (f *Follower) Looks() string {
	if f.gen != "" {
		return ""
	}
	return f.why
}

// Hear takes what the head says.
func (f *Follower) Hear(now time.Duration, message Message) {
	f.heard = now
	switch said := message.(type) {
	case Welcome:
		f.welcome(said)
	case Reject:
		f.leave(said.Code, "node 0 refuses this node: "+said.Why)
	case Prepare:
		f.prepare(said)
	case Start:
		if said.Attempt == f.attempt && f.stage == Prepared {
			f.stage, f.last = Starting, nil
			f.owner.do(said)
		}
	case Stop:
		f.stop(said)
	case Pause:
		f.pause()
	case Resume:
		f.resume()
	case Release, Stacks, Notice:
		if f.stage == Running {
			f.owner.do(said)
		}
	case Ack:
		if said.Attempt == f.attempt {
			f.forget(said.Seq)
		}
	case Final:
		f.send(Bye{})
		f.leave(said.Code, said.Reason)
	}
}

// welcome goes on where the head knows of, or begins anew with another head, whose ranks
// none of these are.
func (f *Follower) welcome(w Welcome) {
	if f.gen != "" && f.gen != w.Gen {
		f.abandon("the gpurun of node 0 was started again")
	}
	f.gen = w.Gen
	f.owner.do(w)
	f.resume()
	f.forget(w.Seq)
	for _, e := range f.unheard {
		f.send(e)
	}
	if f.last != nil {
		f.send(f.last)
	}
}

func (f *Follower) prepare(p Prepare) {
	if p.Launch.N <= f.attempt && !f.forsaken || f.stage != Idle {
		return // it knows, or is not done yet with what it was told before
	}
	f.attempt, f.stage, f.forsaken = p.Launch.N, Preparing, false
	f.seq, f.unheard, f.last = 0, nil, nil
	f.owner.do(p)
}

func (f *Follower) stop(s Stop) {
	switch {
	case len(s.Spare) > 0:
		if f.stage == Running && s.Attempt == f.attempt {
			f.owner.do(s)
		}
	case f.stage == Idle: // it has no ranks, or none any more
		if s.Attempt > f.attempt {
			f.attempt, f.seq, f.unheard = s.Attempt, 0, nil
		}
		f.last = Stopped{Attempt: f.attempt, Seq: f.seq}
		f.send(f.last)
	case s.Attempt >= f.attempt:
		f.stage = Stopping
		f.owner.do(s)
	}
}

// Say tells the head what came of its orders: Ready, NotReady, Started, an Event, Stopped,
// a Note, or that the node is Alive. Stopped has to come once after Start, Stop and Abandon,
// when no rank runs any more.
func (f *Follower) Say(now time.Duration, message Message) {
	switch said := message.(type) {
	case Ready:
		said.Attempt = f.attempt
		f.step(Preparing, Prepared, said)
	case NotReady:
		if f.stage == Stopping {
			f.Say(now, Stopped{})
			return
		}
		said.Attempt = f.attempt
		f.step(f.stage, Idle, said)
	case Started:
		said.Attempt = f.attempt
		f.step(Starting, Running, said)
		if f.paused && f.stage == Running {
			f.owner.do(Pause{})
		}
	case Event:
		f.seq++
		said.Attempt, said.Seq = f.attempt, f.seq
		f.unheard = append(f.unheard, said)
		f.send(said)
	case Stopped:
		said.Attempt, said.Seq = f.attempt, f.seq
		f.step(f.stage, Idle, said)
	case Alive:
		f.alive = now
		said.Attempt = f.attempt
		f.send(said)
	default:
		f.send(said)
	}
}

// step goes from one stage to the next, and says so now and on each new link.
func (f *Follower) step(from, to Stage, m Message) {
	if f.stage != from {
		return // it was told to stop meanwhile
	}
	f.stage, f.last = to, m
	f.send(m)
}

// forget drops the events that the head has.
func (f *Follower) forget(seq int) {
	for len(f.unheard) > 0 && f.unheard[0].Seq <= seq {
		f.unheard = f.unheard[1:]
	}
}

// Tick looks at the time: whether the head is still there, and who has to hear that this
// node is.
func (f *Follower) Tick(now time.Duration) {
	switch {
	case f.left:
	case f.paused && !f.refusing: // its silence was announced
		if f.linked && now-f.alive >= Beat {
			f.alive = now
			f.owner.tell()
		}
	case f.linked && now-f.heard >= suspectAfter:
		// A network that heals may take minutes to bring an old connection back, and none
		// for a new one.
		f.linked, f.gone = false, now
		f.owner.drop()
	case f.linked:
		if every := f.every(); now-f.alive >= every {
			f.alive = now
			f.owner.tell()
		}
	case f.gen != "" && f.refusing && now-f.refused >= refusedBound:
		f.alone(now, "the gpurun of node 0 is gone")
	case f.gen != "" && now-f.heard >= lostAfter:
		f.alone(now, "nothing was heard of node 0 for "+(now-f.heard).Round(time.Second).String())
	case f.gen == "" && f.mistrusts && now-f.mistrusted >= mistrustBound:
		f.leave(strategy.CodeUsage, f.why+": GPURUN_SECRET_FILE or GPURUN_SECRET has to be the same on all nodes, and two launches want two names (GPURUN_JOB_ID)")
	case now-f.gone >= f.patience.Join:
		f.leave(strategy.CodeRetry, fmt.Sprintf("node 0 cannot be reached, and was looked for for %s: %s", f.patience.Join, f.why))
	}
}

// every is how often the node says how far its ranks are: whoever judges them by their
// silence has to know it to the second.
func (f *Follower) every() time.Duration {
	if f.stage == Running {
		return time.Second
	}
	return Beat
}

// alone is what a node does that has no head any more: it ends its ranks, and waits for
// another head only where the engine brings one.
func (f *Follower) alone(now time.Duration, why string) {
	if !f.forsaken {
		f.gone = now
	}
	f.abandon(why)
	if !f.patience.Replaces {
		f.leave(strategy.CodeRetry, why+": the ranks of this node were ended")
		return
	}
	if now-f.gone >= f.patience.Join {
		f.leave(strategy.CodeRetry, fmt.Sprintf("%s, and no other came in %s", why, f.patience.Join))
	}
}

// abandon ends the ranks, which belong to no head any more.
func (f *Follower) abandon(why string) {
	if f.forsaken {
		return
	}
	f.forsaken, f.last, f.unheard = true, nil, nil
	if f.stage > Idle {
		f.stage = Stopping
		f.owner.abandon(why)
	}
}

// leave ends the follower.
func (f *Follower) leave(code int, reason string) {
	if f.left {
		return
	}
	f.left = true
	f.abandon(reason)
	f.owner.leave(code, reason)
}

func (f *Follower) send(m Message) {
	if f.linked {
		f.owner.send(m)
	}
}

// pause pauses a follower's ranks, those too that are being started, and the leases. A head
// that is gone for good while it is paused is one at whose port nobody listens.
func (f *Follower) pause() {
	f.paused = true
	if f.stage == Running {
		f.owner.do(Pause{})
	}
	f.send(Paused{})
}

// resume lets the ranks go on, and tells at once that they do.
func (f *Follower) resume() {
	if !f.paused {
		return
	}
	f.paused = false
	if f.stage == Running {
		f.owner.do(Resume{})
		f.owner.tell()
	}
}
