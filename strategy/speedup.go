package strategy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/strategy/memory"
)

// An Speedup reports whether a run speeds up, that is, continues with a faster plan.
type Speedup struct {
	// Decision stops the attempt and continues with the faster plan; zero: not now.
	Decision Decision
	// Proposal describes the faster plan that would fit; empty if none would.
	Proposal string
	// Refused is the reason why the plan is kept. Later: the attempt may still meet the
	// condition.
	Refused string
	Later   bool
	// Again is when to look again without a checkpoint: after the attempt's steps have taken so
	// long in all; 0: not before the next checkpoint.
	Again time.Duration
}

// A faster is a faster plan that is likely to fit, by the measurements of the current one.
type faster struct {
	plan     Plan
	expected memory.Prediction
	gain     float64 // how many times as fast it is
	// peak is the measured peak of the current plan, room the memory that it had, in bytes of the
	// device's allocator.
	peak, room int64
}

const (
	// worthLeast is the least time to save: a relaunch is worth no less.
	worthLeast = time.Minute
	// mostRepeated is the longest training that a run without a checkpoint does again for a faster
	// plan.
	mostRepeated = 5 * time.Minute
	// lastHour is the time before the deadline in which a plan that works is kept.
	lastHour = time.Hour
)

// Speedup decides whether an attempt is stopped for a faster plan, at most once in a run. now is
// the running attempt, which follows those of the history. The inventory has the newest
// checkpoint, the time and the deadline. Numerics and data stay the same, and the time saved has
// to be worth the relaunch.
func FindSpeedup(p Policy, j Job, history []Attempt, now Attempt, inv Inventory) Speedup {
	s := &situation{policy: p, job: j, inventory: inv}
	s.look(ran(append(slices.Clone(history), now)))
	return s.ascend(s.scouted)
}

// A scout returns the fastest of some plans that is likely to fit and worth a change; certain: its
// bound fits.
type scout func(plans []Plan, certain bool) (faster, bool)

// ascend is FindSpeedup for the last attempt of the situation. If that has ended, it reports why its
// plan was kept.
func (s *situation) ascend(find scout) Speedup {
	const enough = 3 // steps: the first two are unlike the rest
	unmeasured := func(m memory.Measurement) bool { return m.Failed != "" || m.Steps < enough }
	if len(s.last.Measured) == 0 || slices.ContainsFunc(s.last.Measured, unmeasured) {
		return Speedup{Refused: "the first steps have not been measured", Later: true}
	}
	if d, slower := s.slowerThanBefore(); slower {
		return Speedup{Decision: d}
	}
	plans := s.higher()
	best, ok := find(plans, false)
	if !ok {
		return Speedup{Refused: "no faster plan is likely to fit"}
	}
	a := Speedup{Proposal: s.proposal(plans, find)}
	changed := s.plan.Changed(best.plan)
	over := !s.last.Ended.IsZero()
	if a.Refused = s.last.Kept; over && a.Refused != "" {
		return a
	}
	if a.Refused, a.Later = s.keeps(best); a.Refused != "" {
		if a.Later && s.startsOver() {
			a.Again = s.paysAfter(best.gain)
		}
		return a
	}
	if over {
		a.Refused = "the attempt had ended before"
		return a
	}
	at, resume := s.last.Stepping, s.inventory.Checkpoint
	level := ""
	if best.room > 0 {
		level = ", peak " + memory.Of(best.peak, best.peak, best.room)
	}
	from := "the beginning"
	if resume != "" {
		from = path.Base(resume)
	}
	a.Decision = Decision{
		Relaunch: true, Rule: "climb", Next: s.without(best.plan, changed.values()), Changed: changed, Resume: resume,
		Expected: &best.expected,
		Reason: s.attempt("step %s%s → %s%s, about %.1f times as fast, %s; from %s",
			at.place(), level, changed, s.kept(changed), best.gain, s.gains(best), from),
	}
	return a
}

