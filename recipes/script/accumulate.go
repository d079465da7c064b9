package script

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/strategy"
)

// A divisor decides how many micro batches make one step.
type divisor struct {
	value value
	gate  gate
}

// divisors lists the divisors of all gates.
func (s *Analysis) divisors() []divisor {
	var all []divisor
	for _, g := range s.facts.Gates {
		switch g.Kind {
		case "range", "framework":
			if !g.Local {
				all = append(all, divisor{g.Value, g})
			}
			continue
		}
		g.Value.holds(func(v value) bool {
			if v.Op == "%" && len(v.Of) == 2 {
				all = append(all, divisor{v.Of[1], g})
			}
			if v.Op == "compare" {
				for _, side := range v.Of {
					if t, why := s.facts.pure(side); why == "" && t.speaks(strategy.GradientAccumulationSteps) {
						all = append(all, divisor{side, g})
					}
				}
			}
			return false
		})
	}
	return all
}

// dividedBy begins the doubt about an accumulation by which the code divides the batch.
const dividedBy = "the batch size is divided by "

// batchUncertain is the doubt about an accumulation that is otherwise certain.
const batchUncertain = "it may divide the batch size, which is not certain"

// accumulation finds the setting that gates the optimizer's step; nil if there is none.
func (s *Analysis) accumulation(micro *FoundKnob) *FoundKnob {
	const k = strategy.GradientAccumulationSteps
	var found *FoundKnob
	var of divisor
	doubt := ""
	for _, d := range s.divisors() {
		t, why := s.facts.pure(d.value)
		derived := false
		if why != "" {
			derived = micro != nil && s.facts.derived(d.value, micro.target)
			if !derived {
				continue
			}
		} else if !t.speaks(k) {
			continue // such as when to log
		}
		if found != nil && (found.Derived != derived || !derived && found.target.key != t.key) {
			doubt = fmt.Sprintf("the optimizer's step depends on several numbers (%s and %s)", of.gate.location, d.gate.location)
			continue
		}
		if found == nil {
			of = d
			found = &FoundKnob{Knob: k, target: t, Derived: derived}
		}
	}
	if found == nil {
		return s.noAccumulation()
	}
	found.Why = []string{s.gated(found, of.gate)}
	found.Doubt = doubt
	if found.Doubt == "" && !found.Derived && s.divides(found.target) {
		found.Doubt = dividedBy + found.Name()
	}
	if found.Doubt == "" && !found.Derived {
		found.Doubt = s.doubtOf(k, found.target, false)
	}
	if found.Doubt == "" {
		found.Doubt = s.gateDoubt(found, of, micro)
	}
	if found.Doubt == "" && (micro == nil || micro.Doubt != "") {
		found.Doubt = batchUncertain
	}
	if found.Doubt == "" {
		s.refuseAccumulation(found, of, micro)
	}
	return found
}

// gated describes the condition of the step.
func (s *Analysis) gated(found *FoundKnob, g gate) string {
	what := "gates the optimizer's step"
	if g.Kind == "framework" {
		what = "is handed to " + g.Call
	}
	if found.Derived {
		return fmt.Sprintf("gradient accumulation follows from a total that stays (%s)", g.location)
	}
	return evidence(found.target, what, g.location)
}

// derived reports whether a number of steps is a total divided by the micro batch. The unit of
// the total, samples or tokens, does not matter.
func (f Facts) derived(v value, micro target) bool {
	for _, one := range v.alternatives() {
		for (one.Op == "int" || one.Op == "max" || one.Op == "round") && len(one.Of) > 0 {
			inner := slices.IndexFunc(one.Of, func(part value) bool { return f.uses(part, micro) })
			if inner < 0 {
				return false
			}
			one = one.Of[inner]
		}
		if one.Const.known {
			continue
		}
		over := one
		for over.Op == "//" || over.Op == "/" {
			if f.uses(over.Of[1], micro) && !f.uses(over.Of[0], micro) {
				return true
			}
			over = over.Of[0]
		}
		return false
	}
	return false
}

// noGate is in the reason for a script without accumulation.
const noGate = " has no condition that counts batches"

