package strategy

import (
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// lateSteps is after how many steps an out-of-memory error is late. By then the
// allocator is warm, the optimizer's state exists, and every part of a step has
// run: the plan fitted, and something grew.
const lateSteps = 20

// describe fills in what is known beyond the cause.
func (c *fold) describe(d *Diagnosis, ev Evidence, all []candidate, best candidate) {
	d.Because = []int{best.fact}
	for _, o := range all {
		if o.code != best.code || o.finding == nil {
			continue
		}
		if o.rank >= 0 && !slices.Contains(d.Ranks, o.rank) {
			d.Ranks = append(d.Ranks, o.rank)
		}
		c.quote(d, o, best)
	}
	slices.Sort(d.Ranks)
	if best.finding == nil && best.rank >= 0 && !slices.Contains(d.Ranks, best.rank) {
		d.Ranks = append(d.Ranks, best.rank)
	}
	if exit := c.exitOf(best.rank); exit != nil && failed(exit) {
		d.ExitCode = exit.Code
	} else if c.event(best) && best.rank < 0 {
		d.ExitCode = c.firstExitCode()
	}
	d.Error, d.Lost = c.lastError(all, best), c.facts[best.fact].Lost
	d.Place, d.Node = c.place(d, all, best), c.nodeOf(ev, d.Rank)
	if best.code == cause.Hang {
		c.hung(d)
	}
	c.endedBy(d)
	c.memory(d, ev, best)
	d.Advice = c.advise(d, ev, best)
	d.Because = c.because(d, all, best)
	if best.code == cause.Hang {
		d.Because = append(d.Because, c.stackFacts()...)
	}
}

// quote takes figures, device and phase from a finding of the cause, the chosen
// one's first, unless an earlier finding gave them.
func (c *fold) quote(d *Diagnosis, o, best candidate) {
	if o.rank != best.rank && best.finding != nil && d.Requested != nil {
		return
	}
	if d.Requested == nil && (o.finding.Figures.Requested != nil || o.fact == best.fact) {
		d.Figures = o.finding.Figures
	}
	if d.Device == "" {
		d.Device = o.finding.Device
	}
	if d.Phase == cause.NoPhase && o.finding.Phase != "" {
		d.Phase = o.finding.Phase
	}
}

// lastError is the exception that the rank that failed told of itself, else the last
// one in its output.
func (c *fold) lastError(all []candidate, best candidate) string {
	text, at := "", -1
	for _, o := range all {
		if o.finding != nil && o.rank == best.rank && o.rank >= 0 && o.tier <= tierSymptom && ownWord(c.facts[o.fact].Source) {
			return o.finding.Text
		}
		if o.finding != nil && o.finding.Raised && o.rank == best.rank && o.fact > at {
			text, at = o.finding.Text, o.fact
		}
	}
	if text == "" && best.finding != nil {
		text = best.finding.Text
	}
	return text
}

// memory works out what the figures of an out-of-memory error say.
func (c *fold) memory(d *Diagnosis, ev Evidence, best candidate) {
	if !d.Cause.OutOfMemory() {
		return
	}
	d.Late = c.late(best)
	c.grew(d, ev, best)
	if d.Requested == nil {
		return
	}
	room := d.Capacity
	if d.Allowed != nil && (room == nil || *d.Allowed < *room) {
		room = d.Allowed
	}
	d.Impossible = room != nil && *d.Requested > *room
	d.Fragmented = d.ReservedUnallocated != nil && *d.ReservedUnallocated >= *d.Requested
	if d.Cause == cause.CUDAOOM && !d.Impossible && c.occupied(d) {
		d.Cause = cause.GPUOccupied
	}
}

// late reports whether the rank had made many good steps.
func (c *fold) late(best candidate) bool {
	i, ok := c.progress[best.rank]
	if !ok && best.rank < 0 && len(c.progress) == 1 {
		for _, i = range c.progress {
			ok = true
		}
	}
	if ok {
		p := c.facts[i].Progress
		return max(p.Steps, p.Last-p.First) >= lateSteps
	}
	return len(c.progress) == 0 && best.finding != nil && best.finding.Step >= lateSteps
}

// occupied reports whether others than the job fill the device: they hold at
// least half of it, and more than this process does. Where the ranks' processes
// are known, a tenant is none of them; the message's own list is not so sure.
func (c *fold) occupied(d *Diagnosis) bool {
	if d.Capacity == nil {
		return false
	}
	var others int64
	for _, i := range c.tenants {
		if t := c.facts[i].Tenant; t.Device == d.Device {
			others += t.Bytes
		}
	}
	if len(c.tenants) == 0 && d.OtherProcess != nil {
		others = *d.OtherProcess
	}
	own := int64(0)
	switch {
	case d.Process != nil:
		own = *d.Process
	case d.Allocated != nil:
		own = *d.Allocated
	}
	return others >= *d.Capacity/2 && others > own
}

// because lists the facts that the diagnosis rests on, the strongest first.
func (c *fold) because(d *Diagnosis, all []candidate, best candidate) []int {
	facts := []int{best.fact}
	add := func(i int) {
		if !slices.Contains(facts, i) {
			facts = append(facts, i)
		}
	}
	if i, ok := c.exits[best.rank]; ok {
		add(i)
	}
	if d.Cause == cause.HostOOM {
		for _, i := range c.kills {
			add(i)
		}
	}
	if d.Cause == cause.GPUOccupied {
		for _, i := range c.tenants {
			add(i)
		}
	}
	if i, ok := c.progress[best.rank]; ok && d.Late {
		add(i)
	}
	if d.Cause == cause.Unknown {
		for _, i := range c.stuck {
			add(i)
		}
	}
	for _, o := range all {
		if o.code == best.code || slices.Contains(d.Symptoms, o.code) {
			add(o.fact)
		}
	}
	return facts
}
