package strategy

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// weighing is what the plans that could come next are weighed with.
type weighing struct {
	fit        *memory.Predictor
	plans      []Plan
	candidates []memory.PlanCandidate // of plans, by index
	translator translator
	skips      []Skip
}

// unpredictable says why the last failure is one that no plan is predicted for; empty where
// it is not. What a late sample, a leak, fragmentation, another process, an evaluation or a
// save needs does not follow from the plan.
func (s *situation) unpredictable() string {
	d := s.diagnosis
	switch {
	case d.Cause != cause.CUDAOOM && !(s.inventory.Accelerator == "cpu" && d.Device == "cpu"):
		return "the host ran out of memory, not the device"
	case d.Growth != nil:
		return "memory leaked"
	case d.Late:
		return "memory ran out late"
	case d.Phase == cause.Eval, d.Phase == cause.Save:
		return fmt.Sprintf("memory ran out in %s", d.Phase)
	}
	return ""
}

// weigh predicts for all plans that could come next; nil where too little is known, with
// the reason.
func (s *situation) weigh() (*weighing, string) {
	fit, translate, why := s.fitted()
	if why != "" {
		return nil, why
	}
	w := &weighing{fit: fit, translator: translate}
	origin := s.origin()
	w.plans, w.skips = s.candidates()
	w.candidates = make([]memory.PlanCandidate, len(w.plans))
	classes := s.job.classifier(s.all)
	for i, p := range w.plans {
		w.candidates[i] = memory.PlanCandidate{Plan: translate.memory(p), Group: s.group(p, origin, &classes), Order: order(p, origin)}
	}
	return w, ""
}

// fitted is what predicts for the job by all that was measured of it, with how plans are
// put into its words; or why nothing can.
func (s *situation) fitted() (*memory.Predictor, translator, string) {
	seen, t := s.seen()
	if len(seen) == 0 {
		return nil, t, "no process of the job measured its memory"
	}
	fit := memory.NewPredictor(modelOf(seen), s.device(), seen)
	return fit, t, fit.Unknown()
}

// seen is all that was measured of the job, the newest first, in the words of the plans
// that were run; and how plans are put into those words.
func (s *situation) seen() (seen []memory.Measurement, t translator) {
	for _, a := range slices.Backward(s.history) {
		a.Observed = s.told(a)
		ran := s.job.used(a)
		for _, m := range s.job.Measured(a) {
			if m.Model != nil && t.ran == nil {
				t = s.job.translator(ran, m)
			}
			seen = append(seen, m)
		}
	}
	priors := s.job.Priors(s.history)
	if t.ran == nil && len(priors) > 0 {
		t = s.job.recalling(s.plan, priors[0])
	}
	return append(seen, priors...), t
}

// told is what an attempt's processes told of themselves, with what those of others told of
// knobs that no plan has.
func (s *situation) told(a Attempt) Plan {
	told := s.learned.With(nil)
	for k := range a.Plan {
		delete(told, k)
	}
	return told.With(a.Observed)
}

// modelOf is the model that was told of last.
func modelOf(seen []memory.Measurement) memory.TrainedModel {
	for _, m := range seen {
		if m.Model != nil {
			return *m.Model
		}
	}
	return memory.TrainedModel{}
}

// device is what a rank has to train in: the inventory's, with what the failure and the
// measurements say of it.
func (s *situation) device() memory.DeviceMemory {
	d := s.inventory.Device
	d.CPU = s.inventory.Accelerator == "cpu"
	d.Host, d.NVMe, d.LocalRanks = s.inventory.HostAvailable, s.inventory.NVMeFree, max(s.job.LocalRanks, 1)
	least := func(into *int64, n int64) {
		if n > 0 && (*into == 0 || n < *into) {
			*into = n
		}
	}
	if d.CPU && d.Total == 0 {
		d.Total = d.Host / int64(d.LocalRanks)
	}
	for _, a := range s.history {
		for _, m := range a.Measured {
			if d.Total == 0 {
				d.Total = m.Total
			}
			least(&d.Allowed, m.Allowed)
		}
	}
	if c := s.diagnosis.Capacity; c != nil && d.Total == 0 {
		d.Total = *c
	}
	if a := s.diagnosis.Allowed; a != nil {
		least(&d.Allowed, *a)
	}
	if o := s.diagnosis.OtherProcess; o != nil && d.Others == 0 {
		d.Others = *o
	}
	least(&d.Allowed, s.job.Ceiling)
	return d
}

// predict chooses among the plans whose predicted bound fits. Where too little is known, or
// nothing is likely to fit, it relaunches nothing and says why: then the ladder is walked.
func (s *situation) predict() (Decision, string) {
	if s.policy.Mode != Predict {
		return Decision{}, ""
	}
	w, why := s.weigh()
	s.weighing = w
	if why == "" {
		why = s.unpredictable()
	}
	if why != "" {
		return Decision{}, why
	}
	if s.diagnosis.Fragmented && s.defragmented(w) {
		return Decision{}, "the memory was fragmented"
	}
	choice := memory.Choose(w.fit, w.candidates, string(s.policy.Prefer))
	if choice.Index < 0 {
		return Decision{}, nothingFits
	}
	return s.chosen(w, choice), ""
}

