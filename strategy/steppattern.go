package strategy

import "slices"

// A StepPattern is the groups of an expression for a line that shows a training step: by
// their names "step", "total" and "loss"; the first group without a name is the step where
// none has that name. A group that is not there is 0.
type StepPattern struct{ Step, Total, Loss int }

// StepPatternOf finds the groups of an expression by their names, as SubexpNames of
// regexp gives them. A step of 0 says that there is no group for it, and unknown lists
// the names that mean nothing.
func StepPatternOf(names []string) (p StepPattern, unknown []string) {
	for i, name := range names {
		switch {
		case i == 0 || name == "":
		case name == "step":
			p.Step = i
		case name == "total":
			p.Total = i
		case name == "loss":
			p.Loss = i
		default:
			unknown = append(unknown, name)
		}
	}
	if p.Step == 0 && len(names) > 1 {
		p.Step = max(slices.Index(names[1:], "")+1, 0)
	}
	return p, unknown
}
