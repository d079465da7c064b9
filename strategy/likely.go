package strategy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Likely is a setting of a job that may be a knob, by its name alone. It is changed only if the value that
// it has is the one that the job's process uses.
type Likely struct {
	Name string `json:"name"` // "--batch-size"
	// Key is its name in the parser's result, which the process reports.
	Key string `json:"key,omitempty"`
	// Value is that of the command, or the parser's default; empty: not known before a process reports it.
	Value Value `json:"value,omitempty"`
	// Choices are the values that the parser accepts; nil: any.
	Choices []string `json:"choices,omitempty"`
	// All: by its name or help it counts the samples of all ranks together.
	All bool `json:"all_ranks,omitempty"`
}

// An Argument is the setting by which a plan changes a knob.
type Argument struct {
	Name string `json:"name"`
	// Times is the number of ranks that the argument's number counts together.
	Times int `json:"times,omitempty"`
}

// Arguments are the settings by which a plan changes knobs that have several likely ones, or a likely one.
type Arguments map[Knob]Argument

// mostUnconfirmed bounds how often a run starts with a changed argument that its processes then do not confirm.
const mostUnconfirmed = 2

// Likely lists the settings that may be knobs, by knob.
func (j Job) Likely() map[Knob][]Likely {
	found := map[Knob][]Likely{}
	for k, r := range j.Knobs {
		if len(r.Likely) > 0 {
			found[k] = r.Likely
		}
	}
	return found
}

// Arguments returns the settings by which a plan changes the job's likely knobs, by what its processes have reported.
func (j Job) Arguments(plan Plan, history []Attempt) Arguments {
	if r := j.Recalled; r != nil && len(history) == 0 && maps.Equal(plan, r.Plan) {
		return r.By
	}
	var found Arguments
	for k, v := range plan {
		if len(j.Knobs[k].Likely) == 0 || v == j.Written[k] {
			continue
		}
		of, times, why := j.confirmed(k, history)
		if why != "" {
			continue // the knob stays as it is
		}
		if found == nil {
			found = Arguments{}
		}
		found[k] = Argument{Name: of.Name, Times: times}
	}
	return found
}

// Confirmed returns the likely settings whose values the processes of some attempts reported to use.
func (j Job) Confirmed(history []Attempt) Arguments {
	found := Arguments{}
	used := j.original(history)
	for k := range j.Likely() {
		if of, times, why := j.confirmed(k, history); why == "" && used[k] != "" {
			found[k] = Argument{Name: of.Name, Times: times}
		}
	}
	return found
}

// Reported returns the values with which the processes of some attempts ran before gpurun changed them.
func (j Job) Reported(history []Attempt) Plan {
	reported := Plan{}
	for k, v := range j.original(history) {
		if v != j.Written[k] {
			reported[k] = v
		}
	}
	return reported
}

// Unconfirmed lists the changes of the batch by likely settings that the processes' reports do not confirm: with
// another value, or without one.
func (j Job) Unconfirmed(plan, observed Plan) Changes {
	var found Changes
	for _, k := range []Knob{MicroBatchSize, GradientAccumulationSteps} {
		if v, set := plan[k]; set && v != j.Written[k] && len(j.Knobs[k].Likely) > 0 && observed[k] != v {
			if found == nil {
				found = Changes{}
			}
			found[k] = [2]Value{v, observed[k]}
		}
	}
	return found
}

// confirmed returns the first likely setting of a knob whose value is the one that the job's processes use, or that
// value for all ranks together: times is their number, or 1. why is the reason if there is none.
func (j Job) confirmed(k Knob, history []Attempt) (of Likely, times int, why string) {
	used, untaken := j.original(history)[k], map[string]bool{}
	n := 0
	for _, a := range history {
		lost := j.Ineffective(a.Plan, a.Observed)
		if len(a.Arguments) == 0 || len(lost) == 0 && !a.Halted {
			continue
		}
		n++
		if len(lost) == 0 {
			lost = j.Unconfirmed(a.Plan, a.Observed)
		}
		if _, is := lost[k]; is {
			untaken[a.Arguments[k].Name] = true
		}
	}
	if n >= mostUnconfirmed {
		return Likely{}, 0, fmt.Sprintf("%d starts with a changed argument were not confirmed by the process", n)
	}
	for _, a := range history { // a start with it has been confirmed
		by, changed := a.Arguments[k]
		i := slices.IndexFunc(j.Knobs[k].Likely, func(l Likely) bool { return l.Name == by.Name })
		if changed && i >= 0 && !a.Halted && !untaken[by.Name] && a.Observed[k] == a.Plan[k] {
			return j.Knobs[k].Likely[i], max(by.Times, 1), ""
		}
	}
	ranks := max(j.DataParallel, 1)
	if len(history) > 0 {
		ranks = max(ranks, history[len(history)-1].World)
	}
	var others []string
	for _, one := range j.Knobs[k].Likely {
		value := one.value(history)
		number, whole := value.Number()
		uses, known := used.Number()
		switch {
		case untaken[one.Name]:
			others = append(others, one.Name+" did not change it")
		case value == "":
			others = append(others, "the value of "+one.Name+" is not known")
		case used == "" && (len(history) == 0 || k == GradientAccumulationSteps):
			return one, 1, "" // the processes of the next attempt confirm it before their first step
		case used == "":
			others = append(others, "the process has not reported it")
		case value == used:
			return one, 1, ""
		case whole && known && ranks > 1 && (k == MicroBatchSize || k == EvalBatchSize) && number == uses*ranks:
			return one, ranks, ""
		default:
			others = append(others, fmt.Sprintf("%s is %s, and the process uses %s", one.Name, value, used))
		}
	}
	return Likely{}, 0, "no argument is confirmed: " + strings.Join(slices.Compact(others), ", ")
}

// value is the setting's value in the job as it is written, by the first report of a process, else by the command.
func (l Likely) value(history []Attempt) Value {
	for _, a := range history {
		changed := slices.ContainsFunc(slices.Collect(maps.Values(a.Arguments)),
			func(by Argument) bool { return by.Name == l.Name })
		if v := a.Parsed[l.Key]; v != "" && !changed {
			return v
		}
	}
	return l.Value
}

// Parsed returns the values of the job's likely settings in the results of its parsers, by their keys, as the processes
// report them. A key with several values is not in it.
func (e *Evidence) Parsed(j Job) map[string]Value {
	var found map[string]Value
	unlike := map[string]bool{}
	for _, r := range e.folded().reports() {
		for _, knob := range j.Knobs {
			for _, one := range knob.Likely {
				v, reported := r.Arguments[one.Key]
				if !reported {
					continue
				}
				if found == nil {
					found = map[string]Value{}
				}
				if old := found[one.Key]; old != "" && old != v {
					unlike[one.Key] = true
				}
				found[one.Key] = v
			}
		}
	}
	for key := range unlike {
		delete(found, key)
	}
	return found
}

// accepts reports whether the setting that changes a knob takes a value.
func (s *situation) accepts(k Knob, v Value) bool {
	if len(s.job.Knobs[k].Likely) == 0 {
		return true
	}
	of, times, why := s.job.confirmed(k, s.all)
	n, whole := v.Number()
	return why == "" && (of.Choices == nil || slices.Contains(of.Choices, string(v)) || whole &&
		slices.Contains(of.Choices, fmt.Sprint(n*cmp.Or(times, 1))))
}
