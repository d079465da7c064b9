package nodes

import (
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A clock translates the times of another machine. Its offset is the least difference of
// any message between its sending there and its arrival here: the two clocks' own, and the
// shortest way.
type clock struct {
	known  bool
	offset time.Duration // to add to the other machine's times
}

// heard learns from a message that was sent at a time there and came at a time here.
func (c *clock) heard(sent, came time.Time) {
	if d := came.Sub(sent); !c.known || d < c.offset {
		c.known, c.offset = true, d
	}
}

// here is a time on this machine's clock; the zero time stays.
func (c *clock) here(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(c.offset)
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
