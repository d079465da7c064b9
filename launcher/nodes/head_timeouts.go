package nodes

import (
	"fmt"
	"syscall"
	"time"
)

// Tick detects lost nodes, and sends signs of life.
func (h *headMachine) Tick(now time.Duration) {
	h.forgiveLeap(now)
	if h.paused && h.final == nil {
		return
	}
	beat := now-h.beat >= Beat
	if beat {
		h.beat = now
	}
	for k, n := range h.others() {
		if n.link != 0 {
			if beat {
				h.send(n, Alive{Attempt: h.attempt})
			}
			h.watchSilence(now, k, n)
		}
		if why := h.overdue(now, n); why != "" {
			h.lose(now, k, why, false)
		}
		if n.stage == Absent && n.hello.Process != "" && n.link == 0 && now-n.gone >= rejoinBound {
			h.noReturn(k, "its gpurun is gone")
		}
	}
	h.check()
}

// leapBound is the time between two ticks, which are a second apart, from which on the clock has leapt: this process
// or its machine stood still, so that the silence of others meanwhile means nothing.
const leapBound = 10 * time.Second

func (h *headMachine) forgiveLeap(now time.Duration) {
	if leap := now - h.ticked; h.ticked > 0 && leap > leapBound {
		for _, n := range h.others() {
			n.heard, n.warned, n.gone, n.since = n.heard+leap, n.warned+leap, n.gone+leap, n.since+leap
		}
	}
	h.ticked = now
}

// Gone takes in the end of a link.
func (h *headMachine) Gone(now time.Duration, link int) {
	for _, n := range h.others() {
		if n.link == link {
			h.unlink(now, n)
		}
	}
	h.check()
}

func (h *headMachine) unlink(now time.Duration, n *nodeState) {
	n.link, n.gone = 0, now
	switch {
	case h.final != nil:
		n.move(now, Left)
	case n.stage == Idle:
		n.move(now, Absent)
	}
}

// watchSilence warns about a silent node, and finally counts it as lost.
func (h *headMachine) watchSilence(now time.Duration, k int, n *nodeState) {
	silence := now - n.heard
	switch {
	case silence >= lostAfter:
		h.owner.drop(n.link)
		h.unlink(now, n)
		h.lose(now, k, silent(silence), false)
	case silence >= suspectAfter && now-n.warned >= suspectAfter:
		n.warned = now
		h.owner.silent(k, silence)
	}
}

func silent(d time.Duration) string {
	return fmt.Sprintf("nothing was received from it for %s", d.Round(time.Second))
}

// overdue returns why a participating node counts as lost, empty if it does not. A silent node may stay as
// long as its ranks run. It counts as lost early only if ranks must be stopped.
func (h *headMachine) overdue(now time.Duration, n *nodeState) string {
	in := now - n.since
	switch {
	case h.final != nil:
		if n.stage != Left && (in >= comeBound || n.hello.Process != "" && in >= byeBound) {
			n.move(now, Left)
		}
	case n.lost || n.stage < Preparing:
	case n.link == 0 && now-n.gone >= rejoinBound:
		return "its gpurun is gone"
	case n.stage == Stopping && now-n.heard >= suspectAfter && in >= rejoinBound:
		return silent(now - n.heard)
	case n.stage == Stopping && in >= n.grace+stopBound:
		return fmt.Sprintf("it has not ended its ranks in %s", in.Round(time.Second))
	case n.stage == Preparing && in >= prepareBound, n.stage == Starting && in >= startBound:
		return fmt.Sprintf("it has not started its ranks in %s", in.Round(time.Second))
	}
	return ""
}

// lose excludes a node from the attempt. If the node returns, it must stop its ranks first.
func (h *headMachine) lose(now time.Duration, k int, why string, left bool) {
	n := &h.nodes[k]
	if n.lost || n.stage < Preparing || h.final != nil {
		return
	}
	n.lost = true
	h.owner.lost(k, why, left)
	n.move(now, Absent)
	if n.link != 0 {
		h.clear(now, n, h.attempt)
	}
}

// noReturn ends the wait for a node that has left, if the engine does not start it again.
func (h *headMachine) noReturn(k int, why string) {
	if h.agreement.Once && h.awaits == AllThere {
		h.awaits = Nowhere
		h.owner.lost(k, why, false)
	}
}

// clear orders a node to stop its ranks of an attempt during which it was lost. Afterwards the node takes
// part again.
func (h *headMachine) clear(now time.Duration, n *nodeState, attempt int) {
	n.lost, n.stale = true, attempt
	h.order(now, n, Stopping, Stop{Attempt: attempt, Signal: int(syscall.SIGTERM)})
}

// Pause orders all nodes to pause their ranks, because node 0 is about to be stopped, for example by Ctrl-Z.
// It is silent until Resume, and no node counts as silent or late until then.
func (h *headMachine) Pause() {
	h.paused = true
	for _, n := range h.others() {
		h.send(n, Pause{})
	}
}

// Resume ends a pause. Silence during the pause does not count.
func (h *headMachine) Resume(now time.Duration) {
	if !h.paused {
		return
	}
	h.paused = false
	for _, n := range h.others() {
		n.heard, n.warned, n.gone, n.since = now, now, now, now
		h.send(n, Resume{})
	}
}
