package gang

import "time"

// Pause has all nodes pause their ranks: node 0 is about to be stopped, by Ctrl-Z for
// example, and says nothing until Resume. Until then nobody counts as silent or late.
func (h *Head) Pause() []Effect {
	h.paused = true
	for k := 1; k < len(h.members); k++ {
		h.members[k].paused = false
		h.send(k, Pause{})
	}
	h.lookPaused()
	return h.take()
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
	h.effects = append(h.effects, AllPaused{})
}

// Resume has all nodes go on. What was not heard meanwhile is nobody's fault.
func (h *Head) Resume(now time.Duration) []Effect {
	if !h.paused {
		return nil
	}
	h.paused = false
	for k := 1; k < len(h.members); k++ {
		m := &h.members[k]
		m.heard, m.told, m.gone, m.since = now, now, now, now
		h.send(k, Resume{})
	}
	return h.take()
}

// pause pauses a follower's ranks, those too that are being started, and the leases. A head
// that is gone for good while it is paused is one at whose port nobody listens.
func (f *Follower) pause() {
	f.paused = true
	if f.stage == Running {
		f.do(Pause{})
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
		f.do(Resume{})
		f.effects = append(f.effects, Tell{})
	}
}
