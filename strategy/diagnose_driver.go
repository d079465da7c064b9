package strategy

import (
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// event reports whether a candidate is what the GPU driver told of.
func (c *fold) event(a candidate) bool { return c.facts[a.fact].DriverEvent != nil }

// vague reports whether a candidate is an event that the job itself brought about.
// The driver tells of an assertion as it does of an illegal access, so that what
// the job says of it goes first.
func (c *fold) vague(a candidate) bool { return c.event(a) && a.code == cause.IllegalAccess }

// ownEvents weighs the events that the job brought about itself. A process that is
// killed inside a kernel raises such, too: they explain nothing where no rank
// failed by itself, and are mere hints after one has begun to. A genuine one comes
// before its process can know of it.
func (c *fold) ownEvents(all []candidate) []candidate {
	var failing time.Time
	exited := false
	for _, a := range all {
		at := c.facts[a.fact].Time
		if !c.event(a) && (a.tier <= tierOwn || a.finding == nil) && (failing.IsZero() || at.Before(failing)) {
			failing = at
		}
		exited = exited || c.facts[a.fact].Exit != nil
	}
	if !exited {
		all = slices.DeleteFunc(all, c.vague)
	}
	for i, a := range all {
		if c.vague(a) && !failing.IsZero() && c.facts[a.fact].Time.After(failing) {
			all[i].tier = tierWarning
		}
	}
	return all
}

// attribute returns the words of a rank that say what an event of the driver says,
// where there are any: the event knows the device, the words know the rank.
func (c *fold) attribute(best candidate, all []candidate) candidate {
	if !c.event(best) {
		return best
	}
	for _, other := range all {
		if other.code == best.code && other.tier == best.tier && other.finding != nil && other.rank >= 0 {
			return other
		}
	}
	return best
}

// firstExitCode is the exit code of the rank that failed first, 0 where none did.
func (c *fold) firstExitCode() int {
	code, first := 0, time.Time{}
	for _, i := range c.exitFacts() {
		if f, exit := c.facts[i], c.exitAt(i); failed(exit) && (code == 0 || f.Time.Before(first)) {
			code, first = exit.Code, f.Time
		}
	}
	return code
}
