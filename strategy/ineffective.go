package strategy

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/gpurun/gpurun/strategy/cause"
)

// Ineffective lists the changes that did not take effect: knobs that a plan has with
// another value than the job as it is written, and that the job observed to use with
// a third, or the old one. Each has the value that was asked for, then the one in use.
func (j Job) Ineffective(plan, observed Plan) Changes {
	return j.differing(plan, observed, func(k Knob) bool { return plan[k] != j.Written[k] })
}

// Misread lists the knobs that nobody changed and that the job observed to use with
// another value than the one that was read. Each has the value that was read, then
// the one in use.
func (j Job) Misread(plan, observed Plan) Changes {
	return j.differing(plan, observed, func(k Knob) bool { return plan[k] == j.Written[k] })
}

func (j Job) differing(plan, observed Plan, of func(Knob) bool) Changes {
	var found Changes
	for k, used := range observed {
		if asked, known := plan[k]; known && used != asked && of(k) {
			if found == nil {
				found = Changes{}
			}
			found[k] = [2]Value{asked, used}
		}
	}
	return found
}

// BatchBroken reports whether a change that did not take effect leaves the job with
// another global batch than it has as it is written: it would train something else.
func (j Job) BatchBroken(plan, observed Plan) bool {
	used := plan.Using(j.Ineffective(plan, observed))
	asked, known := batchOf(plan, j)
	real, also := batchOf(used, j)
	return known && also && asked.scope != ScopeDerived && asked.micro*asked.accumulation != real.micro*real.accumulation
}

// used is the plan that an attempt really ran with, with what its processes told of
// knobs that the plan does not have.
func (j Job) used(a Attempt) Plan {
	return a.Observed.With(a.Plan.Using(j.Ineffective(a.Plan, a.Observed)))
}

// base is the plan that the next one starts from: what the attempt ran with, but
// with the job's own batch, since half of a change to it must not stay.
func (j Job) base(a Attempt) Plan {
	base := a.Plan.Using(j.Ineffective(a.Plan, a.Observed))
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
		}
	}
}

// doubts says for each knob why it is left alone: an attempt has shown that it
// cannot be turned, or is not what it was taken for.
func (j Job) doubts(history []Attempt) map[Knob]string {
	doubts := map[Knob]string{}
	for _, a := range history {
		for k, pair := range j.Ineffective(a.Plan, a.Observed) {
			doubts[k] = fmt.Sprintf("%s %s did not take effect in attempt %d: the job used %s", k.Short(), pair[0], a.N, pair[1])
			if reason := a.Refused[k]; reason != "" {
				doubts[k] += " (" + reason + ")"
			}
		}
		if why := j.gaveUp(a); why != "" {
			doubts[ActivationCheckpointing] = why
		}
		for k, pair := range j.Misread(a.Plan, a.Observed) {
			doubts[k] = fmt.Sprintf("%s was read as %s, and the job said in attempt %d that it used %s", k.Short(), pair[0], a.N, pair[1])
		}
	}
	return doubts
}

// Lost says which changes did not take effect: "micro batch 4 did not take effect,
// the job uses 8"; empty for none.
func (c Changes) Lost() string {
	var words []string
	for _, k := range Knobs {
		if pair, ok := c[k]; ok {
			words = append(words, fmt.Sprintf("%s %s did not take effect, the job uses %s", k.Short(), pair[0], pair[1]))
		}
	}
	return strings.Join(words, "; ")
}

// Names lists the knobs that are changed, as in a sentence.
func (c Changes) Names() string {
	var names []string
	for _, k := range Knobs {
		if _, ok := c[k]; ok {
			names = append(names, k.Short())
		}
	}
	return strings.Join(names, " and ")
}

// lost is what did not take effect in an attempt, as the beginning of a sentence
// that goes on.
func (s *situation) lost() string {
	if words := s.job.Ineffective(s.last.Plan, s.last.Observed).Lost(); words != "" {
		return "; " + words
	}
	return ""
}

// notTaken: the attempt says nothing about its plan, since it ran with another one.
func (s *situation) notTaken() bool {
	return len(s.history) > 1 && (s.last.Halted || s.diagnosis.Fatal && s.job.BatchBroken(s.last.Plan, s.last.Observed) || s.job.gaveUp(s.last) != "")
}

// gaveUp says why a process ended itself: blocks that it recomputed gave something else than
// before, so that its gradients would not have been the job's own. Empty where it did not.
func (j Job) gaveUp(a Attempt) string {
	k := ActivationCheckpointing
	failed := a.Diagnosis.Cause == cause.UserError || a.Diagnosis.Cause == cause.Unknown
	if v := a.Plan[k]; v == "" || v == "none" || j.Knobs[k].By != ByHook || !failed {
		return ""
	}
	return a.Refused[k]
}

// decideAgain answers the attempt before once more, without the knobs that have
// shown that they cannot be turned.
func decideAgain(s *situation) Decision {
	before := *s
	before.look(s.history[:len(s.history)-1])
	d := before.decide()
	if d.Relaunch {
		d.Changed = s.last.Plan.Changed(d.Next)
	}
	why := strings.TrimPrefix(s.lost(), "; ")
	if seen := s.last.Loss; why == "" && seen.Scale == ScaleWrong {
		why = seen.wrong()
	}
	if u := s.last.Unstarted; u != nil {
		why = "could not be started: " + u.Reason
	}
	why = cmp.Or(why, s.job.gaveUp(s.last))
	d.Reason = fmt.Sprintf("attempt %d: %s; %s", s.last.N, why, d.Reason)
	return d
}

// look makes the last attempt of a history the one to be answered. What is known
// about knobs from later ones stays known.
func (s *situation) look(history []Attempt) {
	last := history[len(history)-1]
	if len(history) > len(s.all) {
		s.all = history
	}
	doubts := s.job.doubts(history)
	maps.Copy(doubts, s.doubts)
	s.history, s.last, s.diagnosis, s.doubts = history, last, last.Diagnosis, doubts
	s.learned, s.inside = s.job.learn(history)
	s.job = s.job.seeing(last.World)
	s.plan = s.learned.With(s.job.base(last))
	if lossSeen(s.all).Scale == ScaleWrong {
		s.job.restoreBatch(s.plan)
	}
}
