package strategy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// A predictor predicts the needs of a job's plans from the measurements of its processes.
type predictor struct {
	fit *memory.Predictor
	translator
}

// predictor uses all measurements of the job, or returns why nothing can be predicted. Plans are
// translated by the newest measurement with a model.
func (s *situation) predictor() (predictor, string) {
	var seen []memory.Measurement // the newest first
	var t translator
	alike, unplanned := s.evaluatesAlike(), s.unplanned()
	for _, a := range slices.Backward(s.history) {
		a.Observed = a.reported(unplanned)
		used := s.job.used(a)
		for _, m := range s.job.Measured(a) {
			if m.Model != nil && t.ran == nil {
				t = s.job.translator(used, m)
			}
			if alike {
				m.Plan.Evaluation = cmp.Or(m.Plan.Evaluation, m.Plan.MicroBatch)
			}
			seen = append(seen, m)
		}
	}
	priors := s.job.priors(s.history)
	if t.ran == nil && len(priors) > 0 {
		t = s.job.recalling(s.plan, priors[0])
	}
	t.alike = alike
	seen = append(seen, priors...)
	if len(seen) == 0 {
		return predictor{translator: t}, "no process of the job measured its memory"
	}
	var model memory.TrainedModel
	if i := slices.IndexFunc(seen, func(m memory.Measurement) bool { return m.Model != nil }); i >= 0 {
		model = *seen[i].Model
	}
	p := predictor{memory.NewPredictor(model, s.device(), seen), t}
	for _, a := range s.history {
		if a.Expected != nil {
			p.fit.Widen(p.memory(s.ran(a)), a.Expected.Bound, a.needed())
		}
	}
	return p, p.fit.Unknown()
}

// needed is the peak that an attempt's plan needed at least, in bytes of the device's allocator.
func (a Attempt) needed() (peak int64) {
	for i := range a.Measured {
		m := &a.Measured[i]
		failed, ranOut := m.WithoutRemedies()
		if !ranOut {
			failed = *m
		}
		peak = max(peak, highest(&failed), failed.Allocated+failed.Requested)
	}
	return peak
}

func (p predictor) predict(plan Plan) memory.Prediction { return p.fit.Predict(p.memory(plan)) }

func (p predictor) room(plan Plan) int64 { return p.fit.Room(p.memory(plan)) }

// unplanned returns what the processes of all attempts reported about knobs that their plan does not have.
// Attempts whose plan has a knob show nothing about those that ran without it: gpurun had changed it.
func (s *situation) unplanned() Plan {
	others := make([]Attempt, len(s.history))
	for i, o := range s.history {
		o.Observed = o.Observed.With(nil)
		maps.DeleteFunc(o.Observed, func(k Knob, _ Value) bool { _, planned := o.Plan[k]; return planned })
		others[i] = o
	}
	reported, _ := s.job.learn(others)
	return reported
}

// reported returns the plan that an attempt's processes reported, with what others reported of knobs that
// its plan does not have.
func (a Attempt) reported(unplanned Plan) Plan {
	reported := unplanned.With(nil)
	maps.DeleteFunc(reported, func(k Knob, _ Value) bool { _, planned := a.Plan[k]; return planned })
	return reported.With(a.Observed)
}

// device returns the memory of a rank: the inventory's, corrected by the failure and the
// measurements.
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

// A weighing has all plans that could come next, with their predictions.
type weighing struct {
	predictor
	plans      []Plan
	candidates []memory.PlanCandidate // of plans, by index
	skips      []Skip
}

// weigh predicts for all plans that could come next; nil with the reason if too little is known.
func (s *situation) weigh() (*weighing, string) {
	p, why := s.predictor()
	if why != "" {
		return nil, why
	}
	w := &weighing{predictor: p}
	origin := s.origin()
	w.plans, w.skips = s.candidates()
	w.candidates = make([]memory.PlanCandidate, len(w.plans))
	classes, caught, margin := s.job.classifier(s.all), s.catching(), s.margin()
	for i, p := range w.plans {
		w.candidates[i] = memory.PlanCandidate{Plan: w.memory(p), Group: s.group(p, origin, &classes),
			Order: order(p, origin)}
		if caught(p) {
			w.candidates[i].Margin = margin
		}
	}
	return w, ""
}

