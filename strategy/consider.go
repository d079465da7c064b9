package strategy

import (
	"fmt"
	"slices"
)

// consider asks one rung what it could change in the plan, the gentlest first, or why it
// cannot be taken: what the phase leaves out, what the job cannot turn or has shown not to
// heed, what is not there, and last what the policy refuses. A survey, a walk and the free
// rungs that ride along with it all ask here.
func (s *situation) consider(rung Rung, filter phaseFilter) ([]Plan, *Skip) {
	if reason := filter[rung]; reason != "" {
		return nil, &Skip{Rung: rung, Reason: reason}
	}
	changes, reason := rung.row().remedy(s)
	if reason == "" {
		changes, reason = s.job.staged(changes)
	}
	if reason == "" {
		changes, reason = s.trusted(changes)
	}
	passing := reason != "" && (reason == s.hostTooSmall() || reason == s.diskTooSmall())
	if reason == "" {
		reason = s.inventory.Missing[rung]
		passing = reason != ""
	}
	if reason != "" {
		return nil, &Skip{Rung: rung, Reason: reason, Passing: passing}
	}
	if reason = s.refused(rung, changes...); reason != "" {
		return nil, &Skip{Rung: rung, Reason: reason, Refused: true}
	}
	return changes, nil
}

// staged leaves out changes to a stage of ZeRO that the job's pipeline refuses at its start,
// and says why if none remains.
func (j Job) staged(changes []Plan) (left []Plan, reason string) {
	left = slices.DeleteFunc(slices.Clone(changes), func(c Plan) bool {
		return j.Pipeline && (c[Sharding] == "zero2" || c[Sharding] == "zero3")
	})
	if len(left) == 0 {
		reason = "DeepSpeed's pipeline refuses ZeRO 2 and 3 at its start; it works with ZeRO 1"
	}
	return left, reason
}

// trusted leaves out changes that need a knob which is left alone, and says why if
// none remains.
func (s *situation) trusted(changes []Plan) (left []Plan, reason string) {
	for _, c := range changes {
		doubt := ""
		for _, k := range Knobs {
			if _, turned := c[k]; turned && doubt == "" {
				doubt = s.doubts[k]
			}
		}
		if doubt == "" {
			left = append(left, c)
		} else if reason == "" {
			reason = doubt
		}
	}
	if len(left) > 0 {
		reason = ""
	}
	return left, reason
}

// refused says by which words the policy keeps a rung from being taken.
func (s *situation) refused(rung Rung, changes ...Plan) string {
	if slices.Contains(s.policy.Never, string(rung)) {
		return fmt.Sprintf("recovery.never lists %q", rung)
	}
	for _, k := range rung.Turns() {
		changed := slices.ContainsFunc(changes, func(c Plan) bool { _, has := c[k]; return has })
		if changed && slices.Contains(s.policy.Never, string(k)) {
			return fmt.Sprintf("recovery.never lists %q", k)
		}
	}
	switch rung {
	case RungPrecision:
		if s.policy.Numerics == Preserve {
			return `recovery.numerics = "preserve" keeps the precision`
		}
		if s.job.Knobs[Precision].By == ByHook && !s.policy.NumericsSaid {
			return `the script has no setting for it, and gpurun puts autocast round the model only if told to: --numerics mixed-precision, or recovery.numerics in a train.toml`
		}
	case RungOptimizer, RungSequence:
		if s.policy.Numerics != Any {
			return fmt.Sprintf("recovery.numerics = %q keeps the %s; \"any\" allows it", s.policy.Numerics, rung)
		}
	}
	return ""
}
