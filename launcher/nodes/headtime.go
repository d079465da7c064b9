package nodes

import (
	"fmt"
	"syscall"
	"time"
)

// Tick looks at the time: who is lost, and whether it is time for a sign of life.
func (h *Head) Tick(now time.Duration) {
	if h.paused && h.final == nil {
		return
	}
	beat := now-h.beat >= Beat
	if beat {
		h.beat = now
	}
	for k := 1; k < len(h.members); k++ {
		if h.members[k].link != 0 {
			if beat {
				h.send(k, Alive{Attempt: h.attempt})
			}
			h.listen(now, k)
		}
		m := &h.members[k]
		if why := h.overdue(now, m); why != "" {
			h.lose(now, k, why, false)
		}
		if m.stage == Absent && m.hello.Inc != "" && m.link == 0 && now-m.gone >= rejoinBound {
			h.comesNoMore(k, "its gpurun is gone")
		}
	}
	h.look()
}

// Gone says that a link is over.
func (h *Head) Gone(now time.Duration, link int) {
	for k := 1; k < len(h.members); k++ {
		if h.members[k].link == link {
			h.unlink(now, k)
		}
	}
	h.look()
}

func (h *Head) unlink(now time.Duration, k int) {
	m := &h.members[k]
	m.link, m.gone = 0, now
	h.lookPaused()
	switch {
	case h.final != nil:
		m.move(now, Left)
	case m.stage == Idle:
		m.move(now, Absent)
	}
}

// listen tells of a node that says nothing, and closes its link in the end.
func (h *Head) listen(now time.Duration, k int) {
	m := &h.members[k]
	silence := now - m.heard
	switch {
	case silence >= lostAfter:
		h.owner.drop(m.link)
		h.unlink(now, k)
		h.lose(now, k, silent(silence), false)
	case silence >= suspectAfter && now-m.told >= suspectAfter:
		m.told = now
		h.owner.silent(k, silence)
	}
}

func silent(d time.Duration) string {
	return fmt.Sprintf("nothing was heard of it for %s", d.Round(time.Second))
}

// overdue says why a node that takes part is given up, empty where it is not. A node that
// is silent may go on while its ranks do: it is given up early only where ranks are to be
// stopped.
func (h *Head) overdue(now time.Duration, m *member) string {
	in := now - m.since
	switch {
	case h.final != nil:
		if m.stage != Left && (in >= comeBound || m.hello.Inc != "" && in >= byeBound) {
			m.move(now, Left)
		}
	case m.lost || m.stage < Preparing:
	case m.link == 0 && now-m.gone >= rejoinBound:
		return "its gpurun is gone"
	case m.stage == Stopping && now-m.heard >= suspectAfter && in >= rejoinBound:
		return silent(now - m.heard)
	case m.stage == Stopping && in >= m.grace+stopBound:
		return fmt.Sprintf("it has not ended its ranks in %s", in.Round(time.Second))
	case m.stage == Preparing && in >= prepareBound, m.stage == Starting && in >= startBound:
		return fmt.Sprintf("it has not started its ranks in %s", in.Round(time.Second))
	}
	return ""
}

// lose gives a node up for the attempt. If it is heard of again it ends its ranks first.
func (h *Head) lose(now time.Duration, k int, why string, left bool) {
	m := &h.members[k]
	if m.lost || m.stage < Preparing || h.final != nil {
		return
	}
	m.lost = true
	h.owner.lost(k, why, left)
	m.move(now, Absent)
	if m.link != 0 {
		h.clear(now, k, h.attempt)
	}
}

// comesNoMore ends the wait for a node that was there and has gone, where it is not started
// again.
func (h *Head) comesNoMore(k int, why string) {
	if h.launch.Once && h.awaits == AllThere {
		h.awaits = Nowhere
		h.owner.lost(k, why, false)
	}
}

// clear has a node end ranks that are not to be. It takes part again once they are gone.
func (h *Head) clear(now time.Duration, k, attempt int) {
	m := &h.members[k]
	m.lost, m.stale, m.order = true, attempt, Stop{Attempt: attempt, Signal: int(syscall.SIGTERM)}
	m.move(now, Stopping)
	h.send(k, m.order)
}

// Pause has all nodes pause their ranks: node 0 is about to be stopped, by Ctrl-Z for
// example, and says nothing until Resume. Until then nobody counts as silent or late.
func (h *Head) Pause() {
	h.paused = true
	for k := 1; k < len(h.members); k++ {
		h.members[k].paused = false
		h.send(k, Pause{})
	}
	h.lookPaused()
}

// lookPaused tells that all nodes which can be told to pause have done so.
func (h *Head) lookPaused() {
	if !h.paused {
		return
	}
	for k := 1; k < len(h.members); k++ {
		if m := &h.members[k]; m.link != 0 && !m.paused {
			return
		}
	}
	h.owner.allPaused()
}

// Resume has all nodes go on. What was not heard meanwhile is nobody's fault.
func (h *Head) Resume(now time.Duration) {
	if !h.paused {
		return
	}
	h.paused = false
	for k := 1; k < len(h.members); k++ {
		m := &h.members[k]
		m.heard, m.told, m.gone, m.since = now, now, now, now
		h.send(k, Resume{})
	}
}
