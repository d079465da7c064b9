package memory

import (
	"fmt"
	"math"
	"slices"
)

// A PlanCandidate is a plan that policy and job allow and that was not tried.
type PlanCandidate struct {
	Plan RankPlan
	// Group orders kinds of change: a plan of a group is taken only where no lower group
	// has one that fits. 0 trains the same, without offload.
	Group int
	// Order is the plan's place in the tree's order.
	Order int
}

// A Choice is the plan to run next.
type Choice struct {
	// Index is that of the candidate; -1: none is likely to fit, or nothing is known.
	Index      int
	Prediction Prediction
	// Rule says why it was chosen: "fastest", "tree", "likely", "least".
	Rule string
	// Rejected are the candidates that lost, the runner-up first, eight at most.
	Rejected []RejectedPlan
}

// An RejectedPlan candidate lost for a reason.
type RejectedPlan struct {
	Index      int
	Reason     string
	Prediction Prediction
}

const (
	likely      = 0.985 // of the room: a mean below it comes before the next group
	conceivable = 1.02  // of the room: a mean above it is not tried
	tie         = 0.03  // of a step's time
	reasons     = 8
)

// A rated candidate is one with what it is expected to need.
type rated struct {
	index             int
	group, order      int
	mean, bound, room int64
	seconds           float64
	unknown, host     bool
}

// Choose takes the plan that comes first by the rule: of the lowest group that has a plan
// whose bound fits, the fastest; within 3 % of the time the tree's order decides. Before
// the next group comes a plan that is likely to fit. prefer "tree" takes the first in the
// tree's order among those that fit.
func Choose(f *Predictor, candidates []PlanCandidate, prefer string) Choice {
	all := f.rate(candidates)
	best, rule := pick(all, prefer == "tree")
	out := Choice{Index: best, Rule: rule}
	if best >= 0 {
		out.Prediction = f.Predict(candidates[best].Plan)
	}
	out.Rejected = f.outvoted(candidates, all, best)
	return out
}

// rate predicts every candidate.
func (f *Predictor) rate(candidates []PlanCandidate) []rated {
	all := make([]rated, len(candidates))
	var p Prediction
	for i := range candidates {
		c := &candidates[i]
		f.predict(&c.Plan, &p)
		room := f.Room(c.Plan)
		all[i] = rated{index: i, group: c.Group, order: c.Order, mean: p.Mean, bound: p.Bound, room: room, seconds: p.Seconds,
			unknown: p.Unknown != "" || p.Least > room, host: !f.besideFits(p.Host, p.Pinned, p.NVMe)}
	}
	return all
}

// pick finds the one to run; -1: none.
func pick(all []rated, tree bool) (int, string) {
	for group, more := next(all, -1); more; group, more = next(all, group) {
		if i := fastest(all, group, tree); i >= 0 {
			if tree {
				return i, "tree"
			}
			return i, "fastest"
		}
		if i := least(all, likely, func(r *rated) bool { return r.group == group }); i >= 0 {
			return i, "likely"
		}
	}
	for group, more := next(all, -1); more; group, more = next(all, group) {
		if i := least(all, conceivable, func(r *rated) bool { return r.group == group }); i >= 0 {
			return i, "least"
		}
	}
	return -1, ""
}

// next is the lowest group above another.
func next(all []rated, above int) (int, bool) {
	group, found := 0, false
	for i := range all {
		if g := all[i].group; g > above && (!found || g < group) {
			group, found = g, true
		}
	}
	return group, found
}

// fits says that a plan's bound fits, on the device and beside it.
func (r *rated) fits() bool { return !r.unknown && !r.host && r.room > 0 && r.bound <= r.room }

// fastest is the fastest of a group that fits, ties by the tree's order; where no time is
// known, or the tree is preferred, the first in the tree's order.
func fastest(all []rated, group int, tree bool) int {
	quickest := 0.
	for i := range all {
		r := &all[i]
		if r.group == group && r.fits() && r.seconds > 0 && (quickest == 0 || r.seconds < quickest) {
			quickest = r.seconds
		}
	}
	best := -1
	for i := range all {
		r := &all[i]
		if r.group != group || !r.fits() || !tree && quickest > 0 && (r.seconds == 0 || r.seconds > quickest*(1+tie)) {
			continue
		}
		if best < 0 || r.order < all[best].order {
			best = i
		}
	}
	return best
}

