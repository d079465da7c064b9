package strategy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// Ineffective lists the changes that had no effect: knobs that a plan changes and that the job
// reports with another value. Each has the planned value, then the one in use.
func (j Job) Ineffective(plan, observed Plan) Changes {
	return j.differing(plan, observed, func(k Knob) bool { return plan[k] != j.Written[k] })
}

// Misread lists the knobs that a plan does not change and that the job reports with another
// value. Each has the value that was read, then the one in use.
func (j Job) Misread(plan, observed Plan) Changes {
	return j.differing(plan, observed, func(k Knob) bool { return plan[k] == j.Written[k] })
}

func (j Job) differing(plan, observed Plan, of func(Knob) bool) Changes {
	var found Changes
	for k, used := range observed {
		if planned, known := plan[k]; known && used != planned && of(k) {
			if found == nil {
				found = Changes{}
			}
			found[k] = [2]Value{planned, used}
		}
	}
	return found
}

// BatchBroken reports whether a change that had no effect leaves the job with a global batch that
// differs from the job as it is written: it would train something else.
func (j Job) BatchBroken(plan, observed Plan) bool {
	planned, known := batchOf(plan, j)
	real, also := batchOf(j.effective(plan, observed), j)
	return known && also && planned.scope != ScopeDerived &&
		planned.micro*planned.accumulation != real.micro*real.accumulation
}

// effective returns a plan with the values in use for the changes that had no effect.
func (j Job) effective(plan, observed Plan) Plan { return plan.Using(j.Ineffective(plan, observed)) }

// used returns the plan that an attempt really ran with, and the values that its processes
// reported for knobs that the plan does not have.
func (j Job) used(a Attempt) Plan { return a.Observed.With(j.effective(a.Plan, a.Observed)) }

// ran is used, with the reports of other attempts' processes.
func (s *situation) ran(a Attempt) Plan { return s.learned.With(s.job.used(a)) }

// base returns the plan from which the next one is made: the one that the attempt ran with. If
// only half of a change to the batch took effect, it has the job's own batch.
func (j Job) base(a Attempt) Plan {
	base := j.effective(a.Plan, a.Observed)
	if j.BatchBroken(a.Plan, a.Observed) {
		j.restoreBatch(base)
	}
	return base
}

// restoreBatch gives a plan the job's own batch.
func (j Job) restoreBatch(p Plan) {
	for _, k := range []Knob{MicroBatchSize, GradientAccumulationSteps} {
		if v, known := j.Written[k]; known {
			p[k] = v
		} else if len(j.Knobs[k].Likely) > 0 {
			delete(p, k)
		}
	}
}

// doubts returns for each knob why it must not be changed: an attempt has shown that it cannot
// be, or that it was misread.
func (j Job) doubts(history []Attempt) map[Knob]string {
	doubts := map[Knob]string{}
	for _, a := range history {
		for k, pair := range j.Ineffective(a.Plan, a.Observed) {
			if len(j.Knobs[k].Likely) > 0 {
				continue // another one may: see confirmed
			}
			doubts[k] = fmt.Sprintf("%s %s did not take effect in attempt %d: the job used %s", k.Short(), pair[0], a.N, pair[1])
			if reason := a.Refused[k]; reason != "" {
				doubts[k] += " (" + reason + ")"
			}
		}
		if why := a.Refused[Allocator]; why != "" && doubts[Allocator] == "" {
			doubts[Allocator] = why
		}
		if k, why := j.gaveUp(a); why != "" {
			doubts[k] = why
		}
		for k, pair := range j.Misread(a.Plan, a.Observed) {
			doubts[k] = fmt.Sprintf("%s was read as %s, and the job reported in attempt %d that it used %s", k.Short(), pair[0],
				a.N, pair[1])
		}
	}
	return doubts
}

// gaveUp returns why a process ended itself, and the knob: recomputed blocks gave another result
// than before, or the job wrote to logits that the loss reads again, so gradients would have been
// wrong. Empty if it did not.
func (j Job) gaveUp(a Attempt) (Knob, string) {
	if a.Diagnosis.Cause != cause.UserError && a.Diagnosis.Cause != cause.Unknown {
		return "", ""
	}
	for _, k := range []Knob{ActivationCheckpointing, ForwardParts, LossParts} {
		if v := a.Plan[k]; v != "" && v != k.words()[0] && j.Knobs[k].By == ByHook && a.Refused[k] != "" {
			return k, a.Refused[k]
		}
	}
	return "", ""
}

// notTaken reports whether the attempt ran with another plan than its own, and shows nothing
// about its own.
func (s *situation) notTaken() bool {
	_, why := s.job.gaveUp(s.last)
	return len(s.history) > 1 && (s.batchNotTaken() || why != "")
}

// batchNotTaken reports whether the attempt ended, or was stopped, because a change of its batch
// had no effect.
func (s *situation) batchNotTaken() bool {
	return s.last.Halted || s.diagnosis.Fatal && s.job.BatchBroken(s.last.Plan, s.last.Observed)
}

