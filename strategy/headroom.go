package strategy

import (
	"fmt"

	"github.com/gpurun/gpurun/strategy/memory"
)

// Headroom is what a job needed beside what there was, and what else would have done.
// Bytes are of the device's allocator.
type Headroom struct {
	Peak int64 `json:"peak_bytes"`
	Room int64 `json:"room_bytes"` // that the allocator could have held
	// Free says that this is what was free of the host's memory, and not all of it.
	Free bool `json:"free,omitempty"`
	// Card is the smallest card that people have on which the plan fits, in gigabytes as it
	// is sold; 0 where the job's own is no larger, or none is known.
	Card int `json:"card_gigabytes,omitempty"`
	// MicroBatch is the largest micro batch, by doubling, that fits beside all else; 0 where
	// no larger one does.
	MicroBatch int `json:"micro_batch,omitempty"`
	// Called is the batch that the model was called with, where no setting of the job is known
	// to be it: MicroBatch is in its place. 0 where one is.
	Called int `json:"called_batch,omitempty"`
}

// headroom is that of the last attempt, which trained; nil where nothing was measured.
func (s *situation) headroom() *Headroom {
	if len(s.last.Measured) == 0 {
		return nil
	}
	fit, t, why := s.fitted()
	if why != "" {
		return nil
	}
	ran := t.memory(s.learned.With(s.job.used(s.last)))
	h := &Headroom{Room: fit.Capacity(ran)}
	for _, m := range s.last.Measured {
		h.Peak = max(h.Peak, m.Peak)
	}
	if h.Peak == 0 || h.Room == 0 {
		return nil
	}
	if h.MicroBatch = largest(fit, ran); h.MicroBatch > 0 && s.cannot(MicroBatchSize) != "" {
		h.Called = ran.MicroBatch
	}
	if d := s.device(); d.CPU {
		h.Free = s.inventory.HostTotal > 0 && (d.Allowed == 0 || d.Total < d.Allowed)
	} else {
		h.Card = smallestCard(fit, ran, s.last.Measured)
	}
	return h
}

// doublings bounds how far beyond what was measured a larger micro batch is vouched for.
const doublings = 3

// largest is the largest micro batch, by doubling, that fits with a plan's other settings;
// 0 where its own is that.
func largest(fit *memory.Predictor, plan memory.RankPlan) int {
	found, next := 0, plan
	for range doublings {
		next.MicroBatch *= 2
		if next.Accumulation%2 == 0 {
			next.Accumulation /= 2
		}
		p := fit.Predict(next)
		if next.MicroBatch == 0 || p.Unknown != "" || p.Bound > fit.Room(next) {
			break
		}
		found = next.MicroBatch
	}
	return found
}

// smallestCard is the smallest card that a plan fits on, where it is smaller than the one
// that it ran on, beside what the process held outside the allocator; 0 for none.
func smallestCard(fit *memory.Predictor, plan memory.RankPlan, measured []memory.Measurement) int {
	outside, total := int64(0), int64(0)
	for _, m := range measured {
		outside, total = max(outside, m.Outside), max(total, m.Total)
	}
	card, found := memory.SmallestCard(fit.Needs(plan, fit.Predict(plan).Bound) + outside)
	if !found || outside == 0 || card.Bytes >= total {
		return 0
	}
	return card.Gigabytes
}

// Of says what there was, and whether that is only what was free: "40.0 GiB", "22.3 GiB free".
func (h *Headroom) Of() string {
	size, unit := inUnit(h.Room)
	if h.Free {
		unit += " free"
	}
	return size(h.Room) + unit
}

// Measured writes bytes beside what Of says, in its unit: "36.9".
func (h *Headroom) Measured(bytes int64) string {
	size, _ := inUnit(h.Room)
	return size(bytes)
}

// Words says it as a person would: "peak 36.9 of 40.0 GiB (8 % left); micro batch 32 fits;
// a card of 24 GB would do".
func (h *Headroom) Words() string {
	left := 100 * float64(h.Room-h.Peak) / float64(h.Room)
	words := fmt.Sprintf("peak %s of %s (%.0f %% left)", h.Measured(h.Peak), h.Of(), max(left, 0))
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
