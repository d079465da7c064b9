package strategy

import (
	"fmt"
	"slices"
	"strings"
)

// A Pressure is memory pressure without an error: in step after step, the allocator of a process
// freed its cache and asked the device again, which waits for all that the device computes.
type Pressure struct {
	Retries int64 `json:"retries"` // in so many Steps, the last of which was Step
	Steps   int   `json:"steps"`
	Step    int   `json:"step"`
	// Why is the reason why the process cannot end it, in the steps after a repeat; empty: not known.
	Why string `json:"why,omitempty"`
}

// A RankPressure is a Pressure of a rank.
type RankPressure struct {
	Rank int
	Pressure
}

// Pressure lists the ranks under memory pressure, in their order.
func (e *Evidence) Pressure() (all []RankPressure) {
	c := e.folded()
	for _, id := range c.processes() {
		if p := As[*ProcessReport](c.facts[c.reported[id]]).Pressure; p != nil && p.Steps > 0 {
			all = append(all, RankPressure{id.rank, *p})
		}
	}
	return all
}

// Retries is the number of times that the allocator of a rank freed its cache to serve a request,
// without an error: the most of all ranks.
func (a Attempt) Retries() (most int64) {
	if a.Diagnosis.OutOfMemory() {
		return 0 // each error has one
	}
	for i := range a.Measured {
		most = max(most, a.Measured[i].Retries)
	}
	return most
}

// RetriesWords is a line about retries; empty for none.
func RetriesWords(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("the allocator freed its cache and retried %s: memory was short, which slows training",
		Count(n, "time"))
}

// Sentence is for people; ends are the changes that would end it, if any.
func (r RankPressure) Sentence(ends string) string {
	words := fmt.Sprintf("rank %d: the allocator had to free and retry %s in %s up to step %d; this slows training",
		r.Rank, Count(int(r.Retries), "time"), Count(r.Steps, "step"), r.Step)
	if r.Why != "" {
		words += "; " + r.Why
	}
	if ends != "" {
		words += "; what would end it: " + ends
	}
	return words
}

// EndsPressure names the changes to a plan that need less memory and train the same: the free
// ones, and the first other. It is empty if there is none.
func EndsPressure(p Policy, j Job, plan Plan, inv Inventory) string {
	var words []string
	for _, o := range Survey(p, j, plan, inv) {
		if !o.Available || len(o.Changed) == 0 || !slices.Contains(DeviceRemedies, o.Remedy) || o.Training == Changed {
			continue
		}
		words = append(words, o.Changed.String())
		if !o.Remedy.row().free {
			break
		}
	}
	return strings.Join(words, ", or ")
}
