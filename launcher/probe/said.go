package probe

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// Bounds of process.json: a job can write anything there.
const (
	longestText  = 300  // of a reason, a class or a name, in bytes
	mostBlocks   = 64   // lists of repeated modules
	mostProblems = 8    // of the probe itself
	mostNumber   = 1e15 // of parameters and bytes

	mostLossNumbers = 64
)

// parseSaid reads process.json: what the process reports, and what went wrong in the hook.
func parseSaid(text []byte) (said strategy.Said, problems []string, ok bool) {
	var p struct {
		strategy.Said
		// These are read by knob: an unknown knob, or a value that the knob does not have,
		// says nothing about the others.
		Settings map[strategy.Knob]json.RawMessage `json:"settings"`
		Applied  map[strategy.Knob]json.RawMessage `json:"applied"`
		Problems []string                          `json:"problems"`
	}
	if json.Unmarshal(text, &p) != nil || p.PID <= 0 {
		return said, nil, false
	}
	said = p.Said
	said.World, said.TotalSteps = bounded(p.World), bounded(p.TotalSteps)
	said.Settings, said.Applied = settings(p.Settings), applied(p.Applied)
	maps.DeleteFunc(p.By, func(k strategy.Knob, _ string) bool { _, known := said.Settings[k]; return !known })
	said.By, said.Refused, said.Failed = reasons(p.By), reasons(p.Refused), reasons(p.Failed)
	boundModel(said.Model)
	boundLoss(said.Loss)
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

func boundModel(m *strategy.Model) {
	if m == nil {
		return
	}
	m.Class, m.Switch, m.Parameters, m.Trainable = cut(m.Class), cut(m.Switch), figure(m.Parameters), figure(m.Trainable)
	m.Bytes = bytesByType(m.Bytes)
	m.Blocks = m.Blocks[:min(len(m.Blocks), mostBlocks)]
	for i := range m.Blocks {
		b := &m.Blocks[i]
		b.Path, b.Class, b.Count = cut(b.Path), cut(b.Class), bounded(b.Count)
	}
}

// bytesByType are the bytes of parameters by the name of their type.
func bytesByType(of map[string]int64) map[string]int64 {
	var safe map[string]int64
	for _, dtype := range slices.Sorted(maps.Keys(of)) {
		if len(safe) == mostBlocks || of[dtype] < 0 {
			break
		}
		if safe == nil {
			safe = map[string]int64{}
		}
		safe[cut(dtype)] = figure(of[dtype])
	}
	return safe
}

// cut gives a text's beginning, without half a character at its end.
func cut(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), longestText)], "")
}

func bounded(n int) int { return int(figure(int64(n))) }

func figure(n int64) int64 { return min(max(n, 0), mostNumber) }

// boundLoss keeps the words that are known.
func boundLoss(l *strategy.LossSeen) {
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
	if len(l.Numbers) > mostLossNumbers {
		l.Numbers = nil
	}
}
