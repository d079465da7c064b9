package strategy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Trial is one of the exact ways to do a step that a process tried after a step had run out of memory.
type Trial struct {
	Recomputed int   `json:"recomputed"` // so many of Blocks, from the first on; without Blocks it is not known
	Blocks     int   `json:"blocks,omitempty"`
	Parts      int   `json:"parts,omitempty"`       // of the batch
	LossParts  bool  `json:"loss_parts,omitempty"`  // the loss was computed in parts
	Moved      int64 `json:"moved_bytes,omitempty"` // to host memory, in each forward pass
	// Elements are those of the largest inputs until then: with larger ones the search begins anew.
	Elements int64   `json:"elements"`
	Steps    int     `json:"steps"`      // that ended well
	Seconds  Seconds `json:"seconds"`    // of one sample, the median; 0: not known
	Peak     int64   `json:"peak_bytes"` // the highest of these steps; 0: not known
	Outcome  string  `json:"outcome"`    // one of TrialOutcomes
	Kept     bool    `json:"kept"`       // the process goes on so
}

// TrialOutcomes say why a way to do a step was given up; empty: for a faster one, or not.
var TrialOutcomes = []string{"", "out of memory", "short of memory"}

// Words are for people: "5 of 8 blocks recomputed: 12 steps, 0.150 s a sample, peak 20.1 GiB; kept".
func (t Trial) Words() string {
	var seen []string
	if t.Steps > 0 {
		seen = append(seen, Count(t.Steps, "step"))
	}
	if t.Seconds > 0 {
		seen = append(seen, t.speed())
	}
	if t.Peak > 0 {
		seen = append(seen, "peak "+GiB(t.Peak))
	}
	if t.Outcome != "" {
		seen = append(seen, t.Outcome)
	}
	words := t.way()
	if len(seen) > 0 {
		words += ": " + strings.Join(seen, ", ")
	}
	if t.Kept {
		words += "; kept"
	}
	return words
}

func (t Trial) speed() string {
	return fmt.Sprintf("%s a sample", t.Seconds.Duration().Round(10*time.Microsecond))
}

// way is what a process does differently.
func (t Trial) way() string {
	var with []string
	if t.Blocks > 0 {
		with = append(with, fmt.Sprintf("%d of %s recomputed", t.Recomputed, Count(t.Blocks, "block")))
	}
	if t.Parts > 0 {
		with = append(with, fmt.Sprintf("batch in %d parts", t.Parts))
	}
	if t.LossParts {
		with = append(with, "loss in parts")
	}
	if t.Moved > 0 {
		with = append(with, GiB(t.Moved)+" of activations in host memory")
	}
	if len(with) == 0 {
		return "as without gpurun"
	}
	return strings.Join(with, ", ")
}

// Kept is the way in which a process does its steps since a repeat; nil: it is still looking for it, or does not look.
func (r InPlace) Kept() *Trial {
	if i := slices.IndexFunc(r.Trials, func(t Trial) bool { return t.Kept }); i >= 0 {
		return &r.Trials[i]
	}
	return nil
}

// Tuned is a sentence about the way that was kept; empty for none.
func (r InPlace) Tuned() string {
	kept := r.Kept()
	if kept == nil {
		return ""
	}
	words := fmt.Sprintf("rank %d: from now on %s", r.Rank, kept.way())
	if len(r.Trials) > 1 {
		words += fmt.Sprintf(", the fastest of %d exact ways that were tried", len(r.Trials))
	}
	if first := r.Trials[0]; kept.Seconds > 0 && first.Seconds > 0 && !first.Kept {
		words += fmt.Sprintf(" (%s, %s after the rescue)", kept.speed(), first.Seconds.Duration().Round(10*time.Microsecond))
	}
	return words
}