// place is the number of the last step, and of all: "400 of 20000".
func (s Stepping) place() string {
	if s.Total < max(s.Last, 1) {
		return fmt.Sprint(s.Last)
	}
	return fmt.Sprintf("%d of %d", s.Last, s.Total)
}

// gains says what a faster plan saves.
func (s *situation) gains(f faster) string {
	saved := about(s.payoff(f.gain))
	if _, known := s.left(); known {
		return "saves about " + saved
	}
	return fmt.Sprintf("saves about %s if the job runs as long again", saved)
}

// slowerThanBefore returns to the plan before the speed-up where the plan that was predicted to be
// faster is the slower one, and the relaunch pays.
func (s *situation) slowerThanBefore() (Decision, bool) {
	from := s.spedUpFrom()
	if from < 0 || !s.last.Ended.IsZero() || s.last.Speedup != nil ||
		slices.ContainsFunc(s.history[:from], func(a Attempt) bool { return a.Speedup != nil }) {
		return Decision{}, false
	}
	before := s.history[from]
	was, is := before.Stepping.each(), s.last.Stepping.each()
	written := s.inventory.Checkpoint != "" && s.inventory.CheckpointWritten.After(s.last.Started) &&
		s.losesData(faster{plan: before.Plan}) == ""
	early := s.inventory.Checkpoint == "" && s.last.Stepping.For.Duration() <= mostRepeated
	if was <= 0 || is <= was || !written && !early || s.payoff(float64(is)/float64(was)) < worthLeast {
		return Decision{}, false
	}
	changed := s.last.Plan.Changed(before.Plan)
	return Decision{
		Relaunch: true, Rule: "climb", Next: before.Plan, Expected: before.Expected, Changed: changed, Resume: s.inventory.Checkpoint,
		Reason: s.attempt("a step takes %s, and took %s before → back to the plan of attempt %d: %s", rounded(is), rounded(was), before.N, changed),
	}, true
}

// each is how long a step took; 0: not known.
func (s Stepping) each() time.Duration {
	if s.Steps < 2 {
		return 0
	}
	return time.Duration(float64(s.For) / float64(s.Steps-1))
}

