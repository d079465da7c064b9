package ranks

import (
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// Counters remember how many processes the OOM killer had ended when they were
// opened, at every level that can be read.
type Counters struct {
	levels []cgroup
	before []int64
}

// OpenCounters reads the counters before the ranks start: later, a kill cannot be distinguished
// from older ones.
func (m Machine) OpenCounters() *Counters {
	c := &Counters{}
	for _, g := range m.groups() {
		if n, ok := g.kills(); ok {
			c.levels = append(c.levels, g)
			c.before = append(c.before, n)
		}
	}
	return c
}

// Rise returns a fact for each level whose counter has risen since OpenCounters, the innermost
// first: the nearer the level, the likelier the killed processes are ours. No kill is in two
// facts, so that their sum is the number of killed processes. The limit is the lowest one of that
// level and those above, and the peak that of the level with the limit, since that level was
// made; it can be a few pages above the limit, which the kernel lets usage exceed for a moment
// (https://docs.kernel.org/admin-guide/cgroup-v2.html, memory.max). Where no counter can be read
// there is one gap.
func (c *Counters) Rise() []strategy.Fact {
	if len(c.levels) == 0 {
		return []strategy.Fact{oomKillFact(strategy.Fact{
			Content: strategy.Gap("no cgroup with a readable count of OOM kills"),
		})}
	}
	var facts []strategy.Fact
	var below int64 // counted by inner levels
	for i, g := range c.levels {
		now, ok := g.kills()
		if !ok {
			continue
		}
		rise := now - c.before[i]
		if g.files.nested {
			rise, below = rise-below, max(rise, below)
		}
		if rise <= 0 {
			continue
		}
		kills := &strategy.Kills{Count: rise, Group: g.name()}
		kills.Limit, kills.Peak = tightest(c.levels[i:])
		facts = append(facts, oomKillFact(strategy.Fact{Content: kills}))
	}
	return facts
}

// tightest returns the lowest limit among levels and the peak of the level that
// has it, or of the first level if none has a limit.
func tightest(levels []cgroup) (limit, peak int64) {
	peak = levels[0].peak()
	for _, g := range levels {
		if n := g.limit(); n > 0 && (limit == 0 || n < limit) {
			limit, peak = n, g.peak()
		}
	}
	return limit, peak
}

// oomKillFact fills in who observed it, and when.
func oomKillFact(f strategy.Fact) strategy.Fact {
	f.Time, f.Rank, f.Source = time.Now(), -1, "cgroup"
	return f
}
