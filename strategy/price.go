package strategy

import (
	"fmt"
	"math"
	"strings"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// A Price has the savings and the costs of a change of the plan, by the figures of the attempts
// before and after it. Bytes are of the device's allocator, on the rank that needed the most; 0:
// not known.
type Price struct {
	Remedies []Remedy `json:"rungs"`
	Changed  Changes  `json:"changed"`
	// BytesBefore is the measured peak of the plan before. With AtLeast, it is the memory that
	// the plan held and requested when memory ran out.
	BytesBefore int64 `json:"bytes_before,omitempty"`
	BytesAfter  int64 `json:"bytes_after,omitempty"`
	AtLeast     bool  `json:"at_least,omitempty"`
	// SecondsBefore and SecondsAfter are the times of an optimizer step for the same global batch.
	SecondsBefore float64 `json:"step_seconds_before,omitempty"`
	SecondsAfter  float64 `json:"step_seconds_after,omitempty"`
}

// Prices returns, for each attempt of a history, the price of the change that led to it; nil if
// nothing was changed, or the attempt made no steps.
func Prices(j Job, history []Attempt) []*Price {
	prices := make([]*Price, len(history))
	if len(history) > 1 {
		s := &situation{job: j}
		s.look(ran(history))
		j = s.job
	}
	before := -1
	for i, a := range history {
		if a.Unstarted != nil {
			continue
		}
		if before >= 0 {
			prices[i] = j.price(history[before], a)
		}
		before = i
	}
	return prices
}

// price returns the price of the change between two attempts.
func (j Job) price(a, b Attempt) *Price {
	changed := j.effective(a.Plan, a.Observed).Changed(j.effective(b.Plan, b.Observed))
	_, allocator := changed[Allocator]
	switch {
	// the allocator wastes less memory, but the job needs as much as before
	case len(changed) == 0, len(changed) == 1 && allocator:
		return nil
	case a.Diagnosis.Cause == cause.HostOOM && a.Diagnosis.Device != "cpu": // another memory ran out
		return nil
	}
	from := Plan{}
	for k, pair := range changed {
		from[k] = pair[0]
	}
	p := &Price{Remedies: append([]Remedy{}, needs(from, changed.values())...), Changed: changed}
	if p.BytesBefore = peakOfSteps(a); p.BytesBefore == 0 {
		p.BytesBefore = atFailure(a)
		p.AtLeast = p.BytesBefore > 0
	}
	p.BytesAfter = peakOfSteps(b)
	j.time(p, a, b)
	if p.BytesAfter == 0 && p.SecondsAfter == 0 {
		return nil
	}
	return p
}

// time adds the times of a step, for the global batch of the plan before.
func (j Job) time(p *Price, a, b Attempt) {
	before, samples := j.stepOf(a)
	after, samplesAfter := j.stepOf(b)
	if after == 0 || peakOfSteps(b) == 0 {
		return
	}
	if p.SecondsAfter = after; before > 0 {
		p.SecondsBefore, p.SecondsAfter = before, after*samples/samplesAfter
	}
}

// peakOfSteps is the highest peak of a rank in an attempt that completed steps; 0 otherwise.
func peakOfSteps(a Attempt) (peak int64) {
	for _, m := range a.Measured {
		if m.Failed != "" {
			return 0
		}
		if m.Steps > 1 {
			peak = max(peak, m.Peak)
		}
	}
	return peak
}

// atFailure is the memory that an attempt held and requested when memory ran out; 0: not known.
func atFailure(a Attempt) (bytes int64) {
	for _, m := range a.Measured {
		if m.Failed != "" && m.Allocated > 0 {
			bytes = max(bytes, m.Allocated+m.Requested)
		}
	}
	if d := a.Diagnosis; bytes == 0 && d.OutOfMemory() && d.Allocated != nil && d.Requested != nil {
		return *d.Allocated + *d.Requested
	}
	return bytes
}

// stepOf is the time of an optimizer step in seconds, and its samples over all ranks; 0: not
// measured.
func (j Job) stepOf(a Attempt) (seconds, samples float64) {
	for _, m := range j.Measured(a) {
		if n := m.Plan.MicroBatch * max(m.Plan.Accumulation, 1) * max(m.Plan.DataParallel, 1); m.StepSeconds > 0 && n > 0 {
			return m.StepSeconds, float64(n)
		}
	}
	return 0, 0
}

// The errors of two measurements, as fractions: of peaks, which depend on the order of allocations,
// and of step times.
const (
	peakError = 0.01
	timeError = 0.03
)

// String is a line for people: "checkpointing none→full saved 13.0 GiB (22.4→9.4) for 1.2 times
// the step time"; empty if neither was measured. A figure of a plan that ran out of memory is "at
// least".
func (p *Price) String() string {
	words := p.Changed.String()
	memory, time := p.Memory(), p.Time()
	if memory == "" && time == "" {
		return ""
	}
	if memory != "" {
		words += " " + memory
	}
	if time != "" {
		words += " for " + time
	}
	return words
}

// Memory is the part of the line about bytes: "saved at least 3.0 GiB (9.0→6.0)"; empty: not
// measured, or no more than the error of measurements.
func (p *Price) Memory() string {
	before, after := p.BytesBefore, p.BytesAfter
	unclear := float64(max(before, after)-min(before, after)) < peakError*float64(max(before, after))
	if before <= 0 || after <= 0 || unclear || p.AtLeast && before < after {
		return ""
	}
	sure := ""
	if p.AtLeast {
		sure = "at least "
	}
	size, unit := memory.Unit(before, after)
	span := fmt.Sprintf(" (%s→%s)", size(before), size(after))
	if before < after {
		return "took " + size(after-before) + unit + " more" + span
	}
	return "saved " + sure + size(before-after) + unit + span
}

// Time is the part of the line about a step: "1.3 times the step time"; empty: not measured both
// before and after.
func (p *Price) Time() string {
	if p.SecondsBefore <= 0 || p.SecondsAfter <= 0 {
		return ""
	}
	times := p.SecondsAfter / p.SecondsBefore
	if math.Abs(times-1) < timeError {
		return "the same step time"
	}
	return fmt.Sprintf("%.2g times the step time", times)
}

// Headroom compares the memory that a job needed with the memory that it had, and lists what else
// would have fitted. Bytes are of the device's allocator.
type Headroom struct {
	Peak int64 `json:"peak_bytes"`
	Room int64 `json:"room_bytes"` // that the allocator could have held
	// Free: Room is the free memory of the host, not all of it.
	Free bool `json:"free,omitempty"`
	// Card is the smallest common card on which the plan fits, in gigabytes as it is sold; 0 if
	// the job's card is no larger, or nothing is known.
	Card int `json:"card_gigabytes,omitempty"`
	// MicroBatch is the largest micro batch, by doubling, that fits with all other settings; 0 if
	// no larger one does.
	MicroBatch int `json:"micro_batch,omitempty"`
	// Called is the batch size of the model's calls, if no setting of the job is known to set it;
	// MicroBatch would replace it.
	Called int `json:"called_batch,omitempty"`
}

// headroom returns the headroom of the last attempt, which trained; nil if nothing was measured.
func (s *situation) headroom() *Headroom {
	if len(s.last.Measured) == 0 {
		return nil
	}
	p, why := s.predictor()
	if why != "" {
		return nil
	}
	used := p.memory(s.ran(s.last))
	_, held := CountInPlace(s.last.InPlace)
	h := &Headroom{Room: p.fit.Capacity(used), Peak: held}
	for _, m := range s.last.Measured {
		h.Peak = max(h.Peak, m.Peak)
	}
	if h.Peak == 0 || h.Room == 0 {
		return nil
	}
	d := s.device()
	h.Free = d.CPU && s.inventory.HostTotal > 0 && (d.Allowed == 0 || d.Total < d.Allowed)
	if held > 0 { // what is free is free only since steps are done in place
		return h
	}
	if h.MicroBatch = largest(p.fit, used); h.MicroBatch > 0 && s.cannot(MicroBatchSize) != "" {
		h.Called = used.MicroBatch
	}
	if !d.CPU {
		h.Card = smallestCard(p.fit, used, h.Peak, s.last.Measured)
	}
	return h
}

// largest is the largest micro batch, by doubling, that fits with a plan's other settings; 0 if
// the plan already has it. Predictions are not trusted beyond three doublings.
func largest(fit *memory.Predictor, plan memory.RankPlan) int {
	found, next := 0, plan
	for range 3 {
		next.MicroBatch *= 2
		if next.Accumulation%2 == 0 {
			next.Accumulation /= 2
		}
		p := fit.Predict(next)
		if next.MicroBatch == 0 || p.Unknown != "" || !p.Measured() || p.Bound > fit.Room(next) {
			break
		}
		found = next.MicroBatch
	}
	return found
}

// smallestCard is the smallest card on which a plan with a measured peak fits, together with the
// memory that its process holds outside the allocator; 0 if no card smaller than the present one
// would do.
func smallestCard(fit *memory.Predictor, plan memory.RankPlan, peak int64, measured []memory.Measurement) int {
	total := int64(0)
	for _, m := range measured {
		total = max(total, m.Total)
	}
	card, found := memory.SmallestCard(fit.Suffices(plan, peak) + fit.Outside(plan))
	if !found || card.Bytes >= total {
		return 0
	}
	return card.Gigabytes
}

// room is the memory that the job had, for the end of a sentence: " of 40.0 GiB", " of 22.3 GiB
// free".
func (h *Headroom) room(size, unit string) string {
	if h.Free {
		unit += " free"
	}
	return " of " + size + unit
}

// PeakWords compares a predicted with a measured peak: "predicted 36.1–37.8, measured 36.9 of 40.0
// GiB". The peak of a job that ran out of memory is "at least". Empty: neither is known.
func PeakWords(p *memory.Prediction, peak int64, ranOut bool, h *Headroom) string {
	var sizes []int64
	if p != nil && p.Mean > 0 {
		sizes = append(sizes, p.Mean, p.Bound)
	}
	if peak > 0 {
		sizes = append(sizes, peak)
	}
	if len(sizes) == 0 {
		return ""
	}
	if h != nil {
		sizes = append(sizes, h.Room)
	}
	size, unit := memory.Unit(sizes...)
	var words []string
	if p != nil && p.Mean > 0 {
		predicted := "predicted " + size(p.Mean)
		if most := size(p.Bound); most != size(p.Mean) {
			predicted += "–" + most
		}
		words = append(words, predicted)
	}
	switch {
	case peak > 0 && ranOut:
		words = append(words, "at least "+size(peak))
	case peak > 0:
		words = append(words, "measured "+size(peak))
	}
	if h != nil {
		unit = h.room(size(h.Room), unit)
	}
	return strings.Join(words, ", ") + unit
}

// Words is a line for people: "peak 36.9 of 40.0 GiB (8 % left); micro batch 32 fits; a card of
// 24 GB would do".
func (h *Headroom) Words() string {
	left := 100 * float64(h.Room-h.Peak) / float64(h.Room)
	size, unit := memory.Unit(h.Room)
	words := fmt.Sprintf("peak %s%s (%.0f %% left)", size(h.Peak), h.room(size(h.Room), unit), max(left, 0))
	switch {
	case h.Called > 0:
		words += fmt.Sprintf("; the model was called with a batch of %d, and one of %d fits", h.Called, h.MicroBatch)
	case h.MicroBatch > 0:
		words += fmt.Sprintf("; micro batch %d fits", h.MicroBatch)
	}
	if h.Card > 0 {
		words += fmt.Sprintf("; a card of %d GB would do", h.Card)
	}
	return words
}
