package strategy

import (
	"fmt"

	"github.com/gpurun/gpurun/strategy/cause"
)

// grew fills in the memory use that rose up to an out-of-memory error: what the
// error's own output told, else what the rank's output told in the end.
func (c *fold) grew(d *Diagnosis, ev Evidence, best candidate) {
	var g *cause.Growth
	if best.finding != nil {
		g = best.finding.Growth
	}
	i, ok := c.growth[best.rank]
	if !ok {
		i, ok = c.growth[-1]
	}
	if g == nil && ok {
		g = c.facts[i].Growth
	}
	if g == nil {
		return
	}
	// "mem" may be a device's memory, which says nothing about the host's.
	onHost := g.Host || d.Device == "cpu" || ev.Accelerator == "cpu" && d.Cause == cause.HostOOM
	if (d.Cause == cause.HostOOM) != onHost {
		return
	}
	d.Growth = g
	d.Again = c.again(g, best)
}

// again is how many steps the attempt made until its memory was used up: as many
// as the next one will make, which starts as low as this one did. Without the
// number of the first step, 0 is taken for it, unless the slope contradicts it.
func (c *fold) again(g *cause.Growth, best candidate) int {
	if i, ok := c.progress[best.rank]; ok {
		if p := c.facts[i].Progress; p.Last > p.First {
			return p.Last - p.First
		}
	}
	if g.PerStep <= 0 || g.To-int64(g.ToStep)*g.PerStep < 0 {
		return 0
	}
	return g.ToStep
}

// leak says the growth, and when it ends the next attempt.
func (d *Diagnosis) leak() string {
	g := d.Growth
	text := fmt.Sprintf("memory leaks: %q grew by %s a step, from %s at step %d to %s at step %d",
		g.Word, GiB(g.PerStep), GiB(g.From), g.FromStep, GiB(g.To), g.ToStep)
	if d.Again > 0 {
		text += fmt.Sprintf(", and a relaunch runs out again after about %d steps", d.Again)
	}
	if d.Cause == cause.HostOOM && d.Device != "cpu" {
		return text + "; look for samples or results that are kept in lists, and for loader workers that cache what they read"
	}
	return text + "; look for tensors that outlive their step: losses summed without .item(), outputs kept in lists, graphs kept by retain_graph"
}
