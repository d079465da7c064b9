package estimate

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/strategy/memory"
)

// A Forecast is the output of gpurun estimate.
type Forecast struct {
	memory.Estimated
	weights      string // the value of --weights, or its default
	from         string // source of the model's shape
	notes        []string
	measured     []memory.Measurement // measurements of the same plan in earlier runs
	checkpointed *memory.Estimated    // the same with full checkpointing; nil where it is on
}

// same returns the measurements of processes that ran with a plan, even if they ran out of memory.
func (r *Request) same(p memory.RankPlan) []memory.Measurement {
	var same []memory.Measurement
	for _, m := range r.measured {
		if m.Peak > 0 && compared(m.Plan) == compared(p) {
			same = append(same, m)
		}
	}
	return same
}

// compared returns the part of a plan that is compared. An unknown word counts as the default.
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

	PeakInstant  string                  `json:"peak_instant"`
	ByInstant    map[string]memory.Parts `json:"parts_by_instant"`
	Outside      int64                   `json:"outside_bytes"`
	HostLoading  bool                    `json:"host_while_loading"`
	NVMe         int64                   `json:"nvme_bytes"`
	Weights      string                  `json:"weights"`
	Architecture shownArchitecture       `json:"architecture"`
	Plan         memory.RankPlan         `json:"plan"`
	Checkpointed []memory.Card           `json:"cards_with_full_checkpointing,omitempty"`
	Measured     []int64                 `json:"measured_peak_bytes,omitempty"`
	Assumed      []string                `json:"assumed"`
}

// JSON returns a value of the type that a Forecast has in JSON.
func (a *Forecast) JSON() any { return forecastJSON{} }

func (a *Forecast) MarshalJSON() ([]byte, error) {
	s := forecastJSON{
		Parameters: a.Architecture.Parameters, Instants: map[string]int64{}, Parts: a.Instants.Most,
		Peak: [2]int64{a.Mean, a.Bound}, Host: a.Host, Cards: a.Cards,
		PeakInstant: a.Instant, ByInstant: map[string]memory.Parts{}, Outside: a.Outside, HostLoading: a.Loading,
		NVMe: a.NVMe, Weights: a.weights,
		Architecture: shownArchitecture{a.Architecture, a.from}, Plan: a.Plan, Assumed: a.assumed(),
	}
	for n, parts := range a.Instants.All() {
		s.Instants[memory.Names[n]], s.ByInstant[memory.Names[n]] = parts.Sum(), parts
	}
	if a.checkpointed != nil {
		s.Checkpointed = a.checkpointed.Cards
	}
	for _, m := range a.measured {
		s.Measured = append(s.Measured, m.Peak)
	}
	return json.Marshal(s)
}

// assumed returns sentences about the assumptions of a forecast: values that were not given, and which of
// several published figures it uses.
func (a *Forecast) assumed() []string {
	lines := append([]string{}, a.notes...)
	lines = append(lines, a.modelLines()...)
	lines = append(lines, a.weightsLine())
	if line := a.adamLine(); line != "" {
		lines = append(lines, line)
	}
	if a.Plan.Attention != "eager" {
		lines = append(lines, fmt.Sprintf("attention: %s, which does not hold the scores (--attention eager does)",
			a.Plan.Attention))
	}
	lines = append(lines,
		"cards: what PyTorch sees of the smallest one that is sold as that size, such as 79.1 GiB of 80 GB; at most: activations and logits × 1.5, as no process has measured them")
	return lines
}

// modelLines returns the source of the model's shape.
func (a *Forecast) modelLines() []string {
	s := a.Architecture
	switch {
	case s.Assumed:
		lines := []string{fmt.Sprintf("model: a decoder of this size %s (--layers, --hidden, --intermediate, --heads; --config for the model's own)", like(s.Like))}
		if s.AssumedVocabulary {
			lines = append(lines,
				fmt.Sprintf("vocabulary: %d, in the bound 152064 (--vocab: 32000 for Llama 2 and Mistral, 128256 for Llama 3)",
					s.Vocabulary))
		}
		return lines
	case a.from != "":
		return []string{"model: from " + a.from}
	}
	return nil
}

// like returns how an assumed shape relates to published ones.
func like(what string) string {
	if strings.Contains(what, " and ") || strings.HasPrefix(what, "as ") || strings.HasPrefix(what, "beyond ") {
		return what
	}
	return "as " + what
}

// weightsLine returns the dtype that the bytes follow from.
func (a *Forecast) weightsLine() string {
	r := memory.RateOf(a.Plan)
	sum := fmt.Sprintf("%.3g bytes a parameter before sharding", r.Weights+r.Gradients+r.Master+r.States)
	switch {
	case a.Plan.DeepSpeed && r.Weights == 2:
		return "weights: as DeepSpeed holds them, in 16 bits, with a master copy and states in fp32: " + sum +
			" (--weights fp32, bf16)"
	case a.Plan.DeepSpeed:
		return "weights: as DeepSpeed holds them, in fp32: " + sum + " (--weights)"
	case r.Weights == 2:
		return "weights: in 16 bits, gradients and optimizer too: " + sum + " (--weights fp32 is autocast)"
	case r.Cast > 0:
		line := fmt.Sprintf("weights: in fp32, autocast to %s: %s, and 2 for the copy in forward and backward (--weights bf16, deepspeed)", a.Plan.Compute, sum)
		if a.from != "" {
			line += "; a model that is loaded in 16 bits, as transformers 5 does with a checkpoint of that dtype, is --weights " + a.Plan.Compute
		}
		return line
	}
	return "weights: in fp32: " + sum
}

// adamLine returns which figure for Adam's states is used: published tables have 4, 8 or 12 bytes per
// parameter.
func (a *Forecast) adamLine() string {
	if o := a.Plan.Optimizer; o != "adamw" && o != "adam" && o != "adamw-fused" {
		return ""
	}
	gigabytes := func(each float64) string { return fmt.Sprintf("%.4g GB", each*float64(a.Architecture.Parameters)/1e9) }
	r := memory.RateOf(a.Plan)
	switch {
	case r.Master > 0:
		return fmt.Sprintf("optimizer: Adam's states in fp32, %s, and the master copy, %s, before sharding; tables with %s mean states in 16 bits", gigabytes(8), gigabytes(4), gigabytes(4))
	case r.States == 4:
		return fmt.Sprintf("optimizer: Adam's states in 16 bits, %s; tables with %s mean fp32, those with %s a master copy too", gigabytes(4), gigabytes(8), gigabytes(12))
	}
	return fmt.Sprintf("optimizer: Adam's states in fp32, %s; tables with %s mean 16 bits, those with %s a master copy too", gigabytes(8), gigabytes(4), gigabytes(12))
}
