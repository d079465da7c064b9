package report

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// wide is the width of a bar, in its own units: the browser stretches it.
const wide = 1000

// A timeline has a bar for each attempt.
type timeline struct {
	Rows []bar
	Left string // says which are left out, or that pauses are
}

// A bar is an attempt in time.
type bar struct {
	N            int
	Class        string
	X, W         int
	Words, Began string
	Lasted       string
	Link         bool // it is shown in full
	Milliseconds int64
}

// ended says in a word or two how an attempt ended, and the colour for it.
func (d *Data) ended(a *Attempt) (words, class string) {
	switch {
	case !a.ended() && d.Running && a.N == d.Attempts[len(d.Attempts)-1].N:
		return "running", "run"
	case !a.ended():
		return "cut off together with gpurun", "stop"
	case a.Decision.Rule == "climb":
		return "stopped for a faster plan", "climb"
	case a.Evidence.Halted:
		return "stopped: a change did not take effect", "stop"
	case a.Evidence.Unstarted != nil:
		return "could not be started", "bad"
	case a.Diagnosis.OutOfMemory():
		return a.Diagnosis.Sentence(), "oom"
	case a.Diagnosis.Fatal:
		return a.Diagnosis.Sentence(), "bad"
	case a.stopped() && a.Decision.Outcome == strategy.Trained:
		return "trained", "good"
	case a.stopped():
		return a.Decision.Outcome.Words(), "stop"
	}
	return "nothing fatal", "stop"
}

func (d *Data) timeline(shown []int) timeline {
	var t timeline
	full := map[int]bool{}
	for _, i := range shown {
		full[i] = true
	}
	starts, span, pauses := d.spans()
	for i := range d.Attempts {
		if i > 0 && i <= len(d.Attempts)-mostRows {
			continue
		}
		a := &d.Attempts[i]
		words, class := d.ended(a)
		lasted := d.ran(a)
		row := bar{N: a.N, Class: class, Words: d.say.text(words, longLine), Began: clock(a.Begin()), Link: full[i], Milliseconds: a.lasted().Milliseconds()}
		if lasted > 0 {
			row.Lasted = brief(lasted)
		}
		if span > 0 {
			row.X = int(wide * starts[i] / span)
			row.W = max(int(wide*lasted/span), 4)
			row.X = min(row.X, wide-row.W)
		}
		t.Rows = append(t.Rows, row)
	}
	if n := len(d.Attempts) - len(t.Rows); n > 0 {
		t.Left = fmt.Sprintf("%s after the first are not shown here", strategy.Count(n, "attempt"))
	}
	if pauses {
		if t.Left != "" {
			t.Left += "; "
		}
		t.Left += "the time between attempts is left out, which was longer than the attempts"
	}
	return t
}

// ran is how long an attempt ran, or has been running.
func (d *Data) ran(a *Attempt) time.Duration {
	if _, class := d.ended(a); class == "run" {
		return max(d.Made.Sub(a.Begin()), 0)
	}
	return a.lasted()
}

// spans are the times from the beginning to each attempt's start, and to the end of all. Where the
// time between attempts is the larger part, it is left out.
func (d *Data) spans() (starts []time.Duration, all time.Duration, pauses bool) {
	if len(d.Attempts) == 0 {
		return nil, 0, false
	}
	var sum time.Duration
	first := d.Attempts[0].Begin()
	packed := make([]time.Duration, len(d.Attempts))
	for i := range d.Attempts {
		a := &d.Attempts[i]
		begin := max(a.Begin().Sub(first), 0)
		starts, packed[i] = append(starts, begin), sum
		sum += d.ran(a)
		all = max(all, begin+d.ran(a))
	}
	if sum > 0 && all > 2*sum {
		return packed, sum, true
	}
	return starts, all, false
}

// leftOut says which attempts are not shown in full.
func (d *Data) leftOut(shown []int) string {
	n := len(d.Attempts) - len(shown)
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("%s in between are not shown in full: the journal has them, and gpurun explain shows what was decided.", strategy.Count(n, "attempt"))
}

// A price is what the changes before an attempt saved and cost.
type price struct {
	N                           int
	Rungs, Changed              string
	Memory, Time                string
	BytesBefore, BytesAfter     int64
	SecondsBefore, SecondsAfter float64
}

// prices are those that are known.
func (d *Data) prices() (all []price) {
	for i := range d.Attempts {
		p := d.Attempts[i].Price
		if p == nil || len(all) == mostRows {
			continue
		}
		all = append(all, price{
			N: d.Attempts[i].N, Rungs: d.say.text(joined(p.Rungs), longLine), Changed: d.say.text(p.Changed.String(), longLine),
			Memory: cmp.Or(p.Memory(), "not known"), Time: seconds(p), BytesBefore: p.BytesBefore, BytesAfter: p.BytesAfter, SecondsBefore: p.SecondsBefore, SecondsAfter: p.SecondsAfter,
		})
	}
	return all
}

// seconds says how long a step takes, and where that was only estimated.
func seconds(p *strategy.Price) string {
	switch after := fmt.Sprintf("%.3g s", p.SecondsAfter); {
	case p.SecondsAfter <= 0:
		return "not known"
	case p.SecondsBefore <= 0:
		return after + "; before, no step was measured"
	case p.Estimated:
		return fmt.Sprintf("%s: %s measured, the time before is the planner's estimate", p.Time(), after)
	default:
		return fmt.Sprintf("%s: %.3g → %s", p.Time(), p.SecondsBefore, after)
	}
}
