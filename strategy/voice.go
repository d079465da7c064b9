package strategy

import (
	"maps"
	"slices"
)

// A voice is a process that says what it runs with: of a rank, or of what the rank
// has started.
type voice struct{ rank, pid int }

// voices are what processes said last, in the order of ranks and processes.
func (c *fold) reports() []*Said {
	order := slices.SortedFunc(maps.Keys(c.said), func(a, b voice) int {
		if a.rank != b.rank {
			return a.rank - b.rank
		}
		return a.pid - b.pid
	})
	all := make([]*Said, len(order))
	for i, v := range order {
		all[i] = c.facts[c.said[v]].Said
	}
	return all
}

// Silent are the ranks that said nothing of themselves, though others did.
func (e *Evidence) Silent() []int {
	c := e.folded()
	spoke := map[int]bool{}
	for v := range c.said {
		spoke[v.rank] = true
	}
	var silent []int
	for rank := range e.Ranks {
		if len(spoke) > 0 && !spoke[rank] {
			silent = append(silent, rank)
		}
	}
	return silent
}

// Waiting are the ranks whose processes wait for word from gpurun before their first
// optimizer step, and all reports whether every rank does.
func (e *Evidence) Waiting() (ranks []int, all bool) {
	c := e.folded()
	waits, processes := map[int]bool{}, 0
	for v, i := range c.said {
		if c.facts[i].Said.Waiting {
			waits[v.rank] = true
			processes++
		}
	}
	ranks = slices.Sorted(maps.Keys(waits))
	return ranks, len(ranks) > 0 && len(ranks) == e.Ranks && processes >= e.World()
}

// AppliedBatch reports whether a process has changed the batch in itself.
func (e *Evidence) AppliedBatch() bool {
	return slices.ContainsFunc(e.folded().reports(), func(s *Said) bool {
		_, micro := s.Applied[MicroBatchSize]
		_, accumulation := s.Applied[GradientAccumulationSteps]
		return micro || accumulation
	})
}

// unheard reports whether there is a rank, or a process that a rank started as one, that
// said nothing of a model.
func (e *Evidence) unheard() bool {
	processes := 0
	for _, said := range e.folded().reports() {
		if said.Model != nil {
			processes++
		}
	}
	return len(e.Silent()) > 0 || processes > 0 && processes < e.World()
}

// Alone is the number of ranks where there are several, each has come to its first optimizer
// step, and none has joined a process group with another: each trains the whole job. Else
// it is 0.
func (e *Evidence) Alone() int {
	c := e.folded()
	stepping := map[int]bool{}
	for v, i := range c.said {
		if c.facts[i].Said.Stepping {
			stepping[v.rank] = true
		}
	}
	if e.Ranks < 2 || len(stepping) < e.Ranks || e.World() > 1 {
		return 0
	}
	return e.Ranks
}

// World is the number of ranks that the job's processes see, 0 where none says it.
func (e *Evidence) World() int {
	world := 0
	for _, said := range e.folded().reports() {
		world = max(world, said.World)
	}
	return world
}

// inProcess is what the job's processes say that they run with. Where they differ, or
// some rank was silent to the end on what others turned from inside, a change did not
// take effect: then it is the value that the plan does not have.
func (e *Evidence) inProcess(j Job) Plan {
	c := e.folded()
	if len(c.said) == 0 {
		return nil
	}
	settings, silent := Plan{}, !e.Ended.IsZero() && e.unheard()
	for _, said := range c.reports() {
		for k, v := range j.Planned(said.Settings, e.World()) {
			if pair, turned := said.Applied[k]; turned && silent && pair[0] != "" {
				v = pair[0]
			}
			if old, known := settings[k]; !known || old == e.Plan[k] {
				settings[k] = v
			}
		}
	}
	return settings
}

// Asked reports whether a process has told of the model that it trains.
func (e *Evidence) Asked() bool {
	return slices.ContainsFunc(e.folded().reports(), func(s *Said) bool { return s.Model != nil })
}

// Refused says why knobs cannot be turned from inside, or were not, by what the job's
// processes say.
func (e *Evidence) Refused() map[Knob]string {
	var refused map[Knob]string
	for _, said := range e.folded().reports() {
		for _, reasons := range []map[Knob]string{said.Refused, said.Failed} {
			for k, reason := range reasons {
				if refused == nil {
					refused = map[Knob]string{}
				}
				refused[k] = reason
			}
		}
	}
	return refused
}
