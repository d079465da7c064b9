package strategy

import (
	"cmp"
	"slices"

	"github.com/gpurun/gpurun/strategy/memory"
)

// A Candidate is a plan that could come next, with what it is predicted to need.
type Candidate struct {
	Plan Plan `json:"plan"`
	// Training is what the plan does to the training, beside the job as it is written.
	Training Training `json:"training"`
	// Peak is the mean and the bound in bytes of the device's allocator, Seconds the time of
	// an optimizer step, 0 where that is not known.
	Peak    [2]int64 `json:"peak_bytes"`
	Seconds float64  `json:"seconds,omitempty"`
	// Fits reports whether the bound is at most what there is, also beside the device, and
	// Reason is that in words.
	Fits   bool   `json:"fits"`
	Reason string `json:"reason"`
}

// Candidates weighs the plans of a job that is not running, by what earlier runs of it
// measured; those that fit come first, in the order in which they would be taken. None
// where nothing was measured.
func Candidates(p Policy, j Job, plan Plan, inv Inventory) []Candidate {
	all := weighed(p, j, plan, inv)
	shown := make([]Candidate, len(all))
	for i, one := range all {
		shown[i] = one.Candidate
	}
	return shown
}

// ExactFits reports whether a plan that trains the same, with nothing offloaded, is predicted
// to fit by what is remembered of the job, and is none of those that ran out of memory.
func ExactFits(p Policy, j Job, inv Inventory, ranOut []Plan) bool {
	return p.ExactFirst() && slices.ContainsFunc(weighed(p, j, j.Written, inv), func(c weighedCandidate) bool {
		same := func(p Plan) bool { return len(p.Changed(c.Plan)) == 0 }
		return c.Fits && c.rated.Group == groupPlain && c.Training == Exact && !same(j.Written) && !slices.ContainsFunc(ranOut, same)
	})
}

// A weighedCandidate is one with what it was weighed as.
type weighedCandidate struct {
	Candidate
	rated memory.PlanCandidate
}

// weighed are the plans of a job that is not running, those that fit first.
func weighed(p Policy, j Job, plan Plan, inv Inventory) []weighedCandidate {
	s := &situation{policy: p, job: j, inventory: inv, plan: plan, history: []Attempt{{Plan: plan}}}
	s.look(s.history)
	s.all = nil // it has not run
	w, why := s.weigh()
	if why != "" {
		return nil
	}
	classes := j.classifier(nil)
	var all []weighedCandidate
	for i, c := range append(w.candidates, memory.PlanCandidate{Plan: w.translator.memory(plan)}) {
		shown := plan
		if i < len(w.plans) {
			shown = w.plans[i]
		}
		expected := w.fit.Predict(c.Plan)
		if expected.Unknown != "" {
			continue
		}
		room := w.fit.Room(c.Plan)
		class, _ := classes.class(shown)
		one := weighedCandidate{Candidate{Plan: shown, Training: class, Peak: [2]int64{expected.Mean, expected.Bound}, Seconds: expected.Seconds, Fits: true, Reason: "fits"}, c}
		switch {
		case expected.Bound > room:
			one.Fits, one.Reason = false, "does not fit in "+GiB(w.fit.Capacity(c.Plan))
		case !w.fit.Beside(expected):
			one.Fits, one.Reason = false, "does not fit in the host's memory"
			if expected.NVMe > 0 {
				one.Reason += ", or on NVMe"
			}
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, func(a, b weighedCandidate) int {
		if a.Fits != b.Fits {
			return map[bool]int{true: -1, false: 1}[a.Fits]
		}
		return cmp.Or(cmp.Compare(a.rated.Group, b.rated.Group), cmp.Compare(a.Seconds, b.Seconds), cmp.Compare(a.rated.Order, b.rated.Order))
	})
	return all
}
