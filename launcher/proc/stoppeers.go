package proc

import (
	"errors"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// StopPeers sends sig, and SIGCONT, to the process groups of all ranks but those given,
// and returns. What such a rank's end says from then on is the signal's doing: its Exit
// has Stopped set. The ranks that are given go on, until Stop, which has to come.
//
// A rank that is handling one SIGTERM gets no second one from Stop: a second one means to
// many programs that there is no time left.
func (g *Group) StopPeers(sig syscall.Signal, of []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping || g.released {
		return
	}
	for _, r := range g.members {
		if slices.Contains(of, r.rank) || r.stopped {
			continue
		}
		if r.stopped, r.before = true, !r.alive(); !r.before {
			g.ask()
		}
		g.toGroup(r, sig)
		g.toGroup(r, unix.SIGCONT)
	}
}

// toGroup sends sig to a rank's process group. The caller holds mu.
func (g *Group) toGroup(r *member, sig syscall.Signal) {
	if err := unix.Kill(-r.id.PID, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		g.log.Warn("signal a rank's process group", "rank", r.rank, "signal", sig, "error", err)
	}
}