// decideAgain repeats the decision about the attempt before the last, without the knobs that
// cannot be changed.
func decideAgain(s *situation) Decision {
	before := *s
	before.look(s.history[:len(s.history)-1])
	d := before.decide()
	if d.Relaunch {
		d.Changed = s.last.Plan.Changed(d.Next)
	}
	why := cmp.Or(s.job.Ineffective(s.last.Plan, s.last.Observed).Lost(), undividable(s.all))
	if lost := s.job.Unconfirmed(s.last.Plan, s.last.Observed); why == "" && s.last.Halted && len(lost) > 0 {
		planned := lost.each(func(k Knob, planned, _ Value) string { return fmt.Sprintf("%s %s", k.Short(), planned) })
		why = "the process did not confirm " + strings.Join(planned, " and ")
	}
	if u := s.last.Unstarted; u != nil {
		why = "could not be started: " + u.Reason
	}
	_, gaveUp := s.job.gaveUp(s.last)
	d.Reason = s.attempt("%s; %s", cmp.Or(why, gaveUp), d.Reason)
	return d
}

// learn collects the reported values of knobs that no plan has, the newest report of each, and
// the reasons why the hook cannot change a knob in the process.
func (j Job) learn(history []Attempt) (settings Plan, refused map[Knob]string) {
	settings, refused = Plan{}, map[Knob]string{}
	asked := false
	for _, a := range history {
		maps.Copy(settings, a.Observed)
		maps.Copy(refused, a.Refused)
		asked = asked || a.Asked
	}
	// A job that ran out in its first step has not accumulated yet.
	if k := GradientAccumulationSteps; settings[k] == "" && len(j.Knobs[k].Likely) > 0 {
		if of, _, why := j.confirmed(k, history); why == "" {
			settings[k] = of.value(history)
		}
	}
	// A process reports these only while they are on.
	for _, k := range []Knob{ActivationCheckpointing, ForwardParts, OffloadActivations, OffloadOptimizer, LossParts} {
		if asked && j.Knobs[k].By == ByHook && settings[k] == "" && refused[k] == "" {
			settings[k] = k.words()[0]
		}
	}
	return settings, refused
}

// without removes from a plan the values that processes reported and gpurun does not set: those
// that neither the last attempt's plan nor the changes have.
func (s *situation) without(next Plan, changes Plan) Plan {
	next = next.With(nil)
	maps.DeleteFunc(next, func(k Knob, _ Value) bool {
		_, had := s.last.Plan[k]
		_, changed := changes[k]
		return !had && !changed
	})
	return next
}

// unconfirmed returns why a knob that only names suggest must not be changed; empty if a process has confirmed one of
// the settings.
func (s *situation) unconfirmed(k Knob) string {
	likely := s.job.Knobs[k].Likely
	switch {
	case len(likely) == 0 || s.job.Knobs[k].By == ByHook:
		return ""
	case len(s.history) == 0:
		var names []string
		for _, one := range likely {
			names = append(names, one.Name)
		}
		return fmt.Sprintf("only a process can confirm %s, likely by name", strings.Join(names, " or "))
	}
	_, _, why := s.job.confirmed(k, s.all)
	return why
}

// Unproven reports whether a plan changes a batch by a setting that only its name suggests: the
// processes have to confirm it before they train.
func (j Job) Unproven(plan Plan) bool {
	return slices.ContainsFunc([]Knob{MicroBatchSize, GradientAccumulationSteps}, func(k Knob) bool {
		v, set := plan[k]
		return set && v != j.Written[k] && len(j.Knobs[k].Likely) > 0
	})
}

// Redivides reports whether a plan accumulates over another number of micro batches than the job
// as it is written: its processes have to confirm the scale of the loss before they train.
func (j Job) Redivides(plan Plan) bool {
	v, set := plan[GradientAccumulationSteps]
	return set && v != cmp.Or(j.Written[GradientAccumulationSteps], "1")
}

// unturnable returns why the hook cannot change a knob in the process; empty if it can, or no
// process has run yet.
func (s *situation) unturnable(k Knob) string {
	if len(s.history) > 0 && s.inside[k] == "" && s.plan[k] == "" {
		bare := func(m memory.Measurement) bool { return m.Failed != "" && m.Model == nil }
		if all := s.last.Measured; len(all) > 0 && slices.IndexFunc(all,
			func(m memory.Measurement) bool { return !bare(m) }) < 0 {
			return "no nn.Module had been called in the job's process when memory ran out, and gpurun changes the calls of modules only"
		}
		return "the job's process did not report whether it can be changed there"
	}
	return s.inside[k]
}

// current is the value of a knob. Before the first attempt, a value that the process will report
// is assumed to be the most common one.
func (s *situation) current(k Knob) Value {
	r := s.job.Knobs[k]
	if v := s.plan[k]; v != "" || len(s.history) > 0 || len(k.words()) == 0 || r.By != ByHook && !r.Reported ||
		r.Doubtful {
		return v
	}
	return k.words()[0]
}