// An UnpredictedCode is the kind of reason why mode Predict fell back to the order of remedies.
type UnpredictedCode string

// The kinds of reasons.
const (
	UnpredictedHost       UnpredictedCode = "host"
	UnpredictedLeak       UnpredictedCode = "leak"
	UnpredictedLate       UnpredictedCode = "late"
	UnpredictedPhase      UnpredictedCode = "phase"
	UnpredictedFragmented UnpredictedCode = "fragmented"
	UnpredictedNothing    UnpredictedCode = "nothing-fits" // plans are predicted, and none fits
	UnpredictedUnknown    UnpredictedCode = "unknown"      // too little was measured, or is known of the job
)

// unpredictedWords are the words for codes; UnpredictedUnknown has others each time.
var unpredictedWords = map[UnpredictedCode]string{
	UnpredictedHost: "the host ran out of memory, not the device", UnpredictedLeak: "memory leaked",
	UnpredictedLate: "memory ran out late", UnpredictedPhase: "memory ran out in %s",
	UnpredictedFragmented: "the memory was fragmented",
	UnpredictedNothing:    nothingFits,
}

const nothingFits = "no plan is predicted to fit"

// unpredicted is no decision yet: the order of remedies follows.
func (c UnpredictedCode) unpredicted(args ...any) Decision {
	return Decision{UnpredictedCode: c, Unpredicted: fmt.Sprintf(unpredictedWords[c], args...)}
}

// predict chooses among the plans whose predicted bound fits. If too little is known, or nothing
// may fit, it returns the reason without a relaunch, and the caller follows the order of remedies
// as far as predictions do not exclude it.
func (s *situation) predict() Decision {
	if s.policy.Mode != Predict {
		return Decision{}
	}
	w, why := s.weigh()
	s.weighing = w
	switch d := s.diagnosis; {
	case why != "":
		return Decision{UnpredictedCode: UnpredictedUnknown, Unpredicted: why}
	case d.Cause != cause.CUDAOOM && !(s.inventory.Accelerator == "cpu" && d.Device == "cpu"):
		return UnpredictedHost.unpredicted()
	case d.Growth != nil:
		return UnpredictedLeak.unpredicted()
	case d.Late:
		return UnpredictedLate.unpredicted()
	case d.Phase == cause.Eval, d.Phase == cause.Rollout, d.Phase == cause.Save:
		return UnpredictedPhase.unpredicted(d.Phase)
	case d.Fragmented && s.defragmented():
		return UnpredictedFragmented.unpredicted()
	}
	choice := memory.Choose(w.fit, w.candidates, string(s.policy.Prefer))
	if choice.Index >= 0 {
		return s.chosen(choice)
	}
	if at := s.unmeasured(); at >= 0 {
		choice.Index, choice.Prediction = at, w.fit.Predict(w.candidates[at].Plan)
		choice.Rejected = slices.DeleteFunc(choice.Rejected, func(r memory.RejectedPlan) bool { return r.Index == at })
		d := s.chosen(choice)
		d.Reason += "; it is not predicted to fit, and tried once, since the prediction is not from measurements"
		return d
	}
	d := UnpredictedNothing.unpredicted()
	d.Outvoted = s.outvoted(choice)
	return d
}

// outvoted lists the plans that were not chosen.
func (s *situation) outvoted(choice memory.Choice) (plans []Outvoted) {
	for _, o := range choice.Rejected {
		other := s.weighing.plans[o.Index]
		plans = append(plans, Outvoted{Plan: s.without(other, s.plan.Changed(other).values()), Reason: o.Reason,
			Expected: o.Prediction})
	}
	return plans
}

