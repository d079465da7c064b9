package probe

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
		Problems []string                          `json:"problems"`
	}
	if json.Unmarshal(text, &p) != nil || p.PID <= 0 {
		return said, nil, false
	}
	said = p.ProcessReport
	said.Settings, said.Applied = settings(p.Settings), applied(p.Applied)
	maps.DeleteFunc(p.By, func(k strategy.Knob, _ string) bool { _, known := said.Settings[k]; return !known })
	said.By, said.Refused, said.Failed = reasons(p.By), reasons(p.Refused), reasons(p.Failed)
	keepKnown(said.Loss)
	for _, of := range []any{&said.PID, &said.World, &said.TotalSteps, said.Model} {
		bound(of)
	}
	for _, text := range p.Problems[:min(len(p.Problems), mostProblems)] {
		problems = append(problems, cut(text))
	}
	return said, problems, true
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

// keepKnown keeps the words of a loss that are known.
func keepKnown(l *strategy.LossSeen) {
	if l == nil {
		return
	}
	l.Reason, l.RowsReason = cut(l.Reason), cut(l.RowsReason)
	if l.Scale != strategy.ScaleKept && l.Scale != strategy.ScaleWrong {
		l.Scale = ""
	}
	if l.Uniform != "yes" && l.Uniform != "no" {
		l.Uniform = ""
	}
	if l.Rows != "yes" && l.Rows != "no" && l.Rows != "unknown" {
		l.Rows, l.RowsReason = "", ""
	}
	if len(l.Numbers) > mostItems {
		l.Numbers = nil
	}
}