// noAccumulation records that there is no accumulation, unless one is likely.
func (s *Analysis) noAccumulation() *FoundKnob {
	const k = strategy.GradientAccumulationSteps
	how, doubt := "", "it was not recognised in a condition of the optimizer's step"
	if len(s.facts.Steps) > 0 {
		first := s.facts.Steps[0]
		how = fmt.Sprintf("%s() (%s)%s", first.Text, first.location, noGate)
		if c, counts := s.counting(first.ID); counts {
			how = fmt.Sprintf("%s() has the condition %s (%s)", first.Text, c.Text, c.location)
			doubt = how
		}
	}
	if draft := s.likely(k, ""); draft != nil && s.divides(draft.target) {
		doubt = dividedBy + draft.Name()
	}
	if draft := s.likely(k, doubt); draft != nil {
		return draft
	}
	return s.miss(k, how)
}

// compared matches a condition that compares a count.
var compared = lazy.Regexp(`^[^(].*[<>]`)

// counting returns the condition of a statement that counts, such as the batches.
func (s *Analysis) counting(statement int) (use, bool) {
	for _, c := range s.facts.Conditions {
		counts := compared().MatchString(c.Text) && !strings.HasPrefix(c.Text, "not (") || c.Value.holds(func(v value) bool { return v.Op == "%" })
		if counts && slices.Contains(c.Covers, statement) {
			return c, true
		}
	}
	return use{}, false
}

// divides reports whether a batch of some loader is divided by a target.
func (s *Analysis) divides(by target) bool {
	return slices.ContainsFunc(s.facts.Loaders, func(l loader) bool {
		return s.facts.cancelled(l.Batch).holds(func(part value) bool { return (part.Op == "/" || part.Op == "//") && s.facts.uses(part.Of[1], by) })
	})
}

// gateDoubt is the reason why other code may also make steps.
func (s *Analysis) gateDoubt(found *FoundKnob, d divisor, micro *FoundKnob) string {
	if d.gate.Kind == "framework" {
		if d.gate.Call == "Accelerator" && !d.gate.Accumulates {
			return fmt.Sprintf("nothing calls accelerator.accumulate(), so that Accelerate does not accumulate (%s)", d.gate.location)
		}
		return ""
	}
	covered := s.covered(found, micro)
	for _, one := range s.facts.Steps {
		if !covered[one.ID] {
			return fmt.Sprintf("%s() does not depend on it (%s)", one.Text, one.location)
		}
	}
	return ""
}

// covered lists the statements, by their ids, that run once per optimizer step.
func (s *Analysis) covered(found, micro *FoundKnob) map[int]bool {
	covered := map[int]bool{}
	follows := func(v value) bool {
		return found.Derived && s.facts.uses(v, micro.target) || !found.Derived && s.facts.uses(v, found.target)
	}
	for _, c := range s.facts.Conditions {
		if follows(c.Value) {
			for _, id := range c.Covers {
				covered[id] = true
			}
		}
	}
	for _, g := range s.facts.Gates {
		if g.Kind == "range" && follows(g.Value) {
			for _, id := range g.Covers {
				covered[id] = true
			}
		}
	}
	return covered
}

// scheduleFollows is the reason why the learning rate would change differently with more micro
// batches per step: it is set for each of them, or the length of its schedule is the number of
// batches. Empty if it would not.
func (s *Analysis) scheduleFollows(found *FoundKnob, d divisor, micro *FoundKnob) string {
	covered := s.covered(found, micro)
	prepared := d.gate.Kind == "framework" && d.gate.Call == "Accelerator" // its scheduler waits for the step
	for _, one := range s.facts.Schedules {
		by := found.target
		if found.Derived {
			by = micro.target
		}
		uses := s.facts.uses(one.Value, by)
		switch one.Kind {
		case "batch":
			if !covered[one.ID] && !prepared {
				return fmt.Sprintf("%s sets the learning rate for each micro batch (%s), so that with more of them to a step its schedule would be shorter", one.Text, one.location)
			}
		case "batches":
			if !uses {
				return fmt.Sprintf("the length of %s follows from the number of micro batches (%s), so that with more of them to a step its schedule would be longer", one.Text, one.location)
			}
		case "length":
			if !found.Derived && !uses && micro != nil && s.facts.uses(one.Value, micro.target) {
				return fmt.Sprintf("the length of %s follows from the micro batch (%s), and would change with it", one.Text, one.location)
			}
			if uses && !found.Derived && !s.perStep(one.Value, found.target, micro) {
				return fmt.Sprintf("the length of %s follows from it (%s), and would change with it", one.Text, one.location)
			}
		}
	}
	return ""
}

