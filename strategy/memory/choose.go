package memory

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// A PlanCandidate is a plan that policy and job allow and that was not tried.
type PlanCandidate struct {
	Plan RankPlan
	// Group orders kinds of change: a plan of a group is taken only if no lower group has one
	// that fits. 0 trains the same, without offload.
	Group int
	// Order is the plan's position in the order of remedies.
	Order int
	// Margin: a plan fits if its mean and this fraction of it do. It is set if the process does a step
	// again that runs out of memory with the plan, so that a wrong prediction costs little. 0: the bound has to
	// fit.
	Margin float64
}

// A Choice is the plan to run next.
type Choice struct {
	// Index is the candidate's index; -1: none is likely to fit, or nothing is known.
	Index      int
	Prediction Prediction
	// Rule is the reason for the choice: "fastest", "tree", "likely", "least".
	Rule string
	// ByMean: the expected peak decided that the plan fits, with the candidate's margin, not the bound.
	ByMean bool
	// Rejected are the other candidates, the runner-up first, eight at most.
	Rejected []RejectedPlan
}

// A RejectedPlan is a candidate that was not chosen.
type RejectedPlan struct {
	Index      int
	Reason     string
	Prediction Prediction
}

const (
	tie     = 0.03 // of a step's time
	reasons = 8
)

// A rated candidate has its predicted needs.
type rated struct {
	index             int
	group, order      int
	mean, bound, room int64
	margin            float64 // the mean with it counts in place of the bound; 0: the bound does
	seconds           float64
	unknown, host     bool
	excluded          bool
}

// Choose returns the plan that comes first by these rules. In the lowest group with a plan whose
// bound fits, or its mean with a small margin if the process catches a mistake, it is the fastest; within 3 % of the
// time, the first in the order of remedies. A plan that is likely to fit is tried before the next group. prefer
// "tree" returns the first in the order of remedies among those that fit.
func Choose(f *Predictor, candidates []PlanCandidate, prefer string) Choice {
	all := f.rate(candidates)
	best, rule := pick(all, prefer == "tree")
	out := Choice{Index: best, Rule: rule}
	if best >= 0 {
		out.Prediction = f.Predict(candidates[best].Plan)
		out.ByMean = all[best].fits() && all[best].bound > all[best].room
	}
	out.Rejected = f.rejected(candidates, all, best)
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
		margin := c.Margin
		if !slices.Contains(caughtIn, p.Instant) {
			margin = 0
		}
		all[i] = rated{margin: margin, index: i, group: c.Group, order: c.Order, mean: p.Mean, bound: p.Bound, room: room,
			seconds: p.Seconds,
			unknown: p.Unknown != "" || p.Least > room, host: !f.FitsHost(&p), excluded: f.Excludes(c.Plan, &p)}
	}
	return all
}

// pick finds the one to run; -1: none.
func pick(all []rated, tree bool) (int, string) {
	var groups []int
	for i := range all {
		if !slices.Contains(groups, all[i].group) {
			groups = append(groups, all[i].group)
		}
	}
	slices.Sort(groups)
	for _, group := range groups {
		if i := fastest(all, group, tree); i >= 0 {
			if tree {
				return i, "tree"
			}
			return i, "fastest"
		}
		if i := least(all, group, (*rated).likely); i >= 0 {
			return i, "likely"
		}
	}
	for _, group := range groups {
		if i := least(all, group, (*rated).conceivable); i >= 0 {
			return i, "least"
		}
	}
	return -1, ""
}

// fits reports whether a plan's bound fits, on the device and on the host.
func (r *rated) fits() bool { return !r.unknown && !r.host && r.room > 0 && r.needs() <= r.room }

// needs is the peak that has to fit.
func (r *rated) needs() int64 {
	if r.margin > 0 {
		return min(whole((1+r.margin)*float64(r.mean)), r.bound)
	}
	return r.bound
}

// caughtIn are the phases of the peak in which a step can be done again; before the loss, the
// process does the forward again if little memory is left.
var caughtIn = []string{"forward", "loss", "recompute", "backward"}

// fastest is the fastest of a group that fits, ties by the order of remedies; if no time is
// known, or tree is set, the first in that order.
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

// likely reports whether the mean fits: the plan is tried before the next group.
func (r *rated) likely() bool { return r.mean <= r.room }

// conceivable reports whether the prediction does not exclude the plan.
func (r *rated) conceivable() bool { return r.room > 0 && !r.excluded }

// least is the plan of a group with the least bound among those that may fit.
func least(all []rated, group int, mayFit func(*rated) bool) int {
	best := -1
	for i := range all {
		r := &all[i]
		if r.unknown || r.host || r.group != group || !mayFit(r) {
			continue
		}
		if best < 0 || r.bound < all[best].bound {
			best = i
		}
	}
	return best
}

