package strategy

import (
	"fmt"
	"strings"
	"time"
)

// A Recalled is the plan of an earlier run that attempt 0 runs with in place of the job
// as written.
type Recalled struct {
	// Fit names what it is remembered under, for people who look for it.
	Fit  string `json:"fit"`
	Plan Plan   `json:"plan"`
	// Changed is how it differs from the job as written.
	Changed Changes `json:"changed"`
	// Training is what it does to the training, by what was seen when it fitted.
	Training Training `json:"training,omitempty"`
	// At is when it fitted, and Age how long before this run began that was.
	At  time.Time `json:"at"`
	Age Seconds   `json:"age_seconds"`
	// Peak is what it then held of Room at most, in bytes; 0: not known.
	Peak int64 `json:"peak_bytes,omitempty"`
	Room int64 `json:"room_bytes,omitempty"`
}

// lastYear is from when on a date needs its year.
const lastYear = 300 * 24 * time.Hour

// String tells people of it, with the dates of their place: "starting with the plan that
// fitted on 21 Nov (micro batch 8, full checkpointing, peak 71 of 80 GiB)".
func (r Recalled) String() string { return r.In(time.Local) }

// In is String with the dates of a place.
func (r Recalled) In(place *time.Location) string {
	day := "2 Jan"
	if r.Age.Duration() > lastYear {
		day = "2 Jan 2006"
	}
	var words []string
	for _, k := range Knobs {
		pair, changed := r.Changed[k]
		switch _, batch := r.Changed[MicroBatchSize]; {
		case !changed, k == GradientAccumulationSteps && batch: // it follows from the batch
		case k.Whole() || k == Optimizer || k == Allocator || k == PinMemory:
			words = append(words, fmt.Sprintf("%s %s", k.Short(), pair[1]))
		case k == OffloadOptimizer || k == OffloadParam || k == OffloadActivations:
			words = append(words, fmt.Sprintf("%s to %s", k.Short(), pair[1]))
		case pair[1] == "none":
			words = append(words, "no "+k.Short())
		default:
			words = append(words, fmt.Sprintf("%s %s", pair[1], k.Short()))
		}
	}
	if r.Training == Average {
		words = append(words, r.Training.Words(""))
	}
	if r.Peak > 0 && r.Room > 0 {
		words = append(words, "peak "+portion(r.Peak, r.Room))
	}
	return fmt.Sprintf("starting with the plan that fitted on %s (%s)", r.At.In(place).Format(day), strings.Join(words, ", "))
}

// portion says a part of some bytes: "71 of 80 GiB".
func portion(part, whole int64) string {
	const mib, gib = 1 << 20, 1 << 30
	switch {
	case whole >= 10*gib:
		return fmt.Sprintf("%.0f of %.0f GiB", float64(part)/gib, float64(whole)/gib)
	case whole >= gib:
		return fmt.Sprintf("%.1f of %.1f GiB", float64(part)/gib, float64(whole)/gib)
	}
	return fmt.Sprintf("%.0f of %.0f MiB", float64(part)/mib, float64(whole)/mib)
}
