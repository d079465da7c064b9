package nodes

import (
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A clockOffset converts the times of another machine to this one's clock. The offset is the least difference
// between the time at which the other machine sent a recent message and its arrival here: the difference of
// the two clocks plus the shortest delay.
type clockOffset struct {
	since        time.Time // start of the newer of two windows
	newer, older *time.Duration
}

// window is half of the longest time that a difference counts, since a clock may be adjusted. A difference
// counts for one to two windows.
const window = time.Minute

// observe takes in a message that was sent at a time there and arrived at a time here.
func (c *clockOffset) observe(sent, came time.Time) {
	if came.Sub(c.since) >= window {
		c.since, c.older, c.newer = came, c.newer, nil
	}
	if d := came.Round(0).Sub(sent); c.newer == nil || d < *c.newer {
		c.newer = &d
	}
}

// offset returns the duration to add to the other machine's times.
func (c *clockOffset) offset() time.Duration {
	switch {
	case c.newer == nil:
		return 0
	case c.older != nil && *c.older < *c.newer:
		return *c.older
	}
	return *c.newer
}

// local converts a time to this machine's clock. The zero time stays zero.
func (c *clockOffset) local(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(c.offset())
}

func (c *clockOffset) fact(f strategy.Fact) strategy.Fact {
	f.Time, f.Again = c.local(f.Time), c.local(f.Again)
	if sign := strategy.As[*strategy.Sign](f); sign != nil {
		s := c.sign(*sign)
		f.Content = &s
	}
	return f
}

func (c *clockOffset) sign(s strategy.Sign) strategy.Sign {
	for _, t := range []*time.Time{&s.Output, &s.Step, &s.Others, &s.Anyone, &s.Awake, &s.Saved} {
		*t = c.local(*t)
	}
	return s
}
