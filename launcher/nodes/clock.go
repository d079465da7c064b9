package nodes

import (
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A clock translates the times of another machine. Its offset is the least difference of
// late messages between their sending there and their arrival here: the two clocks' own,
// and the shortest way.
type clock struct {
	since        time.Time // when the newer of two windows began
	newer, older *time.Duration
}

// window is how long a difference counts at least, and half of how long at most: a clock
// may be set right.
const window = time.Minute

// heard learns from a message that was sent at a time there and came at a time here.
func (c *clock) heard(sent, came time.Time) {
	if came.Sub(c.since) >= window {
		c.since, c.older, c.newer = came, c.newer, nil
	}
	if d := came.Round(0).Sub(sent); c.newer == nil || d < *c.newer {
		c.newer = &d
	}
}

// offset is what to add to the other machine's times.
func (c *clock) offset() time.Duration {
	switch {
	case c.newer == nil:
		return 0
	case c.older != nil && *c.older < *c.newer:
		return *c.older
	}
	return *c.newer
}

// here is a time on this machine's clock; the zero time stays.
func (c *clock) here(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(c.offset())
}

// fact translates what was seen.
func (c *clock) fact(f strategy.Fact) strategy.Fact {
	f.Time, f.Again = c.here(f.Time), c.here(f.Again)
	if f.Sign != nil {
		s := c.sign(*f.Sign)
		f.Sign = &s
	}
	return f
}

// sign translates what a rank last let see of itself.
func (c *clock) sign(s strategy.Sign) strategy.Sign {
	for _, t := range []*time.Time{&s.Output, &s.Step, &s.Others, &s.Anyone, &s.Awake, &s.Saved} {
		*t = c.here(*t)
	}
	return s
}