// perStep reports whether a number is a total divided by the samples of a step: the product of the
// micro batch and the accumulation.
func (s *Analysis) perStep(v value, accumulation target, micro *FoundKnob) bool {
	return micro != nil && v.holds(func(part value) bool {
		if part.Op != "//" && part.Op != "/" || len(part.Of) != 2 {
			return false
		}
		by := part.Of[1]
		return by.Op == "*" && s.facts.uses(by, accumulation) && s.facts.uses(by, micro.target) && !s.facts.uses(part.Of[0], accumulation)
	})
}

// refuseAccumulation refuses a change of the accumulation that would change the training.
func (s *Analysis) refuseAccumulation(found *FoundKnob, d divisor, micro *FoundKnob) {
	refused := &found.Refusal
	if found.Derived {
		if micro.Doubt != "" {
			return
		}
		refused = &micro.Refusal // the setting to change
	}
	s.loss = s.ownLoss(found, d, micro)
	switch why := cmp.Or(s.scaled(found, d), s.offbeat(found, d, micro)); {
	case why != "":
		*refused = why
		return
	case !s.lossDivided(found, d):
		*refused = fmt.Sprintf("the loss does not seem to be divided by %s (%s): its gradients would grow with more accumulation", s.divisorName(found, d), d.gate.location)
		return
	case s.scheduleFollows(found, d, micro) != "":
		*refused = s.scheduleFollows(found, d, micro)
		return
	case found.Derived:
		return
	}
	for _, a := range s.facts.Asserts {
		if a.Value.holds(func(v value) bool {
			if v.Op != "%" || len(v.Of) != 2 || micro != nil && s.facts.uses(v.Of[0], micro.target) {
				return false
			}
			t, why := s.facts.pure(v.Of[1])
			return why == "" && t.key == found.target.key
		}) {
			*refused = fmt.Sprintf("the script asserts that another number is a multiple of it (%s)", a.location)
			return
		}
	}
	for _, b := range s.facts.Bounds {
		t, why := s.facts.pure(b.Value)
		if why == "" && b.File == d.gate.File && (b.Kind == "batch" || slices.Contains(d.gate.Counters, b.Counter)) && t.key != found.target.key {
			*refused = fmt.Sprintf("%s counts micro batches (%s), so that with more of them to a step the training would be shorter", t.name(), b.location)
			return
		}
	}
}

// lossDivided reports whether the loss is divided by the accumulation.
func (s *Analysis) lossDivided(found *FoundKnob, d divisor) bool {
	return d.gate.Kind == "framework" || s.anyDivided(found, d) || s.addsUp(found, d) || slices.ContainsFunc(s.facts.Losses, func(l use) bool {
		return l.Op == "/" && s.isAccumulation(l.Value, found, d) ||
			l.Op == "*" && l.Value.Op == "/" && len(l.Value.Of) == 2 && s.isAccumulation(l.Value.Of[1], found, d)
	})
}

// isAccumulation reports whether a value is the number of micro batches per step.
func (s *Analysis) isAccumulation(v value, found *FoundKnob, d divisor) bool {
	if found.Derived {
		return fmt.Sprint(s.facts.text(v)) == fmt.Sprint(s.facts.text(d.value))
	}
	for _, one := range v.alternatives() {
		if one.Op == "min" && len(one.Of) == 2 {
			one = one.Of[0] // the last step of an epoch may have fewer micro batches
		}
		for one.Op == "float" && len(one.Of) == 1 || one.Op == "max" && len(one.Of) == 2 {
			one = one.Of[len(one.Of)-1]
		}
		if t, ok := s.facts.single(one); ok && t.key == found.target.key {
			return true
		}
	}
	return false
}