// rounded is a duration to three digits.
func rounded(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// proposal describes the fastest plan whose bound fits; empty if there is none. A need that does
// not follow from measurements may be another.
func (s *situation) proposal(plans []Plan, find scout) string {
	best, ok := find(plans, true)
	if !ok {
		return ""
	}
	fits := "would fit"
	if !best.expected.Measured() {
		fits = "may fit (its need was not measured)"
	}
	return fmt.Sprintf("%s %s and be about %.1f times as fast", s.plan.Changed(best.plan).wanted(), fits, best.gain)
}

// keeps returns why a run keeps its plan: first the reasons of the policy and the job, last those
// that only take time. later: the attempt may still meet the condition.
func (s *situation) keeps(f faster) (why string, later bool) {
	at := s.last.Stepping
	resumed := func(a Attempt) bool { return a.From != "" && !a.Fresh && a.Stepping.Steps > 0 }
	deadline := s.inventory.Deadline
	switch {
	case !s.policy.Speedup:
		return "recovery.climb = false", false
	case s.policy.Mode != Predict:
		return fmt.Sprintf("recovery.mode = %q", s.policy.Mode), false
	case slices.ContainsFunc(s.history, func(a Attempt) bool { return a.Speedup != nil }):
		return "a run speeds up once", false
	}
	early := s.startsOver()
	if why := s.losesData(f); why != "" && !early {
		return why, false
	}
	switch {
	case !early && !s.job.Resumption.Exact && !slices.ContainsFunc(s.history, resumed):
		return "no attempt of this run has resumed from a checkpoint and made a step", false
	case at.Steps < 2 || at.For <= 0:
		return "no step has been timed", true
	case !deadline.IsZero() && deadline.Sub(s.inventory.At) < lastHour:
		return "the time here ends within the hour", false
	}
	if !early && (s.inventory.Checkpoint == "" || !s.inventory.CheckpointWritten.After(s.last.Started)) {
		return "the attempt has written no complete checkpoint", true
	}
	if s.relaunchCost() <= 0 {
		return "the cost of a relaunch is not known", false
	}
	if saved := s.payoff(f.gain); saved < worthLeast {
		_, known := s.left()
		return s.notWorthIt(saved, known), !known
	}
	return "", false
}

// startsOver reports whether a run whose steps were done again in place has trained so briefly
// that it can start again from the beginning, where it has no checkpoint.
func (s *situation) startsOver() bool {
	most := mostRepeated
	if bound := s.policy.RestartFromZero.Duration(); bound > 0 {
		most = min(most, bound)
	}
	return len(s.last.InPlace) > 0 && s.inventory.Checkpoint == "" && s.last.From == "" &&
		s.last.Stepping.For.Duration() <= most
}

// losesData returns why a resume with this change may not keep the order of the data.
func (s *situation) losesData(f faster) string {
	r := s.job.Resumption
	switch {
	case r.Data != "":
		return "on resuming, " + r.Data
	case r.Own && !r.Exact:
		return `it is not known whether the job continues with the next sample when it resumes: resume.data = "kept" confirms it`
	}
	for _, k := range Knobs {
		if shift := r.Shifts[k]; shift != "" && f.plan[k] != s.plan[k] {
			return "on resuming, " + shift
		}
	}
	return s.job.unreadable(cmp.Or(s.inventory.Checkpoint, "of this run"), s.plan, f.plan)
}

func (s *situation) notWorthIt(saved time.Duration, known bool) string {
	until := "until the end"
	if !known {
		until = "in the time that the job has run"
	}
	if saved <= 0 {
		return fmt.Sprintf("it would save nothing %s: a relaunch costs %s until the first step", until,
			s.relaunchCost().Round(time.Second))
	}
	return fmt.Sprintf("it would save %s %s, with the relaunch, and %s at least are worth one", saved.Round(time.Second),
		until, worthLeast)
}

// left is how long the remaining steps take with the present plan. Where the job's number of steps
// is not known, it is expected to go on for as long as it has run.
func (s *situation) left() (time.Duration, bool) {
	at := s.last.Stepping
	if at.Total <= 0 || at.Last > at.Total {
		return at.For.Duration(), false
	}
	return at.each() * time.Duration(at.Total-at.Last), true
}

// payoff is the time that a relaunch with a plan that is gain times as fast saves: the remaining
// steps, and those since the checkpoint once more, are faster; the relaunch costs its start.
func (s *situation) payoff(gain float64) time.Duration {
	left, _ := s.left()
	again := s.last.Stepping.For.Duration()
	if s.inventory.Checkpoint != "" {
		again = max(s.inventory.At.Sub(s.inventory.CheckpointWritten), 0)
	}
	return left - s.relaunchCost() - time.Duration(float64(left+again)/gain)
}

// paysAfter is how long the steps have to have taken in all until a relaunch from the beginning
// saves enough, if the job goes on for as long as it has run; 0: it never does.
func (s *situation) paysAfter(gain float64) time.Duration {
	if _, known := s.left(); known || gain <= 2 {
		return 0
	}
	return time.Duration(float64(s.relaunchCost()+worthLeast) / (1 - 2/gain))
}

// relaunchCost is the longest time from the start of an attempt of this run to its first step; 0:
// no first step was seen.
func (s *situation) relaunchCost() time.Duration {
	longest := Seconds(0)
	for _, a := range s.history {
		longest = max(longest, a.Stepping.Before)
	}
	return longest.Duration()
}

// summary is the proposal with the reason why it was not taken; empty if there is no proposal.
func (a Speedup) summary() string {
	if a.Proposal == "" || a.Refused == "" {
		return ""
	}
	return a.Proposal + "; gpurun did not switch to it, since " + a.Refused
}

// wanted lists the new values: "micro batch 8, checkpointing none". The accumulation follows
// from the micro batch.
func (c Changes) wanted() string {
	return strings.Join(c.each(func(k Knob, _, to Value) string {
		if k == GradientAccumulationSteps && len(c) > 1 {
			return ""
		}
		return fmt.Sprintf("%s %s", k.Short(), to)
	}), ", ")
}

// about is a rough time: "40 min", "3 h".
func about(d time.Duration) string {
	if d < 90*time.Minute {
		return fmt.Sprintf("%.0f min", math.Max(d.Minutes(), 0))
	}
	return fmt.Sprintf("%.0f h", d.Hours())
}

// higher lists the plans that may be faster and compute the same: with a larger micro batch, less
// checkpointing or less offload, or more of one for less of another.
func (s *situation) higher() []Plan {
	plans := []Plan{s.plan}
	for _, k := range []Knob{ActivationCheckpointing, ForwardParts, LossParts, OffloadActivations, OffloadOptimizer,
		OffloadParam} {
		for _, p := range slices.Clone(plans) {
			for _, v := range s.others(k) {
				plans = append(plans, p.With(Plan{k: v}))
			}
		}
	}
	batches := s.batches()
	for _, p := range slices.Clone(plans) {
		for _, b := range batches {
			plans = append(plans, p.With(b))
		}
	}
	failed, classes, again := s.ranOut(), s.job.classifier(s.all), len(s.last.InPlace) > 0
	if again {
		plans = append(plans, s.plain(&classes)...)
	}
	now, _ := classes.class(s.plan)
	return slices.DeleteFunc(plans[1:], func(p Plan) bool {
		class, _ := classes.class(p)
		return hopeless(p, failed) || s.failedWith(p) || class.Weaker(now) && (again || s.policy.Prefer != Speed)
	})
}

// plain lists the plans of all remedies that offload nothing and keep the numerics: after remedies
// in place, a plan that needs less memory may be the faster one.
func (s *situation) plain(classes *classifier) []Plan {
	plans, _ := s.candidates()
	origin := s.origin()
	return slices.DeleteFunc(plans, func(p Plan) bool {
		return s.group(p, origin, classes) > groupPlain+1 || p[Precision] != s.plan[Precision]
	})
}

// others lists the other values of a knob that the policy and the job allow; for an offload only
// "none".
func (s *situation) others(k Knob) []Value {
	if s.cannot(k) != "" {
		return nil
	}
	var values []Value
	for _, v := range k.words() {
		barred := v != "none" || slices.ContainsFunc(barring[k],
			func(name string) bool { return slices.Contains(s.policy.Never, name) })
		if remedy := turnedBack[k]; remedy != "" {
			barred = s.refused(remedy, Plan{k: v}) != ""
		}
		if v != s.current(k) && !barred && s.job.Knobs[k].Allows(v) {
			values = append(values, v)
		}
	}
	return values
}

// turnedBack are the knobs that are also set to other values than the first.
var turnedBack = map[Knob]Remedy{ActivationCheckpointing: RemedyCheckpointing, ForwardParts: RemedySplit,
	LossParts: RemedyLossParts}

// barring lists the words of recovery.never that forbid to change an offload: the knob, and the
// remedies that make or undo it.
var barring = map[Knob][]string{
	OffloadActivations: {string(OffloadActivations), string(RemedyOffloadActivations)},
	OffloadOptimizer:   {string(OffloadOptimizer), string(RemedyUndoOffload), string(RemedyOffloadOptimizer)},
	OffloadParam:       {string(OffloadParam), string(RemedyUndoOffload), string(RemedyOffloadParam)},
}

// batches lists the other micro batches with the same global batch, and their accumulation.
func (s *situation) batches() (plans []Plan) {
	now, known := batchOf(s.plan, s.job)
	if !known || s.cannot(MicroBatchSize) != "" || now.scope != ScopeDerived && s.cannot(GradientAccumulationSteps) != "" {
		return nil
	}
	for _, next := range now.split() {
		change := next.plan()
		allowed := true
		for k, v := range change {
			allowed = allowed && s.job.Knobs[k].Allows(v)
		}
		if next.micro != now.micro && allowed && s.refused(RemedyMicroBatch, change) == "" {
			plans = append(plans, change)
		}
	}
	return plans
}

// failedWith reports whether an attempt with a plan has failed, for any reason.
func (s *situation) failedWith(p Plan) bool {
	return slices.ContainsFunc(s.history, func(a Attempt) bool {
		return a.Diagnosis.Fatal && len(s.ran(a).Changed(p)) == 0
	})
}

// scouted is the scout that uses the measurements of the run's attempts.
func (s *situation) scouted(plans []Plan, certain bool) (faster, bool) {
	p, why := s.predictor()
	if why != "" {
		return faster{}, false
	}
	measured := s.job.Measured(s.last)[0]
	now := p.memory(s.ran(s.last).With(s.last.inPlace(measured)))
	candidates := make([]memory.PlanCandidate, len(plans))
	for i, plan := range plans {
		candidates[i] = memory.PlanCandidate{Plan: p.memory(plan)}
	}
	best, saved := memory.FindSpeedup(p.fit, now, measured, candidates, certain)
	if best < 0 || saved >= 1 {
		return faster{}, false
	}
	return faster{
		plan: plans[best], expected: p.fit.Predict(candidates[best].Plan), gain: 1 / (1 - saved),
		peak: s.last.Measured[0].Peak, room: p.fit.Capacity(now),
	}, true
}

// speedup carries out the speed-up that was decided while the attempt ran.
func speedup(s *situation) Decision {
	d := *s.last.Speedup
	from := "the beginning"
	if d.Resume = cmp.Or(s.inventory.Checkpoint, d.Resume); d.Resume != "" {
		from = path.Base(d.Resume)
	}
	d.Reason = s.attempt("stopped for a faster plan → %s, from %s", d.Changed, from)
	return d
}

// speedups returns for each attempt of the history the attempt that was stopped for its plan; -1: none, it
// does not run with the plan of a speed-up.
func (s *situation) speedups() []int {
	all, from := make([]int, len(s.history)), -1
	for i := range s.history {
		if i > 0 {
			switch before := &s.history[i-1]; {
			case before.Speedup != nil:
				from = i - 1
			case !maps.Equal(before.Plan, s.history[i].Plan):
				from = -1
			}
		}
		all[i] = -1
		if from >= 0 && maps.Equal(s.history[from].Speedup.Next, s.history[i].Plan) {
			all[i] = from
		}
	}
	return all
}

// spedUpFrom returns the attempt that was stopped for the plan of the last one; -1: none.
func (s *situation) spedUpFrom() int {
	all := s.speedups()
	return all[len(all)-1]
}

// speedupFailed reports whether the faster plan ran out of memory, did not take effect, could not
// be started, or failed sooner than the one before and with a new error.
func (s *situation) speedupFailed() bool {
	if s.spedUpFrom() < 0 || s.last.Speedup != nil || s.last.Stuck != nil {
		return false
	}
	if u := s.last.Unstarted; u != nil {
		return !u.Wait && !u.RunDir
	}
	return s.notTaken() || s.diagnosis.Fatal && (s.outOfMemory() || s.failsSooner())
}

// speedupBack returns to the plan that trained, from the newest checkpoint.
func speedupBack(s *situation) Decision {
	from := s.history[s.spedUpFrom()]
	changed := s.last.Plan.Changed(from.Plan)
	return Decision{
		Relaunch: true, Next: from.Plan, Expected: from.Expected, Changed: changed, Resume: s.inventory.Checkpoint,
		Reason: s.attempt("%s%s → back to the plan of attempt %d, which trained: %s", s.diagnosis.Sentence(), s.lost(),
			from.N, changed),
	}
}
