package estimate

import (
	"encoding/json"

	"github.com/gpurun/gpurun/strategy/memory"
)

// A Forecast is the output of gpurun estimate.
type Forecast struct {
	memory.Estimated
	weights      string // the value of --weights, also where it is not given
	from         string // where the model's shape is from
	notes        []string
	measured     []memory.Measurement // of the same plan, in earlier runs
	checkpointed *memory.Estimated    // the same with full checkpointing; nil where it is on
}

// same are the measurements of processes that ran with a plan, whatever ran out.
func (r *Request) same(p memory.RankPlan) []memory.Measurement {
	var same []memory.Measurement
	for _, m := range r.measured {
		if m.Peak > 0 && compared(m.Plan) == compared(p) {
			same = append(same, m)
		}
	}
	return same
}

// compared is the part of a plan that is compared: an unknown word is the usual one.
func compared(p memory.RankPlan) memory.RankPlan {
	p = p.Usual()
	p.Attention, p.Allocator, p.Sequence, p.Evaluation, p.DeepSpeed = "", "", 0, 0, false
	return p
}

// shownArchitecture is the model's shape in JSON, with where it is from.
type shownArchitecture struct {
	memory.Architecture
	From string `json:"from,omitempty"`
}

// forecastJSON is a forecast in JSON. The first six keys are a promise (gpurun estimate --json).
type forecastJSON struct {
	Parameters int64            `json:"parameters"`
	Instants   map[string]int64 `json:"instants"`
	Parts      memory.Parts     `json:"parts"`
	Peak       [2]int64         `json:"peak_bytes"`
	Host       int64            `json:"host_bytes"`
	Cards      []memory.Card    `json:"cards"`

	PeakInstant  string                    `json:"peak_instant"`
	ByInstant    map[string]memory.Parts   `json:"parts_by_instant"`
	Outside      int64                     `json:"outside_bytes"`
	HostLoading  bool                      `json:"host_while_loading"`
	NVMe         int64                     `json:"nvme_bytes"`
	Weights      string                    `json:"weights"`
	Architecture shownArchitecture         `json:"architecture"`
	Plan         memory.RankPlan           `json:"plan"`
	Checkpointed []memory.Card             `json:"cards_with_full_checkpointing,omitempty"`
	DeepSpeed    *memory.DeepSpeedEstimate `json:"deepspeed_estimator,omitempty"`
	Measured     []int64                   `json:"measured_peak_bytes,omitempty"`
	Assumed      []string                  `json:"assumed"`
}

func (a *Forecast) MarshalJSON() ([]byte, error) {
	s := forecastJSON{
		Parameters: a.Architecture.Parameters, Instants: map[string]int64{}, Parts: a.Instants.Most, Peak: [2]int64{a.Mean, a.Bound}, Host: a.Host, Cards: a.Cards,
		PeakInstant: a.Instant, ByInstant: map[string]memory.Parts{}, Outside: a.Outside, HostLoading: a.Loading, NVMe: a.NVMe, Weights: a.weights,
		Architecture: shownArchitecture{a.Architecture, a.from}, Plan: a.Plan, Assumed: a.assumed(),
	}
	for n, parts := range a.Instants.All() {
		s.Instants[memory.Names[n]], s.ByInstant[memory.Names[n]] = parts.Sum(), parts
	}
	if a.checkpointed != nil {
		s.Checkpointed = a.checkpointed.Cards
	}
	if a.DeepSpeed.Device > 0 {
		s.DeepSpeed = &a.DeepSpeed
	}
	for _, m := range a.measured {
		s.Measured = append(s.Measured, m.Peak)
	}
	return json.Marshal(s)
}