// least is the plan with the least bound among those whose mean is below a share of the
// room.
func least(all []rated, share float64, among func(*rated) bool) int {
	best := -1
	for i := range all {
		r := &all[i]
		if r.unknown || r.host || !among(r) || float64(r.mean) > share*float64(r.room) {
			continue
		}
		if best < 0 || r.bound < all[best].bound {
			best = i
		}
	}
	return best
}

// Beside says whether what a prediction needs outside the device is there, for all local
// ranks.
func (f *Predictor) Beside(p Prediction) bool { return f.besideFits(p.Host, p.Pinned, p.NVMe) }

// besideFits says whether what a plan needs outside the device is there, for all local ranks.
func (f *Predictor) besideFits(host, pinned, nvme int64) bool {
	ranks := int64(max(f.device.LocalRanks, 1))
	if f.device.Host > 0 && max(host, pinned)*ranks > f.device.Host {
		return false
	}
	return nvme == 0 || f.device.NVMe == 0 || nvme*ranks <= f.device.NVMe
}

// outvoted says why the others lost: first those that fit, fastest first, then those that
// need least.
func (f *Predictor) outvoted(candidates []PlanCandidate, all []rated, best int) []RejectedPlan {
	top := make([]*rated, 0, reasons+1)
	for i := range all {
		r := &all[i]
		if i == best {
			continue
		}
		if len(top) == reasons && !before(r, top[reasons-1]) {
			continue
		}
		at := len(top)
		for at > 0 && before(r, top[at-1]) {
			at--
		}
		top = slices.Insert(top, at, r)
		top = top[:min(len(top), reasons)]
	}
	var out []RejectedPlan
	for _, r := range top {
		p := f.Predict(candidates[r.index].Plan)
		out = append(out, RejectedPlan{Index: r.index, Reason: f.reason(r, p, all, best), Prediction: p})
	}
	return out
}

// class orders the losers: those that fit by their group, then those that do not, then
// those that arithmetic or ignorance rules out.
func (r *rated) class() int {
	switch {
	case r.fits():
		return r.group
	case r.unknown:
		return math.MaxInt
	}
	return math.MaxInt - 1
}

// before says which of two losers comes first.
func before(a, b *rated) bool {
	x, y := a.class(), b.class()
	switch {
	case x != y:
		return x < y
	case a.fits() && a.seconds != b.seconds:
		return a.seconds < b.seconds
	case !a.fits() && a.bound != b.bound:
		return a.bound < b.bound
	}
	return a.order < b.order
}

// reason is why a candidate lost, as a person would say it.
func (f *Predictor) reason(r *rated, p Prediction, all []rated, best int) string {
	room := gib(float64(r.room))
	switch {
	case p.Unknown != "":
		return "not known: " + p.Unknown
	case r.host && p.NVMe > 0:
		return fmt.Sprintf("needs %s GiB of host memory and %s GiB of NVMe a rank", gib(float64(max(p.Host, p.Pinned))), gib(float64(p.NVMe)))
	case r.host:
		return fmt.Sprintf("needs %s of %s GiB of free host memory", gib(float64(max(p.Host, p.Pinned))*float64(max(f.device.LocalRanks, 1))), gib(float64(f.device.Host)))
	case !r.fits() && gib(float64(p.Mean)) == gib(float64(p.Bound)):
		return fmt.Sprintf("needs %s GiB of %s that can be used", gib(float64(p.Mean)), room)
	case !r.fits():
		return fmt.Sprintf("needs %s–%s GiB of %s that can be used", gib(float64(p.Mean)), gib(float64(p.Bound)), room)
	case best < 0:
		return ""
	}
	b := &all[best]
	switch {
	case r.group > b.group:
		return "changes more of the job or its training than is needed"
	case r.seconds > b.seconds*(1+tie) && b.seconds > 0:
		return fmt.Sprintf("slower: a step takes %.2f times as long", r.seconds/b.seconds)
	case r.seconds > 0 && r.seconds < b.seconds*(1-tie): // the tree's order was preferred
		return "later in the order of remedies"
	}
	return "as fast, but later in the order of remedies"
}

// gib is bytes in GiB, for people.
func gib(bytes float64) string { return fmt.Sprintf("%.1f", bytes/(1<<30)) }