// defragmented reports whether a change of the allocator alone is likely to be enough for
// fragmented memory. The prediction ignores the failure, which may only show the size of the
// fragments.
func (s *situation) defragmented() bool {
	look := *s
	look.diagnosis.Phase = cause.NoPhase
	riders, free := look.riders()
	if !slices.Contains(riders, RemedyAllocator) {
		return false
	}
	plan := s.weighing.memory(s.plan.With(Plan{Allocator: free[Allocator]}))
	p := s.weighing.fit.WithoutFailures().Predict(plan)
	return p.Unknown != "" || p.Mean <= s.weighing.fit.Room(plan)
}

// catching returns a function that reports whether processes would do a step with a plan again
// that runs out of memory. They would not if such an attempt has failed in this run.
func (s *situation) catching() func(Plan) bool {
	var remedies []Remedy
	if orders := AllowInPlace(s.policy, s.job, nil, nil, s.inventory.Accelerator); orders != nil &&
		!slices.ContainsFunc(s.history, Attempt.uncaught) {
		remedies = slices.DeleteFunc(orders.Remedies, func(r Remedy) bool { return s.inside[r.row().turns[0]] != "" })
	}
	return func(p Plan) bool {
		return slices.ContainsFunc(remedies, func(r Remedy) bool { return r.row().leavesInPlace(p) })
	}
}

// The margins on the expected peak of a plan that processes may correct in place.
const (
	marginUnproven = .02 // no prediction of this run was checked
	marginProven   = .01 // the least after one was
	marginMore     = .01 // above the largest error
)

// margin is the fraction that is added to the expected peak of a plan, learned from this run: above
// the largest fraction by which a plan needed more than was predicted before it ran.
func (s *situation) margin() float64 {
	margin, least := 0., marginUnproven
	for _, a := range s.history {
		if a.Expected == nil || a.Expected.Mean <= 0 || a.Expected.Evidence == "measured" {
			continue
		}
		if need := needed(a); need > 0 {
			least = marginProven
			margin = max(margin, float64(need)/float64(a.Expected.Mean)-1+marginMore)
		}
	}
	return max(margin, least)
}

// needed is the peak of an attempt, of which a plan that ran out of memory needed more; 0: not known.
func needed(a Attempt) int64 {
	need := max(peakOfSteps(a), atFailure(a))
	for _, m := range a.Measured {
		if m.RanOut != nil {
			need = max(need, m.RanOut.Allocated+m.RanOut.Requested)
		}
	}
	return need
}

// uncaught reports whether an attempt ran out of memory in a phase in which a step can be done
// again.
func (a Attempt) uncaught() bool {
	return a.Diagnosis.OutOfMemory() &&
		!slices.Contains([]cause.Phase{cause.Load, cause.Optimizer, cause.Eval, cause.Rollout, cause.Save}, a.Diagnosis.Phase)
}

// chosen is the decision for a choice.
func (s *situation) chosen(choice memory.Choice) Decision {
	w := s.weighing
	next := w.plans[choice.Index]
	changed := s.plan.Changed(next)
	remedies := needs(s.plan, next)
	barred := slices.ContainsFunc(remedies, func(r Remedy) bool { return slices.Contains(s.policy.Never, string(r)) })
	if len(remedies) == 0 || barred {
		// The plan gives back more than it takes, or the knob of a partner looks like another
		// remedy: then the remedies are those from the job as it is written.
		remedies = needs(s.origin(), next)
	}
	d := Decision{
		Relaunch: true, Remedies: remedies, Next: s.without(next, changed.values()),
		Changed: s.learned.With(s.last.Plan).Changed(next),
		Resume:  s.inventory.Checkpoint, Expected: &choice.Prediction, ByMean: choice.ByMean,
	}
	if d.Remedy = RemedyAllocator; len(remedies) > 0 {
		d.Remedy = remedies[len(remedies)-1]
	}
	d.Skipped = slices.DeleteFunc(w.skips, func(k Skip) bool {
		return k.Remedy == d.Remedy || slices.Contains(remedies, k.Remedy)
	})
	d.Riders = slices.DeleteFunc(slices.Clone(remedies), func(r Remedy) bool { return !r.row().free || r == d.Remedy })
	d.Outvoted = s.outvoted(choice)
	room := w.fit.Capacity(w.candidates[choice.Index].Plan)
	predicted := "predicted " + span(choice.Prediction, room)
	if room > 0 && choice.Prediction.Mean > room {
		predicted = "no plan is likely to fit, and this one may come closest: " + predicted
	}
	d.Reason = s.attempt("%s%s → %s%s; %s", s.diagnosis.Sentence(), s.lost(), changed, s.kept(changed), predicted)
	if d.ByMean {
		d.Margin = w.candidates[choice.Index].Margin
		d.Reason += fmt.Sprintf(", by its expected peak and %.0f %%: a step that needs more would be done again in place",
			100*d.Margin)
	}
	if len(d.Outvoted) > 0 {
		second := d.Outvoted[0]
		d.Reason += fmt.Sprintf("; the next best, %s, was not chosen: %s", s.plan.Changed(second.Plan), second.Reason)
	}
	return d
}

