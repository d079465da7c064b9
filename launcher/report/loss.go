package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// mostLosses is how many attempts a chart of losses shows.
const mostLosses = 6

// A lossChart is the loss by step, a line an attempt.
type lossChart struct {
	Chart *chart // nil where nothing can be drawn
	Keys  []lossKey
}

// A lossKey is a line's attempt with its last loss.
type lossKey struct {
	Class string
	N     int
	Step  int
	Loss  string
}

// A curve is the loss of an attempt.
type curve struct {
	n     int
	steps []int
	loss  []float64
}

// Loss draws the losses that attempts reported; nil where none did.
func (p *reportPage) Loss() *lossChart {
	var curves []curve
	for i := range p.Attempts {
		if c := lossOf(&p.Attempts[i]); len(c.loss) > 0 {
			curves = append(curves, c)
		}
	}
	if len(curves) == 0 {
		return p.lastLosses()
	}
	curves = curves[max(len(curves)-mostLosses, 0):]
	c := &lossChart{Chart: newChart("Loss by step")}
	lowStep, topStep, low, top := extent(curves)
	for i, one := range curves {
		class := fmt.Sprintf("loss l%d", i+mostLosses-len(curves))
		dots := make([]dot, 0, 200)
		for _, k := range spread(len(one.loss), max(min(200, p.level.points/20), 2)) {
			dots = append(dots, dot{float64(one.steps[k]-lowStep) / float64(max(topStep-lowStep, 1)), (one.loss[k] - low) / (top - low)})
		}
		c.Chart.add(class, dots)
		last := len(one.loss) - 1
		c.Keys = append(c.Keys, lossKey{class, one.n, one.steps[last], number(one.loss[last])})
	}
	c.Chart.scale(low, top, 1, number)
	c.Chart.axis(float64(lowStep), float64(topStep), nil, func(v float64) string { return strconv.Itoa(int(v)) })
	return c
}

// lastLosses are the last losses of attempts without samples. There is nothing to draw.
func (d *Data) lastLosses() *lossChart {
	c := &lossChart{}
	for i := range d.Attempts {
		for _, f := range d.Attempts[i].Evidence.Facts {
			if p := f.Progress; p != nil && p.Loss != nil {
				c.Keys = append(c.Keys, lossKey{"", d.Attempts[i].N, p.Last, number(*p.Loss)})
				break
			}
		}
	}
	if len(c.Keys) == 0 {
		return nil
	}
	c.Keys = c.Keys[max(len(c.Keys)-mostLosses, 0):]
	return c
}

// lossOf is the loss of the lowest rank that reported any, by step.
func lossOf(a *ReportedAttempt) curve {
	for _, s := range a.Series {
		c := curve{n: a.N}
		for _, one := range s.Samples {
			if one.Loss == nil || math.IsNaN(*one.Loss) || math.IsInf(*one.Loss, 0) || one.Step <= 0 {
				continue
			}
			if n := len(c.steps); n > 0 && c.steps[n-1] >= one.Step {
				continue // a repeated report
			}
			c.steps, c.loss = append(c.steps, one.Step), append(c.loss, *one.Loss)
		}
		if len(c.loss) > 0 {
			return c
		}
	}
	return curve{}
}

// extent is the range of the axes. A few losses far above the others, as in the first steps,
// are cut at the edge, so that they do not flatten the rest.
func extent(curves []curve) (lowStep, topStep int, low, top float64) {
	var all []float64
	lowStep = math.MaxInt
	for _, c := range curves {
		lowStep, topStep = min(lowStep, c.steps[0]), max(topStep, c.steps[len(c.steps)-1])
		all = append(all, c.loss...)
	}
	slices.Sort(all)
	low, top = all[0], all[(len(all)-1)*98/100]
	if most := all[len(all)-1]; most-low < 4*(top-low) || len(all) < 20 {
		top = most
	}
	room := (top - low) * .06
	if !(room > 0) || math.IsInf(room, 0) {
		room = math.Max(math.Abs(top)*.1, 1e-9)
	}
	return lowStep, topStep, low - room, top + room
}

// spread are at most so many of n indices, evenly, the first and the last among them.
func spread(n, most int) []int {
	if n <= most {
		most = n
	}
	indices := make([]int, most)
	for i := range indices {
		indices[i] = i * (n - 1) / max(most-1, 1)
	}
	return indices
}

// number writes a figure with four digits.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
