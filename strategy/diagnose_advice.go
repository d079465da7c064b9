package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy/cause"
)

// handled quotes the out-of-memory errors that the job outlived.
func (c *fold) handled(d *Diagnosis) {
	for _, s := range c.findings {
		if s.finding.Code.OutOfMemory() {
			d.Because = append(d.Because, s.fact)
		}
	}
	d.Advice = c.adviseHandled()
}

// adviseHandled is about out-of-memory errors that the job outlived, if there are
// any: a warning without an amount only speaks of such.
func (c *fold) adviseHandled() string {
	for _, s := range c.findings {
		oom := s.finding.Code.OutOfMemory()
		if oom && (!s.finding.Weight.Warning() || s.finding.Figures.Requested != nil) {
			return "the job handled an out-of-memory error itself, by skipping, retrying or falling back: begin with a smaller batch where that matters"
		}
	}
	return ""
}

// advise is the sentence for a person, where no rung answers the cause.
func (c *fold) advise(d *Diagnosis, ev Evidence, best candidate) string {
	switch {
	case d.Cause == cause.Unknown && c.saysKilled(best):
		return c.adviseKill()
	case d.Impossible && d.Requested != nil:
		return fmt.Sprintf("a single request of %s is more than the memory there is: look for a wrong shape, a batch or a sequence that is far too long", GiB(*d.Requested))
	case d.Growth != nil:
		return d.leak()
	case d.Cause.OutOfMemory():
		return c.spread(d, ev)
	case d.Place != nil:
		return "look at " + d.Place.Words()
	case d.Cause == cause.Hang && ev.Ranks == 1:
		return "look at where it was: it waits for something that does not come, such as a lock, a loader's worker, a file or the network"
	case d.Cause == cause.None:
		return c.adviseHandled()
	case d.Cause == cause.Preempted && c.timeUp():
		return "the scheduler's time limit ended the job: ask for more time, or let the job save checkpoints and start it again from the newest one"
	case best.finding != nil && best.finding.Says(cause.SaysNode):
		return "a node of the job failed: start the job again, on other nodes, and tell who runs the cluster"
	case d.Cause == cause.Unknown && len(c.stuck) > 0:
		return "a process does not end even by SIGKILL, which points to the driver or to storage: check the kernel log, and restart the node if it stays"
	}
	return advice(d.Cause)
}

// timeUp reports whether a line says that a time limit ended the job.
func (c *fold) timeUp() bool {
	return slices.ContainsFunc(c.findings, func(s found) bool { return s.finding.Says(cause.SaysTimeLimit) })
}

// saysKilled reports whether the candidate is an end by SIGKILL: an exit, or what
// torchrun and shells say of one.
func (c *fold) saysKilled(best candidate) bool {
	if best.finding == nil {
		return c.facts[best.fact].Exit != nil && signalOf(c.exitAt(best.fact)) == sigKILL
	}
	return best.finding.Says(cause.SaysKilled)
}

// adviseKill says what would prove who killed the rank.
func (c *fold) adviseKill() string {
	text := "a rank was killed by SIGKILL and nothing shows by whom: look for oom-kill in the kernel log (dmesg), oom_kill in the cgroup's memory.events, or for somebody who killed it"
	for _, i := range c.gaps {
		if strings.Contains(c.facts[i].Gap, "cgroup") {
			return text + "; the cgroup's counter could not be read here"
		}
	}
	return text
}

// advice is the catalogue's hint for a cause.
func advice(code cause.Code) string {
	entry, _ := cause.Lookup(code)
	return entry.Hint
}