// expected returns the predicted need of a plan from the order of remedies; nil if there is no
// prediction.
func (s *situation) expected(next Plan) *memory.Prediction {
	if s.weighing == nil {
		return nil
	}
	p := s.weighing.predict(next)
	if p.Unknown != "" {
		return nil
	}
	return &p
}

// A Candidate is a plan that could come next, with its predicted need.
type Candidate struct {
	Plan Plan `json:"plan"`
	// Training is the effect of the plan on the training.
	Training Training `json:"training"`
	// Peak is the mean and the bound in bytes of the device's allocator, Seconds the time of
	// an optimizer step; 0: not known. Timed: steps of this job were timed. Otherwise Seconds only
	// shows which plan is faster.
	Peak    [2]int64 `json:"peak_bytes"`
	Seconds float64  `json:"seconds,omitempty"`
	Timed   bool     `json:"timed,omitempty"`
	// Fits: the bound fits the device, the host and NVMe. Reason is the same as a sentence.
	Fits   bool   `json:"fits"`
	Reason string `json:"reason"`

	rated memory.PlanCandidate
}

// Candidates weighs the plans of a job that is not running by the measurements of earlier runs.
// Plans that fit come first, in the order in which they would be taken. It returns none if
// nothing was measured.
func Candidates(p Policy, j Job, plan Plan, inv Inventory) []Candidate {
	s := &situation{policy: p, job: j, inventory: inv, plan: plan, history: []Attempt{{Plan: plan}}}
	s.look(s.history)
	s.all = nil // it has not run
	w, why := s.weigh()
	if why != "" {
		return nil
	}
	classes := j.classifier(nil)
	all := []Candidate{}
	for i, c := range append(w.candidates, memory.PlanCandidate{Plan: w.memory(plan)}) {
		shown := plan
		if i < len(w.plans) {
			shown = w.plans[i]
		}
		expected := w.fit.Predict(c.Plan)
		if expected.Unknown != "" {
			continue
		}
		class, _ := classes.class(shown)
		one := Candidate{shown, class, [2]int64{expected.Mean, expected.Bound}, expected.Seconds, expected.Timed, true,
			"fits", c}
		switch {
		case expected.Bound > w.fit.Room(c.Plan):
			one.Fits, one.Reason = false, "does not fit in "+GiB(w.fit.Capacity(c.Plan))
		case !w.fit.FitsHost(&expected):
			one.Fits, one.Reason = false, "does not fit in the host's memory"
			if expected.NVMe > 0 {
				one.Reason += ", or on NVMe"
			}
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, compareCandidates)
	return all
}

func compareCandidates(a, b Candidate) int {
	if a.Fits != b.Fits {
		return map[bool]int{true: -1, false: 1}[a.Fits]
	}
	return cmp.Or(cmp.Compare(a.rated.Group, b.rated.Group), cmp.Compare(a.Seconds, b.Seconds),
		cmp.Compare(a.rated.Order, b.rated.Order))
}

// span formats a prediction for a sentence: "36.1–37.8 of 40.0 GiB".
func span(p memory.Prediction, room int64) string { return memory.Of(p.Mean, p.Bound, room) }

// Interval is a mean and a bound: "36.1–37.8 GiB".
func Interval(mean, bound int64) string { return memory.Of(mean, bound, 0) }
