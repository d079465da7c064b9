package journal

import "time"

// paceSpan is the period of a rate: long enough for slow steps, and short enough to show that
// steps became slower.
const paceSpan = time.Minute

// A stepPace measures the rate of steps, by the times when their number changed. The time before
// the first of them, such as loading and compiling, does not count.
type stepPace struct {
	recent []stepTime // of the last paceSpan, and one before it
	first  stepTime   // the first of the attempt
}

type stepTime struct {
	at   time.Time
	step int
}

// add adds the number of the latest step. A smaller one than before begins another count.
func (p *stepPace) add(at time.Time, step int) {
	n := len(p.recent)
	switch {
	case step <= 0 || n > 0 && step == p.recent[n-1].step:
		return
	case n == 0 || step < p.recent[n-1].step:
		p.recent, p.first = p.recent[:0], stepTime{at, step}
	}
	p.recent = append(p.recent, stepTime{at, step})
	for len(p.recent) > 2 && at.Sub(p.recent[1].at) > paceSpan {
		p.recent = p.recent[1:]
	}
}

// rate returns the current number of steps in a second, 0 if not known. It falls when
// steps stop.
func (p *stepPace) rate(now time.Time) float64 {
	if len(p.recent) < 2 {
		return 0
	}
	first, last := p.recent[0], p.recent[len(p.recent)-1]
	rate := perSecond(first, last)
	if silence := now.Sub(last.at).Seconds(); silence > 2/rate+2 {
		rate = perSecond(first, stepTime{now, last.step})
	}
	return rate
}

// left returns the time of the remaining steps, by the average of all; false if it is not
// known.
func (p *stepPace) left(total int) (time.Duration, bool) {
	if len(p.recent) < 2 || total <= 0 {
		return 0, false
	}
	last := p.recent[len(p.recent)-1]
	return time.Duration(float64(max(total-last.step, 0)) / perSecond(p.first, last) * float64(time.Second)), true
}

func perSecond(from, to stepTime) float64 {
	return float64(to.step-from.step) / to.at.Sub(from.at).Seconds()
}