// defragmented reports whether the allocator alone is likely to be enough where the memory was
// fragmented, by what the same plan is predicted to need with it: without the failure, which
// says that the plan needs more than there is, and may say so of the fragments only.
func (s *situation) defragmented(w *weighing) bool {
	riders, free := s.riders(phaseFilter{})
	if !slices.Contains(riders, RungAllocator) {
		return false
	}
	plan := w.translator.memory(s.plan.With(Plan{Allocator: free[Allocator]}))
	p := w.fit.WithoutFailures().Predict(plan)
	return p.Unknown != "" || p.Mean <= w.fit.Room(plan)
}

// nothingFits is why the ladder is walked although plans are predicted.
const nothingFits = "no plan is predicted to fit"

// chosen is the decision for a choice.
func (s *situation) chosen(w *weighing, choice memory.Choice) Decision {
	next := w.plans[choice.Index]
	rungs := needs(s.plan, next)
	barred := slices.ContainsFunc(rungs, func(r Rung) bool { return slices.Contains(s.policy.Never, string(r)) })
	if len(rungs) == 0 || barred {
		// It gives back more than it takes, or a partner's knob looks like a rung of its own:
		// then it is what it takes beside the job as it is written.
		rungs = needs(s.origin(), next)
	}
	d := Decision{
		Relaunch: true, Rungs: rungs, Next: s.without(next, s.plan.changes(next)), Changed: s.learned.With(s.last.Plan).Changed(next),
		Resume: s.inventory.Checkpoint, Expected: &choice.Prediction,
	}
	if d.Rung = RungAllocator; len(rungs) > 0 {
		d.Rung = rungs[len(rungs)-1]
	}
	d.Skipped = slices.DeleteFunc(w.skips, func(k Skip) bool { return k.Rung == d.Rung || slices.Contains(rungs, k.Rung) })
	d.Riders = slices.DeleteFunc(slices.Clone(rungs), func(r Rung) bool { return !r.row().free || r == d.Rung })
	for _, o := range choice.Rejected {
		d.Outvoted = append(d.Outvoted, Outvoted{Plan: s.without(w.plans[o.Index], s.plan.changes(w.plans[o.Index])), Reason: o.Reason, Expected: o.Prediction})
	}
	changed := s.plan.Changed(next)
	d.Reason = fmt.Sprintf("attempt %d: %s%s → %s%s; predicted %s%s", s.last.N, s.diagnosis.Sentence(), s.lost(), changed, s.kept(changed),
		span(choice.Prediction, w.fit.Capacity(w.candidates[choice.Index].Plan)), s.runnerUp(d.Outvoted))
	return d
}

// expected is what a plan of the ladder is predicted to need; nil where nothing predicts.
func (s *situation) expected(next Plan) *memory.Prediction {
	if s.weighing == nil {
		return nil
	}
	p := s.weighing.fit.Predict(s.weighing.translator.memory(next))
	if p.Unknown != "" {
		return nil
	}
	return &p
}

// affordable leaves out changes with which weights, gradients and optimizer state alone
// are more than there is room for, and says so if none remains.
func (s *situation) affordable(changes []Plan, free Plan) (left []Plan, reason string) {
	if s.weighing == nil {
		return changes, ""
	}
	for _, c := range changes {
		plan := s.weighing.translator.memory(s.plan.With(free).With(c))
		room := s.weighing.fit.Room(plan)
		if p := s.weighing.fit.Predict(plan); p.Least <= room || room == 0 {
			left = append(left, c)
		} else if reason == "" {
			reason = fmt.Sprintf("what it holds between steps alone is %s, and there are %s", GiB(p.Least), GiB(room))
		}
	}
	return left, reason
}

// changes are the values of another plan that differ.
func (p Plan) changes(next Plan) Plan {
	changes := Plan{}
	for k := range p.Changed(next) {
		changes[k] = next[k]
	}
	return changes
}

// span is a prediction in a sentence: "36.1–37.8 of 40.0 GiB".
func span(p memory.Prediction, room int64) string {
	words := Interval(p.Mean, p.Bound)
	if room > 0 {
		words += " of " + inGiB(room)
	}
	return words + " GiB"
}

// Interval is a mean and a bound in GiB, without the unit: "36.1–37.8".
func Interval(mean, bound int64) string {
	if inGiB(mean) == inGiB(bound) {
		return inGiB(mean)
	}
	return inGiB(mean) + "–" + inGiB(bound)
}

func inGiB(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<30)) }

// runnerUp says which plan came second, and why it lost.
func (s *situation) runnerUp(lost []Outvoted) string {
	if len(lost) == 0 {
		return ""
	}
	return fmt.Sprintf("; the next best, %s, was not chosen: %s", s.plan.Changed(lost[0].Plan), lost[0].Reason)
}
