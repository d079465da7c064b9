package show

import (
	"math"
	"strconv"

	"github.com/gpurun/gpurun/strategy"
)

// mostLosses is how many attempts the page lists with their loss.
const mostLosses = 6

// A lastLoss is the last loss that an attempt reported.
type lastLoss struct {
	N    int
	Step int
	Loss string
}

// Losses are the last losses of the attempts that reported any.
func (d *ReportData) Losses() (losses []lastLoss) {
	for i := range d.Attempts {
		if step, loss, known := d.Attempts[i].loss(); known {
			losses = append(losses, lastLoss{d.Attempts[i].N, step, strconv.FormatFloat(loss, 'g', 4, 64)})
		}
	}
	return losses[max(len(losses)-mostLosses, 0):]
}

// loss is the last loss of the attempt: that of its samples, else of its progress in the output.
func (a *ReportedAttempt) loss() (step int, loss float64, known bool) {
	for i := len(a.Samples) - 1; i >= 0; i-- {
		if s := a.Samples[i]; s.Loss != nil && !math.IsNaN(*s.Loss) && !math.IsInf(*s.Loss, 0) {
			return s.Step, *s.Loss, true
		}
	}
	for _, f := range a.Evidence.Facts {
		if p := strategy.As[*strategy.Progress](f); p != nil && p.Loss != nil {
			return p.Last, *p.Loss, true
		}
	}
	return 0, 0, false
}
