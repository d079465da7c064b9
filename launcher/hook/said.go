package hook

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

// parseSaid reads process.json: what the process reports, and what went wrong in the hook.
func parseSaid(text []byte) (said strategy.ProcessReport, problems []string, ok bool) {
	var p struct {
		strategy.ProcessReport
		// These are read by knob: an unknown knob, or a value that the knob does not have, does not affect
		// the others.
		Settings map[strategy.Knob]json.RawMessage `json:"settings"`
		Applied  map[strategy.Knob]json.RawMessage `json:"applied"`
		// Of the parser's result only numbers and truth values are kept: a text may be a secret.
		Arguments map[string]json.RawMessage `json:"arguments"`
		Problems  []string                   `json:"problems"`
		InPlace   []json.RawMessage          `json:"in_place"`
	}
	if json.Unmarshal(text, &p) != nil || p.PID <= 0 {
		return said, nil, false
	}
	said = p.ProcessReport
	said.Settings, said.Applied = settings(p.Settings), applied(p.Applied)
	said.Arguments = arguments(p.Arguments)
	maps.DeleteFunc(p.By, func(k strategy.Knob, _ string) bool { _, known := said.Settings[k]; return !known })
	said.By, said.Refused, said.Failed = reasons(p.By), reasons(p.Refused), reasons(p.Failed)
	keepKnown(said.Loss)
	said.InPlace = inPlace(p.InPlace)
	if r := said.InPlaceRefused; r != nil && !slices.Contains(strategy.InPlacePhases, r.Phase) {
		said.InPlaceRefused = nil
	}
	for _, of := range []any{&said.PID, &said.World, &said.TotalSteps, said.Model, said.InPlaceRefused, said.Pressure} {
		bound(of)
	}
	for _, text := range p.Problems[:min(len(p.Problems), mostProblems)] {
		problems = append(problems, cut(text))
	}
	return said, problems, true
}

// mostArguments bounds the values of a parser's result.
const mostArguments = 512

// arguments are the whole numbers and truth values in the result of the job's parser.
func arguments(of map[string]json.RawMessage) (found map[string]strategy.Value) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if len(found) == mostArguments || len(name) > longestText {
			break
		}
		var number int64
		var truth bool
		switch raw := of[name]; {
		case string(raw) == "null":
			continue
		case json.Unmarshal(raw, &number) == nil:
		case json.Unmarshal(raw, &truth) == nil:
		default:
			continue
		}
		if found == nil {
			found = map[string]strategy.Value{}
		}
		found[name] = strategy.Value(of[name])
	}
	return found
}

// settings are the values that their knobs have.
func settings(of map[strategy.Knob]json.RawMessage) strategy.Plan {
	var plan strategy.Plan
	for knob, raw := range of {
		var v strategy.Value
		if json.Unmarshal(raw, &v) == nil && valid(knob, v) {
			plan = plan.With(strategy.Plan{knob: v})
		}
	}
	return plan
}

// applied are the changes whose new value their knobs have; the old one may be unknown.
func applied(of map[strategy.Knob]json.RawMessage) strategy.Changes {
	var changes strategy.Changes
	for knob, raw := range of {
		var pair [2]strategy.Value
		if json.Unmarshal(raw, &pair) != nil || !valid(knob, pair[1]) {
			continue
		}
		if !valid(knob, pair[0]) {
			pair[0] = ""
		}
		if changes == nil {
			changes = strategy.Changes{}
		}
		changes[knob] = pair
	}
	return changes
}

func valid(k strategy.Knob, v strategy.Value) bool {
	return len(v) <= longestText && (strategy.Plan{k: v}).Validate() == nil
}

// reasons are texts about knobs; nil for none.
func reasons(of map[strategy.Knob]string) map[strategy.Knob]string {
	maps.DeleteFunc(of, func(k strategy.Knob, why string) bool { return why == "" || !slices.Contains(strategy.Knobs, k) })
	if len(of) == 0 {
		return nil
	}
	for k, why := range of {
		of[k] = cut(why)
	}
	return of
}

// mostSamples bounds the samples of a data set: the product of two such numbers is an int64.
const mostSamples = 1 << 31

var answers = []string{"yes", "no", "unknown"}

// keepKnown keeps the words of a loss that are known.
func keepKnown(l *strategy.LossSeen) {
	if l == nil {
		return
	}
	l.Reason, l.RowsReason = cut(l.Reason), cut(l.RowsReason)
	l.ModelRowsReason, l.Differs = cut(l.ModelRowsReason), cut(l.Differs)
	if l.Scale != strategy.ScaleKept && l.Scale != strategy.ScaleWrong {
		l.Scale = ""
	}
	if l.Uniform != "yes" && l.Uniform != "no" {
		l.Uniform = ""
	}
	if l.Rows != "no" {
		l.Rows, l.RowsReason = "", ""
	}
	if !slices.Contains(answers, l.ModelRows) {
		l.ModelRows, l.ModelRowsReason = "", ""
	}
	if o := l.Outside; o != nil && min(o.Steps, o.Parameters, o.Buffers, o.Numbers) < 0 {
		l.Outside = nil
	}
	if l.Samples < 0 || l.Batch < 0 || l.Samples > mostSamples || l.Batch > mostSamples {
		l.Samples, l.Batch = 0, 0
	}
	if len(l.Numbers) > mostItems {
		l.Numbers = nil
	}
}

// inPlace reads the steps that a process did again. An entry that cannot be read does not affect
// the others.
func inPlace(of []json.RawMessage) (all []strategy.InPlace) {
	for _, raw := range of[:min(len(of), strategy.MostInPlace)] {
		var one struct {
			strategy.InPlace
			At float64 `json:"at"` // seconds since 1970
		}
		if json.Unmarshal(raw, &one) != nil || !slices.Contains(strategy.InPlacePhases, one.Phase) || one.Times < 1 {
			continue
		}
		if !slices.Contains(strategy.DeviceRemedies, one.Remedy) {
			one.Remedy = ""
		}
		if one.Allocator != "expandable" {
			one.Allocator = ""
		}
		one.Trials = one.Trials[:min(len(one.Trials), mostItems)]
		for i := range one.Trials {
			if !slices.Contains(strategy.TrialOutcomes, one.Trials[i].Outcome) {
				one.Trials[i].Outcome = ""
			}
		}
		if one.At > 0 && one.At < mostSeconds*10 {
			one.InPlace.At = unixTime(one.At)
		}
		for _, of := range []any{&one.Step, &one.LastStep, &one.Times, &one.Requested, &one.Held, &one.Seconds,
			&one.Elements, &one.Longest, &one.Parts, &one.Trials} {
			bound(of)
		}
		all = append(all, one.InPlace)
	}
	return all
}
