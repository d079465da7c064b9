package report

import (
	"cmp"
	"fmt"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// stacks show what filled the memory, an attempt a row, so that those before and after a
// change stand one below the other.
type stacks struct {
	Rows  []stack
	Names []string
	Left  string
}

// A stack is what one rank held at one instant.
type stack struct {
	N, Rank int
	Words   string // the instant
	Class   string
	Parts   []stackPart
	// Wanted is where the request that failed would lie, Limit where what was allowed ends,
	// -1 for not shown.
	Wanted  stackPart
	Limit   int
	Held    int64
	Allowed int64
	Changed string // before the attempt
}

// A stackPart is one colour of it.
type stackPart struct {
	Class, Name string
	X, W        int
	Bytes       int64
}

// partNames are the parts in their order.
var partNames = []string{"weights", "gradients", "optimizer", "activations", "other"}

// stacks takes apart what the attempts measured; nil where nothing was.
func (d *Data) stacks(shown []int) *stacks {
	s := &stacks{Names: partNames}
	var measured []memory.Breakdown
	top := int64(0)
	for _, i := range shown {
		a := &d.Attempts[i]
		m, b, known := a.filled()
		if !known {
			continue
		}
		row := stack{N: a.N, Rank: m.Rank, Held: b.Held(), Limit: -1}
		_, row.Class = d.ended(a)
		row.Allowed = cmp.Or(m.Allowed, a.allowed(), a.allowedTo(m.Rank), m.Total)
		row.Words = "at its peak, in " + instants[b.Instant]
		if m.Failed != "" {
			row.Words = "out of memory in " + instants[b.Instant]
		}
		if b.Requested > 0 {
			row.Words += ", " + gib(b.Requested) + " more wanted"
		}
		row.Words = d.say.short(row.Words)
		if i > 0 {
			row.Changed = d.say.text(d.Attempts[i-1].Used().Changed(a.Plan).String(), longLine)
		}
		measured, s.Rows = append(measured, b), append(s.Rows, row)
		top = max(top, b.Held()+b.Requested)
	}
	if len(s.Rows) == 0 {
		return nil
	}
	scale := top
	for _, row := range s.Rows {
		scale = max(scale, row.Allowed)
	}
	for i, b := range measured {
		s.Rows[i].stack(b, float64(scale)*1.02)
	}
	return s
}

// filled is what the rank held that says the most.
func (a *Attempt) filled() (memory.Measurement, memory.Breakdown, bool) {
	for _, m := range a.Measured {
		if b, known := m.Breakdown(); known {
			return m, b, true
		}
	}
	return memory.Measurement{}, memory.Breakdown{}, false
}

// allowed is what the attempt's ranks could hold, 0 where that is not known.
func (a *Attempt) allowed() int64 {
	if p := a.Diagnosis.Allowed; p != nil {
		return *p
	}
	return cmp.Or(a.Inventory.Device.Allowed, a.Inventory.Device.Total)
}

// allowedTo is what its samples say that a rank could hold, 0 where they do not.
func (a *Attempt) allowedTo(rank int) (bytes int64) {
	for _, s := range a.Series {
		for _, one := range s.Samples {
			if s.Rank == rank && one.Allowed > 0 {
				bytes = one.Allowed
			}
		}
	}
	return bytes
}

// instants are the words for those of package memory.
var instants = map[string]string{
	"load": "loading the model", "forward": "the forward pass", "loss": "the loss", "backward": "the backward pass",
	"optimizer": "the optimizer's step", "evaluation": "evaluation",
}

func (s *stack) stack(b memory.Breakdown, scale float64) {
	x := 0.
	for i, bytes := range []int64{b.Weights, b.Gradients, b.Optimizer, b.Activations, b.Other} {
		to := x + float64(bytes)/scale
		s.Parts = append(s.Parts, stackPart{partNames[i], partNames[i], int(x * wide), int(to*wide) - int(x*wide), bytes})
		x = to
	}
	if b.Requested > 0 {
		s.Wanted = stackPart{"wanted", "wanted", int(x * wide), max(int(float64(b.Requested)/scale*wide), 3), b.Requested}
	}
	if at := float64(s.Allowed) / scale; s.Allowed > 0 && at <= 1 {
		s.Limit = int(at * wide)
	}
}

// An instantRow is what a rank measured at one instant of its first two steps.
type instantRow struct {
	Name          string
	First, Second string
}

// instantRows are what the rank measured, for who wants more than the peak.
func instantRows(m memory.Measurement) (rows []instantRow) {
	if m.Start > 0 {
		rows = append(rows, instantRow{"at the first call", gib(m.Start), ""})
	}
	for _, r := range []struct {
		name          string
		first, second int64
	}{
		{"peak of the forward", max(m.First.ForwardPeak, m.First.LaterPeak), max(m.Second.ForwardPeak, m.Second.LaterPeak)},
		{"after the forward", m.First.Forward, m.Second.Forward},
		{"peak of the backward", max(m.First.BackwardPeak, m.First.Micro), max(m.Second.BackwardPeak, m.Second.Micro)},
		{"before the optimizer's step", m.First.Before, m.Second.Before},
		{"peak of the optimizer's step", m.First.OptimizerPeak, m.Second.OptimizerPeak},
		{"after the step", m.First.After, m.Second.After},
	} {
		if r.first > 0 || r.second > 0 {
			rows = append(rows, instantRow{r.name, gib(r.first), gib(r.second)})
		}
	}
	if m.Evaluation > 0 {
		rows = append(rows, instantRow{"peak of evaluation", gib(m.Evaluation), ""})
	}
	if m.Steps > 0 {
		rows = append(rows, instantRow{fmt.Sprintf("peak over %s", strategy.Count(m.Steps, "step")), gib(m.Peak), ""})
	}
	return rows
}
