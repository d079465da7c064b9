package doctor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher/python"
)

const (
	// whole is how long all checks may take together.
	whole = 45 * time.Second
	// settle is how long a check whose time is over may take to end its processes; one
	// that the kernel holds, on a dead file system for example, is left to itself then.
	settle = 6 * time.Second
)

// run makes all checks, those of one lane one after another, and returns their results
// in the order of the checks.
func (p *patient) run(ctx context.Context, checks []check) []Result {
	ctx = python.Guarded(ctx)
	results := make([]Result, len(checks))
	lanes := map[string][]int{}
	var running sync.WaitGroup
	for i, c := range checks {
		if c.lane != "" {
			lanes[c.lane] = append(lanes[c.lane], i)
			continue
		}
		running.Go(func() { results[i] = c.run(ctx, p) })
	}
	for _, lane := range lanes {
		running.Go(func() {
			for _, i := range lane {
				results[i] = checks[i].run(ctx, p)
			}
		})
	}
	running.Wait()
	return results
}

// run makes one check within its time, which begins once PyTorch is known where that
// is needed.
func (c check) run(ctx context.Context, p *patient) Result {
	r := c.within(ctx, p)
	r.Name, r.Group = c.name, c.group
	return r
}

func (c check) within(ctx context.Context, p *patient) Result {
	if c.torch {
		if lack := p.lacksTorch(ctx); lack != "" {
			return skip("%s", lack)
		}
	}
	bound := c.bound
	if bound == 0 {
		bound = usual
	}
	limited, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	done := make(chan Result, 1)
	go func() { done <- c.look(limited, p) }()
	over := make(chan struct{})
	defer context.AfterFunc(limited, func() { time.AfterFunc(settle, func() { close(over) }) })()
	select {
	case r := <-done:
		if r.State == OK || r.State == Skipped || !errors.Is(limited.Err(), context.DeadlineExceeded) {
			return r
		}
	case <-over:
	}
	if ctx.Err() != nil { // the time of all is over, and this one had less than its own
		return warn("start gpurun doctor again when the machine is less busy", "not finished")
	}
	return c.tooLate(bound)
}

// tooLate is the result of a check that did not end.
func (c check) tooLate(bound time.Duration) Result {
	if c.late == "" {
		return warn("start gpurun doctor again when the machine is less busy", "no answer after %s", bound)
	}
	return problem(c.late, "no answer after %s", bound)
}
