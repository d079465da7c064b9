package runstate

import "time"

// paceSpan is how far back a rate looks: long enough for slow steps, and short enough to
// show that something became slower.
const paceSpan = time.Minute

// A pace tells how fast steps come, from the moments at which their number was seen to
// change. What came before the first of them, such as loading and compiling, does not count.
type pace struct {
	recent []mark // of the last paceSpan, and one before it
	first  mark   // where the whole attempt is counted from
}

type mark struct {
	at   time.Time
	step int
}

// add takes the number of the latest step. One that is smaller than before is counted by
// somebody else.
func (p *pace) add(at time.Time, step int) {
	n := len(p.recent)
	switch {
	case step <= 0 || n > 0 && step == p.recent[n-1].step:
		return
	case n == 0 || step < p.recent[n-1].step:
		p.recent, p.first = p.recent[:0], mark{at, step}
	}
	p.recent = append(p.recent, mark{at, step})
	for len(p.recent) > 2 && at.Sub(p.recent[1].at) > paceSpan {
		p.recent = p.recent[1:]
	}
}

// rate is how many steps come in a second now, 0 where that is not known. It falls where
// none come any more.
func (p *pace) rate(now time.Time) float64 {
	if len(p.recent) < 2 {
		return 0
	}
	first, last := p.recent[0], p.recent[len(p.recent)-1]
	rate := perSecond(first, last)
	if silence := now.Sub(last.at).Seconds(); silence > 2/rate+2 {
		rate = perSecond(first, mark{now, last.step})
	}
	return rate
}

// left is how long the rest of the steps will take, by all that were seen; false where that
// is not known.
func (p *pace) left(total int) (time.Duration, bool) {
	if len(p.recent) < 2 || total <= 0 {
		return 0, false
	}
	last := p.recent[len(p.recent)-1]
	return time.Duration(float64(max(total-last.step, 0)) / perSecond(p.first, last) * float64(time.Second)), true
}

func perSecond(from, to mark) float64 {
	return float64(to.step-from.step) / to.at.Sub(from.at).Seconds()
}
