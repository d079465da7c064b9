package show

import (
	"cmp"
	"fmt"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// stacks show what filled the memory, one row per attempt, so that attempts before and after a change can be
// compared.
type stacks struct {
	Rows  []stack
	Names []string
}

// A stack is the memory of one rank in one phase, by parts.
type stack struct {
	*ReportedAttempt
	memory.Breakdown
	Rank  int
	Words string // the phase
	Parts []stackPart
	// Wanted is the part for the failed request. Limit is the place of the limit, -1 for not shown.
	Wanted  stackPart
	Limit   int
	Allowed int64
	Changed strategy.Changes // before the attempt
}

// A stackPart is one colour of it.
type stackPart struct {
	Name  string
	X, W  int
	Bytes int64
}

// partNames are the parts in their order.
var partNames = []string{"weights", "gradients", "optimizer", "activations", "other"}

// Stacks shows the parts of what the attempts measured; nil where nothing was.
func (p *reportPage) Stacks() *stacks {
	s := &stacks{Names: partNames}
	scale := int64(0)
	for _, i := range p.shown {
		a := &p.Attempts[i]
		m, b, known := a.filled()
		if !known {
			continue
		}
		row := stack{ReportedAttempt: a, Breakdown: b, Rank: m.Rank, Limit: -1,
			Allowed: cmp.Or(m.Allowed, a.allowed(), a.allowedTo(m.Rank), m.Total)}
		row.Words = "at its peak, in " + phaseWords[b.Instant]
		if m.Failed != "" {
			row.Words = "out of memory in " + phaseWords[b.Instant]
		}
		if b.Requested > 0 {
			row.Words += ", " + gibText(b.Requested) + " more requested"
		}
		if i > 0 {
			row.Changed = p.Attempts[i-1].Used().Changed(a.Plan)
		}
		s.Rows = append(s.Rows, row)
		scale = max(scale, b.Held()+b.Requested, row.Allowed)
	}
	if len(s.Rows) == 0 {
		return nil
	}
	for i := range s.Rows {
		s.Rows[i].place(float64(scale) * 1.02)
	}
	return s
}

// filled is what a rank held, of the first rank for which that is known.
func (a *ReportedAttempt) filled() (memory.Measurement, memory.Breakdown, bool) {
	for _, m := range a.Measured {
		if b, known := m.Breakdown(); known {
			return m, b, true
		}
	}
	return memory.Measurement{}, memory.Breakdown{}, false
}

// allowed is what the attempt's ranks could hold, 0 where that is not known.
func (a *ReportedAttempt) allowed() int64 {
	if p := a.Diagnosis.Allowed; p != nil {
		return *p
	}
	return cmp.Or(a.Inventory.Device.Allowed, a.Inventory.Device.Total)
}

// allowedTo is what a rank could hold by its samples, 0 where they do not show it.
func (a *ReportedAttempt) allowedTo(rank int) (bytes int64) {
	for _, s := range a.Samples {
		if s.Rank == rank && s.Allowed > 0 {
			bytes = s.Allowed
		}
	}
	return bytes
}

// phaseWords are the names of package memory's phases.
var phaseWords = map[string]string{
	"load": "loading the model", "forward": "the forward pass", "loss": "the loss", "backward": "the backward pass",
	"optimizer": "the optimizer's step", "evaluation": "evaluation",
}

// place puts the parts next to each other on a common scale.
func (s *stack) place(scale float64) {
	x := 0.
	for i, bytes := range []int64{s.Weights, s.Gradients, s.Optimizer, s.Activations, s.Other} {
		to := x + float64(bytes)/scale
		s.Parts = append(s.Parts, stackPart{partNames[i], int(x * wide), int(to*wide) - int(x*wide), bytes})
		x = to
	}
	if s.Requested > 0 {
		s.Wanted = stackPart{"wanted", int(x * wide), max(int(float64(s.Requested)/scale*wide), 3), s.Requested}
	}
	if at := float64(s.Allowed) / scale; s.Allowed > 0 && at <= 1 {
		s.Limit = int(at * wide)
	}
}

// A phaseRow is what a rank measured in one phase of its first two steps.
type phaseRow struct {
	Name          string
	First, Second int64 // bytes; -1: none was measured
}

// PhaseRows are what the first measured rank held in each phase.
func (v attemptView) PhaseRows() (rows []phaseRow) {
	if len(v.Measured) == 0 {
		return nil
	}
	m := &v.Measured[0]
	for _, r := range []phaseRow{
		{"at the first call", m.Start, -1},
		{"peak of the forward", max(m.First.ForwardPeak, m.First.LaterPeak), max(m.Second.ForwardPeak, m.Second.LaterPeak)},
		{"after the forward", m.First.Forward, m.Second.Forward},
		{"peak of the backward", max(m.First.BackwardPeak, m.First.Micro), max(m.Second.BackwardPeak, m.Second.Micro)},
		{"before the optimizer's step", m.First.Before, m.Second.Before},
		{"peak of the optimizer's step", m.First.OptimizerPeak, m.Second.OptimizerPeak},
		{"after the step", m.First.After, m.Second.After},
		{"peak of evaluation", m.Evaluation, -1},
	} {
		if r.First > 0 || r.Second > 0 {
			rows = append(rows, r)
		}
	}
	if m.Steps > 0 {
		rows = append(rows, phaseRow{fmt.Sprintf("peak over %s", strategy.Count(m.Steps, "step")), m.Peak, -1})
	}
	return rows
}