// FitsHost reports whether host memory and NVMe suffice for a prediction for all local ranks.
func (f *Predictor) FitsHost(p *Prediction) bool {
	ranks := int64(max(f.device.LocalRanks, 1))
	if f.device.Host > 0 && max(p.Host, p.Pinned)*ranks > f.device.Host {
		return false
	}
	return p.NVMe == 0 || f.device.NVMe == 0 || p.NVMe*ranks <= f.device.NVMe
}

// rejected returns the other candidates with the reason: first those that fit, fastest first,
// then those that need least.
func (f *Predictor) rejected(candidates []PlanCandidate, all []rated, best int) []RejectedPlan {
	var top []*rated
	for i := range all {
		if i == best || len(top) == reasons && compareRejected(&all[i], top[reasons-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, &all[i], compareRejected)
		top = slices.Insert(top, at, &all[i])
		top = top[:min(len(top), reasons)]
	}
	var out []RejectedPlan
	for _, r := range top {
		p := f.Predict(candidates[r.index].Plan)
		out = append(out, RejectedPlan{Index: r.index, Reason: f.reason(r, p, all, best), Prediction: p})
	}
	return out
}

// class orders the rejected: those that fit by their group, then those that do not fit, then
// those that are ruled out or not known.
func (r *rated) class() int {
	switch {
	case r.fits():
		return r.group
	case r.unknown:
		return math.MaxInt
	}
	return math.MaxInt - 1
}

// compareRejected compares the places of two rejected plans.
func compareRejected(a, b *rated) int {
	by := cmp.Compare(a.bound, b.bound)
	if a.fits() {
		by = cmp.Compare(a.seconds, b.seconds)
	}
	return cmp.Or(cmp.Compare(a.class(), b.class()), by, cmp.Compare(a.order, b.order),
		cmp.Compare(a.index, b.index))
}

// reason is the reason why a candidate was not chosen, for people.
func (f *Predictor) reason(r *rated, p Prediction, all []rated, best int) string {
	switch {
	case p.Unknown != "":
		return "not known: " + p.Unknown
	case r.host && p.NVMe > 0:
		host := max(p.Host, p.Pinned)
		return fmt.Sprintf("needs %s of host memory and %s of NVMe a rank", Of(host, host, 0), Of(p.NVMe, p.NVMe, 0))
	case r.host:
		host := whole(float64(max(p.Host, p.Pinned)) * float64(max(f.device.LocalRanks, 1)))
		return fmt.Sprintf("needs %s of free host memory", Of(host, host, f.device.Host))
	case !r.fits():
		return fmt.Sprintf("needs %s usable", Of(p.Mean, p.Bound, r.room))
	case best < 0:
		return ""
	}
	b := &all[best]
	switch {
	case r.group > b.group:
		return "changes more of the job or its training than is needed"
	case r.seconds > b.seconds*(1+tie) && b.seconds > 0:
		return fmt.Sprintf("slower: a step takes about %.3g times as long", r.seconds/b.seconds)
	case r.seconds > 0 && r.seconds < b.seconds*(1-tie): // the order of remedies was preferred
		return "later in the order of remedies"
	}
	return "as fast, but later in the order of remedies"
}

const (
	speedupRoom = 0.08 // the share of the available memory that the measured peak must leave
	speedupGain = 0.08 // of a step's time
	speedupSafe = 1.03 // the mean, times this, fits
)

// Speedup returns the faster plan that replaces one that trains, once. Numerics stay unchanged, the
// measured peak leaves more than 8 % of the available memory unless remedies in place lowered it, the gain is 8 % of
// the time or more, and 1.03 times the expected peak fits. Certain: the bound fits, too. gain is the saved
// fraction of a step's time; index is -1 if there is none.
func FindSpeedup(f *Predictor, current RankPlan, measured Measurement, candidates []PlanCandidate,
	certain bool) (index int, gain float64) {
	peak := max(measured.stepPeak(), measured.Peak)
	room := f.Room(current)
	// A plan with remedies in place needed all memory before.
	if peak == 0 || len(measured.InPlace) == 0 && float64(peak) > (1-speedupRoom)*float64(room) {
		return -1, 0
	}
	now := measured.StepSeconds
	if now <= 0 {
		now = f.Predict(current).Seconds
	}
	index = -1
	for i, c := range candidates {
		if c.Group != 0 || c.Plan == current {
			continue
		}
		p := f.Predict(c.Plan)
		need := speedupSafe * float64(p.Mean)
		if p.Evidence == "prior" { // no block was seen as the plan would run it
			need = float64(p.Bound)
		}
		if p.Unknown != "" || p.Seconds <= 0 || need > float64(f.Room(c.Plan)) || !f.FitsHost(&p) {
			continue
		}
		if certain && p.Bound > f.Room(c.Plan) {
			continue
		}
		if g := 1 - p.Seconds/now; now > 0 && g >= speedupGain && g > gain {
			index, gain = i, g
		}
	}
	return index, gain
}
