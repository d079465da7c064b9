package show

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// wide is the width of a bar, in its own units: the browser stretches it.
const wide = 1000

// A timeline has a bar for each attempt.
type timeline struct {
	Rows []timelineBar
	Left string // says which attempts and pauses are omitted
}

// A timelineBar is an attempt in time.
type timelineBar struct {
	*ReportedAttempt
	X, W   int
	Lasted string
	Link   bool // it is shown in full
}

// Milliseconds is how long the attempt ran.
func (b timelineBar) Milliseconds() int64 { return b.lasted().Milliseconds() }

// Timeline shows when the attempts ran.
func (p *reportPage) Timeline() timeline {
	var t timeline
	full := map[int]bool{}
	for _, i := range p.shown {
		full[i] = true
	}
	starts, span, packed := p.spans()
	for i := range p.Attempts {
		if i > 0 && i <= len(p.Attempts)-mostRows {
			continue
		}
		row, ran := timelineBar{ReportedAttempt: &p.Attempts[i], Link: full[i]}, p.ran(&p.Attempts[i])
		if ran > 0 {
			row.Lasted = brief(ran)
		}
		if span > 0 {
			row.W = max(int(wide*ran/span), 4)
			row.X = min(int(wide*starts[i]/span), wide-row.W)
		}
		t.Rows = append(t.Rows, row)
	}
	var left []string
	if n := len(p.Attempts) - len(t.Rows); n > 0 {
		left = append(left, fmt.Sprintf("%s after the first are not shown here", strategy.Count(n, "attempt")))
	}
	if packed {
		left = append(left, "the time between attempts is omitted: it was longer than the attempts")
	}
	t.Left = strings.Join(left, "; ")
	return t
}

// ran is how long an attempt ran, or has been running.
func (d *ReportData) ran(a *ReportedAttempt) time.Duration {
	if a.Class == "run" {
		return max(d.Made.Sub(a.Begin()), 0)
	}
	return a.lasted()
}

// spans are the times from the beginning to each attempt's start, and to the end of all.
// packed: the time between attempts was the larger part, and is omitted.
func (d *ReportData) spans() (starts []time.Duration, all time.Duration, packed bool) {
	var sum time.Duration
	joined := make([]time.Duration, len(d.Attempts))
	for i := range d.Attempts {
		a := &d.Attempts[i]
		begin := max(a.Begin().Sub(d.Attempts[0].Begin()), 0)
		starts, joined[i] = append(starts, begin), sum
		sum += d.ran(a)
		all = max(all, begin+d.ran(a))
	}
	if sum > 0 && all > 2*sum {
		return joined, sum, true
	}
	return starts, all, false
}
