package nodes

import (
	"fmt"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A followerMachine is the state machine of each node but node 0. Its owner dials the head
// whenever there is no link, and reports the result. Tick must be called once a second.
type followerMachine struct {
	owner followerOwner
	hello Hello // introduces this node to the head
	// join is how long the node looks for a head, at the start and after it lost one. replaces: the engine
	// replaces a lost head while this node lives.
	join     time.Duration
	replaces bool

	linked     bool
	generation string // generation of the head that it follows
	attempt    int    // latest attempt that the head ordered, -1 before the first
	stage      NodeStage
	seq        int     // of the last event
	unacked    []Event // events that the head may not have
	last       Message // last change of stage that it reported, repeated on a new link
	left       bool
	paused     bool // until the head resumes it
	abandoned  bool // its ranks are stopped, or being stopped, because their head is gone

	heard     time.Duration // time of the head's last message
	gone      time.Duration // since when there is no link
	unlinked  string        // why there is no link
	refused   since         // the head's machine refuses connections
	mistrusts since         // the head answers and has another secret
	alive     time.Duration // time of this node's last sign of life
}

// since is a condition and when it began.
type since struct {
	on bool
	at time.Duration
}

func (s *since) set(now time.Duration, on bool) {
	if on && !s.on {
		s.at = now
	}
	s.on = on
}

func (s since) lasts(now, bound time.Duration) bool { return s.on && now-s.at >= bound }

// A followerOwner carries out the actions of a followerMachine.
type followerOwner interface {
	// send sends a message to the head, and drop closes the link.
	send(Message)
	drop()
	// do carries out an order of the head's.
	do(order Message)
	// reportAlive reports Alive.
	reportAlive()
	// abandon stops the ranks, because their head is gone.
	abandon(why string)
	// leave ends the follower, once its ranks are gone.
	leave(code int, reason string)
}

// newFollowerMachine makes a node that has not found the head yet.
func newFollowerMachine(owner followerOwner, h Hello, join time.Duration, replaces bool) *followerMachine {
	h.Attempt = -1
	return &followerMachine{owner: owner, hello: h, join: join, replaces: replaces, attempt: -1, stage: Idle}
}

// Linked takes in a new link to the head.
func (f *followerMachine) Linked(now time.Duration) {
	if f.left {
		return
	}
	f.linked, f.refused.on, f.mistrusts.on, f.heard = true, false, false, now
	f.hello.Attempt = -1
	if f.stage > Idle {
		f.hello.Attempt = f.attempt
	}
	f.send(f.hello)
}

// Gone takes in the end of the link.
func (f *followerMachine) Gone(now time.Duration) { f.linked, f.gone = false, now }

// Unreached takes in why there is no link, and whether the head's machine refuses the connection, or the head
// there has another secret.
func (f *followerMachine) Unreached(now time.Duration, why string, refused, mistrusted bool) {
	f.mistrusts.set(now, mistrusted)
	f.refused.set(now, refused)
	f.unlinked = why
}

// WhyUnlinked returns why no head has been found yet, empty once one has.
func (f *followerMachine) WhyUnlinked() string {
	if f.generation != "" {
		return ""
	}
	return f.unlinked
}

// Receive takes in a message from the head.
func (f *followerMachine) Receive(now time.Duration, message Message) {
	f.heard = now
	switch m := message.(type) {
	case Welcome:
		f.welcome(m)
	case Reject:
		f.leave(m.Code, "node 0 refuses this node: "+m.Why)
	case Prepare:
		f.prepare(m)
	case Start:
		if m.Attempt == f.attempt && f.stage == Prepared {
			f.stage, f.last = Starting, nil
			f.owner.do(m)
		}
	case Stop:
		f.stop(m)
	case Pause:
		f.pause()
	case Resume:
		f.resume()
	case Release, Stacks, Notice:
		if f.stage == Running {
			f.owner.do(m)
		}
	case Ack:
		if m.Attempt == f.attempt {
			f.acked(m.Seq)
		}
	case Final:
		f.send(Bye{})
		f.leave(m.Code, m.Reason)
	}
}

// welcome continues at the state that the head knows of this node, or abandons the ranks of an earlier head.
func (f *followerMachine) welcome(w Welcome) {
	if f.generation != "" && f.generation != w.Generation {
		f.abandon("the gpurun of node 0 was started again")
	}
	f.generation = w.Generation
	f.owner.do(w)
	f.resume()
	f.acked(w.Seq)
	for _, e := range f.unacked {
		f.send(e)
	}
	if f.last != nil {
		f.send(f.last)
	}
}

func (f *followerMachine) prepare(p Prepare) {
	if p.Launch.N <= f.attempt && !f.abandoned || f.stage != Idle {
		return // a repetition, or the attempt before is not over
	}
	f.attempt, f.stage, f.abandoned = p.Launch.N, Preparing, false
	f.seq, f.unacked, f.last = 0, nil, nil
	f.owner.do(p)
}

func (f *followerMachine) stop(s Stop) {
	switch {
	case len(s.Spare) > 0:
		if f.stage == Running && s.Attempt == f.attempt {
			f.owner.do(s)
		}
	case f.stage == Idle: // no ranks run
		if s.Attempt > f.attempt {
			f.attempt, f.seq, f.unacked = s.Attempt, 0, nil
		}
		f.last = Stopped{Attempt: f.attempt, Seq: f.seq}
		f.send(f.last)
	case s.Attempt >= f.attempt:
		f.stage = Stopping
		f.owner.do(s)
	}
}

// Report sends the head the result of its orders: Ready, NotReady, Started, an Event, Stopped, a Note, or
// Alive. After Start, Stop and abandon, Stopped must be reported once, when no rank runs any more.
func (f *followerMachine) Report(now time.Duration, message Message) {
	switch m := message.(type) {
	case Ready:
		m.Attempt = f.attempt
		f.step(Preparing, Prepared, m)
	case NotReady:
		if f.stage == Stopping {
			f.Report(now, Stopped{})
			return
		}
		m.Attempt = f.attempt
		f.step(f.stage, Idle, m)
	case Started:
		m.Attempt = f.attempt
		f.step(Starting, Running, m)
		if f.paused && f.stage == Running {
			f.owner.do(Pause{})
		}
	case Event:
		f.seq++
		m.Attempt, m.Seq = f.attempt, f.seq
		f.unacked = append(f.unacked, m)
		f.send(m)
	case Stopped:
		m.Attempt, m.Seq = f.attempt, f.seq
		f.step(f.stage, Idle, m)
	case Alive:
		f.alive = now
		m.Attempt = f.attempt
		f.send(m)
	default:
		f.send(m)
	}
}

// step moves from one stage to the next, and reports that now and again on each new link.
func (f *followerMachine) step(from, to NodeStage, m Message) {
	if f.stage != from {
		return // the head has stopped it meanwhile
	}
	f.stage, f.last = to, m
	f.send(m)
}

// acked drops the events that the head has.
func (f *followerMachine) acked(seq int) {
	for len(f.unacked) > 0 && f.unacked[0].Seq <= seq {
		f.unacked = f.unacked[1:]
	}
}

// Tick detects a lost head, and sends signs of life.
func (f *followerMachine) Tick(now time.Duration) {
	switch {
	case f.left:
	case f.paused && !f.refused.on: // a paused head is silent
		f.sendAlive(now, Beat)
	case f.linked && now-f.heard >= suspectAfter:
		// After a network fault an old connection may take minutes to recover, but a new one works at once.
		f.linked, f.gone = false, now
		f.owner.drop()
	case f.linked && f.stage == Running: // the head judges ranks by their silence, to the second
		f.sendAlive(now, time.Second)
	case f.linked:
		f.sendAlive(now, Beat)
	case f.generation != "" && f.refused.lasts(now, refusedBound):
		f.headLost(now, "the gpurun of node 0 is gone")
	case f.generation != "" && now-f.heard >= lostAfter:
		f.headLost(now, "nothing was received from node 0 for "+(now-f.heard).Round(time.Second).String())
	case f.generation == "" && f.mistrusts.lasts(now, mistrustBound):
		f.leave(strategy.CodeUsage, f.unlinked+": GPURUN_SECRET_FILE or GPURUN_SECRET has to be the same on all "+
			"nodes, and two launches need two names (GPURUN_JOB_ID)")
	case now-f.gone >= f.join:
		f.leave(strategy.CodeRetry, fmt.Sprintf("node 0 could not be reached for %s: %s", f.join, f.unlinked))
	}
}

func (f *followerMachine) sendAlive(now, interval time.Duration) {
	if f.linked && now-f.alive >= interval {
		f.alive = now
		f.owner.reportAlive()
	}
}

// headLost stops the ranks of a lost head. It waits for another head only if the engine replaces it.
func (f *followerMachine) headLost(now time.Duration, why string) {
	if !f.abandoned {
		f.gone = now
	}
	f.abandon(why)
	if !f.replaces {
		f.leave(strategy.CodeRetry, why+": the ranks of this node were ended")
		return
	}
	if now-f.gone >= f.join {
		f.leave(strategy.CodeRetry, fmt.Sprintf("%s, and no other came in %s", why, f.join))
	}
}

// abandon stops the ranks, once.
func (f *followerMachine) abandon(why string) {
	if f.abandoned {
		return
	}
	f.abandoned, f.last, f.unacked = true, nil, nil
	if f.stage > Idle {
		f.stage = Stopping
		f.owner.abandon(why)
	}
}

// leave ends the follower.
func (f *followerMachine) leave(code int, reason string) {
	if f.left {
		return
	}
	f.left = true
	f.abandon(reason)
	f.owner.leave(code, reason)
}

func (f *followerMachine) send(m Message) {
	if f.linked {
		f.owner.send(m)
	}
}

// pause pauses the ranks, even while they are being started, and the time limits for the head's silence. A
// paused head counts as gone only when its port refuses connections.
func (f *followerMachine) pause() {
	f.paused = true
	if f.stage == Running {
		f.owner.do(Pause{})
	}
}

// resume ends a pause, and reports the ranks' state at once.
func (f *followerMachine) resume() {
	if !f.paused {
		return
	}
	f.paused = false
	if f.stage == Running {
		f.owner.do(Resume{})
		f.owner.reportAlive()
	}
}
