package strategy

import (
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A fold is what the facts of one attempt come to. Diagnose, the failure detector
// and the attempt's summary read it; only Evidence makes it. It knows facts by their
// index, so that what is said of an attempt can name what it rests on.
type fold struct {
	facts []Fact

	findings []found
	exits    map[int]int // rank to fact, as progress and growth
	progress map[int]int
	growth   map[int]int
	kills    []int
	tenants  []int
	stuck    []int
	lost     []int
	nodes    []string // the hosts of several nodes
	gaps     []int

	processEnds []int
	ranks       map[int]bool // that some fact is about
	signs       map[int]int  // rank to fact
	said        map[voice]int
	measured    map[voice]int
	snapshots   map[int]int // rank to fact
	stacks      map[int]int // rank to fact

	steps    int
	observed Plan
	fresh    bool
	nothing  string

	known map[identity]int // index into findings
}

// A found is a finding in its last state, with the fact that gave it first.
type found struct {
	fact    int
	rank    int
	finding *cause.Finding
}

// An identity tells findings apart; one that is given again has the same.
type identity struct {
	rank           int
	source, stream string
	seq            int
}

func newFold(facts []Fact) *fold {
	c := &fold{
		facts: facts, exits: map[int]int{}, progress: map[int]int{}, growth: map[int]int{},
		ranks: map[int]bool{}, signs: map[int]int{}, said: map[voice]int{}, measured: map[voice]int{}, snapshots: map[int]int{}, stacks: map[int]int{}, known: map[identity]int{},
	}
	for i := range facts {
		c.take(i)
	}
	return c
}

// rankOf is the rank that a fact is about. Of output that several ranks share, the
// line may say whose it is.
func rankOf(f *Fact) int {
	if f.Rank < 0 && f.Finding != nil {
		return f.Finding.Rank
	}
	return f.Rank
}

func identityOf(f *Fact) identity {
	return identity{rankOf(f), f.Source, f.Finding.Stream, f.Finding.Seq}
}

// before finds the fact that a new one replaces.
func (c *fold) before(f *Fact) (i int, again bool) {
	switch {
	case f.Finding != nil && f.Finding.Seq > 0:
		n, known := c.known[identityOf(f)]
		if known {
			i = c.findings[n].fact
		}
		return i, known
	case f.Sign != nil:
		i, again = c.signs[f.Rank]
	case f.Said != nil:
		i, again = c.said[voice{f.Rank, f.Said.PID}]
	case f.Progress != nil:
		i, again = c.progress[f.Rank]
	case f.Memory != nil:
		i, again = c.measured[voice{f.Rank, f.Memory.PID}]
	case f.Snapshot != nil:
		i, again = c.snapshots[f.Rank]
	}
	return i, again
}

// take adds the fact with an index, or what became of it.
func (c *fold) take(i int) {
	f := &c.facts[i]
	c.ranks[rankOf(f)] = true
	switch {
	case f.Finding != nil:
		c.find(i, f)
	case f.DriverEvent != nil:
		if finding, ok := f.DriverEvent.Finding(); ok {
			c.findings = append(c.findings, found{fact: i, rank: f.Rank, finding: &finding})
		}
	case f.Nodes != nil:
		c.nodes = f.Nodes
	case f.Lost != nil:
		c.lost = append(c.lost, i)
		c.findings = append(c.findings, found{fact: i, rank: -1, finding: f.Lost.finding()})
	case f.Exit != nil:
		c.exits[f.Rank] = i
	case f.Kills != nil && f.Kills.Count > 0:
		c.kills = append(c.kills, i)
	case f.Tenant != nil:
		c.tenants = append(c.tenants, i)
	case f.Progress != nil:
		c.progress[f.Rank] = i
		c.steps = max(c.steps, f.Progress.Steps)
	case f.Stuck != nil:
		c.stuck = append(c.stuck, i)
	case f.Growth != nil:
		c.growth[f.Rank] = i
	case f.Observed != nil:
		c.observe(f.Observed)
	case f.Sign != nil:
		c.signs[f.Rank] = i
	case f.Said != nil:
		c.said[voice{f.Rank, f.Said.PID}] = i
	case f.Memory != nil:
		c.measured[voice{f.Rank, f.Memory.PID}] = i
	case f.Snapshot != nil:
		c.snapshots[f.Rank] = i
	case f.Stack != nil:
		if _, told := c.stacks[f.Rank]; !told {
			c.stacks[f.Rank] = i
		}
	case f.ProcessEnd != nil:
		c.processEnds = append(c.processEnds, i)
	case f.Gap != "":
		c.gaps = append(c.gaps, i)
	}
}

func (c *fold) find(i int, f *Fact) {
	id := identityOf(f)
	if at, again := c.known[id]; again && id.seq > 0 {
		c.findings[at].finding = f.Finding
		return
	}
	c.known[id] = len(c.findings)
	c.findings = append(c.findings, found{fact: i, rank: rankOf(f), finding: f.Finding})
}

func (c *fold) observe(s *ObservedSetting) {
	c.fresh = c.fresh || s.Fresh
	if s.Nothing {
		c.nothing = s.Text
	}
	if _, known := c.observed[s.Knob]; s.Knob != "" && !known {
		c.observed = c.observed.With(Plan{s.Knob: s.Value})
	}
}

// exitFacts are the facts of the ranks' exits, in their order.
func (c *fold) exitFacts() []int {
	facts := make([]int, 0, len(c.exits))
	for _, i := range c.exits {
		facts = append(facts, i)
	}
	slices.Sort(facts)
	return facts
}

// exitOf finds how the rank ended; a saved log has one exit code for all.
func (c *fold) exitOf(rank int) *Exit {
	if i, ok := c.exits[rank]; ok {
		return c.exitAt(i)
	}
	if i, ok := c.exits[-1]; ok {
		return c.exitAt(i)
	}
	return nil
}
