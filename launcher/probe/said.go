package probe

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// What process.json may hold at most; a job can write there what it likes.
const (
	longestText  = 300  // of a reason, a class or a name, in bytes
	mostBlocks   = 64   // lists of repeated modules
	mostProblems = 8    // of the probe itself
	mostNumber   = 1e15 // of parameters and bytes

	mostLossNumbers = 64
)

// process is process.json as it comes. What has a knob is read by knob: one that gpurun
// does not know, or a value that the knob does not have, says nothing of the others.
type process struct {
	PID        int                        `json:"pid"`
	World      int                        `json:"world"`
	Settings   map[string]json.RawMessage `json:"settings"`
	By         map[string]string          `json:"told_by"`
	Refused    map[string]string          `json:"refused"`
	Failed     map[string]string          `json:"failed"`
	Applied    map[string]json.RawMessage `json:"applied"`
	Model      *strategy.Model            `json:"model"`
	Waiting    bool                       `json:"waiting"`
	Stepping   bool                       `json:"stepping"`
	TotalSteps int                        `json:"total_steps"`
	Problems   []string                   `json:"problems"`
	Loss       *strategy.LossSeen         `json:"loss"`
}

// parseSaid reads process.json: what the process says, and what went wrong in the probe.
func parseSaid(text []byte) (said strategy.Said, problems []string, ok bool) {
	var p process
	if json.Unmarshal(text, &p) != nil || p.PID <= 0 {
		return said, nil, false
	}
	said = strategy.Said{
		PID: p.PID, World: bounded(p.World), Waiting: p.Waiting, Stepping: p.Stepping, TotalSteps: bounded(p.TotalSteps),
		Settings: p.settings(), Refused: reasons(p.Refused), Failed: reasons(p.Failed), Applied: p.applied(), Model: model(p.Model),
		Loss: lossSeen(p.Loss),
	}
	by := reasons(p.By)
	maps.DeleteFunc(by, func(k strategy.Knob, _ string) bool { _, known := said.Settings[k]; return !known })
	if len(by) > 0 {
		said.By = by
	}
	for _, text := range p.Problems[:min(len(p.Problems), mostProblems)] {
		problems = append(problems, cut(text))
	}
	return said, problems, true
}

// settings are the values that their knobs have.
func (p *process) settings() strategy.Plan {
	var plan strategy.Plan
	for name, raw := range p.Settings {
		var v strategy.Value
		if json.Unmarshal(raw, &v) != nil || !valid(strategy.Knob(name), v) {
			continue
		}
		plan = plan.With(strategy.Plan{strategy.Knob(name): v})
	}
	return plan
}

// applied are the changes whose new value their knobs have; the old one may be unknown.
func (p *process) applied() strategy.Changes {
	var changes strategy.Changes
	for name, raw := range p.Applied {
		var pair [2]strategy.Value
		knob := strategy.Knob(name)
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

// reasons are the words about knobs, by knob.
func reasons(of map[string]string) map[strategy.Knob]string {
	var found map[strategy.Knob]string
	for name, why := range of {
		if k := strategy.Knob(name); slices.Contains(strategy.Knobs, k) && why != "" {
			if found == nil {
				found = map[strategy.Knob]string{}
			}
			found[k] = cut(why)
		}
	}
	return found
}

func model(m *strategy.Model) *strategy.Model {
	if m == nil {
		return nil
	}
	safe := &strategy.Model{
		Class: cut(m.Class), Parameters: figure(m.Parameters), Trainable: figure(m.Trainable), Switch: cut(m.Switch), Compiled: m.Compiled,
	}
	safe.Bytes = bytesByType(m.Bytes)
	for _, b := range m.Blocks[:min(len(m.Blocks), mostBlocks)] {
		safe.Blocks = append(safe.Blocks, strategy.Blocks{Path: cut(b.Path), Class: cut(b.Class), Count: bounded(b.Count)})
	}
	return safe
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

// lossSeen keeps the words that are known.
func lossSeen(l *strategy.LossSeen) *strategy.LossSeen {
	if l == nil {
		return nil
	}
	safe := strategy.LossSeen{Reason: cut(l.Reason), Weighted: l.Weighted}
	if l.Scale == strategy.ScaleKept || l.Scale == strategy.ScaleWrong {
		safe.Scale = l.Scale
	}
	if l.Uniform == "yes" || l.Uniform == "no" {
		safe.Uniform = l.Uniform
	}
	if l.Rows == "yes" || l.Rows == "no" || l.Rows == "unknown" {
		safe.Rows, safe.RowsReason = l.Rows, cut(l.RowsReason)
	}
	if len(l.Numbers) <= mostLossNumbers {
		safe.Numbers = l.Numbers
	}
	return &safe
}
