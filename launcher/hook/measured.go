package hook

import (
	"encoding/json"
	"slices"

	"github.com/gpurun/gpurun/strategy/memory"
)

// phasesOfFailure are the phases in which memory can run out.
var phasesOfFailure = []string{"load", "forward", "loss", "backward", "optimizer", "evaluation"}

// parseMeasured reads memory.json: what a process measured of its memory.
func parseMeasured(text []byte) (m memory.Measurement, ok bool) {
	if json.Unmarshal(text, &m) != nil || m.PID <= 0 {
		return memory.Measurement{}, false
	}
	m.Plan, m.Rank, m.Outside = memory.RankPlan{}, 0, 0 // the caller knows them
	if !slices.Contains(phasesOfFailure, m.Failed) {
		m.Failed, m.Allocated, m.Requested = "", 0, 0
	}
	if m.RanOut != nil && !slices.Contains(phasesOfFailure, m.RanOut.Failed) {
		m.RanOut = nil
	}
	if len(m.InPlace) == 0 {
		m.InPlace = nil
	}
	m.Shape = m.Shape[:min(len(m.Shape), mostDimensions)]
	bound(&m)
	return m, true
}
