// Package doctor finds out whether a machine, and a job on it, can train. It checks the interpreter and its
// PyTorch, the GPUs, memory, limits, disks, communication between ranks, and the scheduler. It reports problems and
// how to fix them.
//
// A check is one row of groups and one function. A check that needs Python starts the job's interpreter like
// a rank. When its time is over, the process and its descendants are ended: nothing is left behind.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher/python"
)

// A CheckStatus is how a check ended.
type CheckStatus string

// A problem prevents training, or loses work. A warning costs speed, or may matter later. A skipped check has
// no result.
const (
	OK      CheckStatus = "ok"
	Warning CheckStatus = "warning"
	Problem CheckStatus = "problem"
	Skipped CheckStatus = "skipped"
)

// A Result is the finding of a check, and how to fix it.
type Result struct {
	Name  string      `json:"name"`
	Group string      `json:"group"`
	State CheckStatus `json:"state"`
	Found string      `json:"found"`
	Fix   string      `json:"fix"` // only of a warning or a problem
}

// A check examines one thing.
type check struct {
	name, group string
	// bound is the time that the check may take; 0: usualBound.
	bound time.Duration
	// torch: the check needs a PyTorch that can be imported; its time begins once that is known.
	torch bool
	// needs returns why the check is skipped, empty if it is not; nil: it is never skipped.
	needs func(*patient) string
	// lateFix is the fix if the check does not end in time; empty: that is only a warning.
	lateFix string
	examine func(context.Context, *patient) Result
}

// A group is a heading of the report with its checks.
type group struct {
	name, title string
	checks      []check
}

const (
	usualBound = 10 * time.Second
	pythonTime = 20 * time.Second // of a check that starts Python

	diskHangs   = "its file system does not answer: report it to its administrator, or use another one"
	driverHangs = "the driver hangs: dmesg shows why (Xid); reset the GPU or restart the node"
	importHangs = "import torch by hand: its disk or the driver hangs"
)

// groups are all checks, in the order in which they are shown.
var groups = []group{
	{"job", "Job", []check{
		{name: "train.toml", needs: jobNamed, examine: trainFile},
	}},
	{"python", "Python", []check{
		{name: "interpreter", examine: interpreter, lateFix: "run it by hand: its sitecustomize or its disk hangs"},
		{name: "torch", needs: hasPython, examine: torchFits, bound: factsBound + 5*time.Second, lateFix: importHangs},
	}},
	{"gpus", "GPUs", []check{
		{name: "devices", examine: devices, lateFix: driverHangs},
		{name: "health", needs: gpusAnswer, examine: health, lateFix: driverHangs},
		{name: "other users", needs: gpusAnswer, examine: others, lateFix: driverHangs},
	}},
	{"machine", "Machine", []check{
		{name: "memory", examine: memory},
		{name: "shared memory", examine: sharedMemory,
			lateFix: "/dev/shm does not answer: restart the container or the machine"},
		{name: "clock", examine: clock},
		{name: "configurations", examine: configurations, lateFix: diskHangs},
	}},
	{"limits", "Limits", []check{
		{name: "locked memory", needs: limitsKnown, examine: lockedMemory},
		{name: "open files", needs: limitsKnown, examine: openFiles},
		{name: "processes", needs: limitsKnown, examine: processes},
	}},
	{"disks", "Disks", []check{
		{name: "run directory", examine: runDirectory, lateFix: diskHangs},
		{name: "checkpoints", examine: checkpoints, lateFix: diskHangs},
	}},
	{"nvme", "NVMe", []check{
		{name: "speed", needs: nvmeNamed, examine: nvmeSpeed, bound: pythonTime, lateFix: diskHangs},
		{name: "libaio", torch: true, needs: nvmeNamed, examine: libaio},
	}},
	{"ranks", "Ranks together", []check{
		{name: "NCCL", torch: true, needs: twoFreeGPUs, examine: nccl, bound: pythonTime, lateFix: ncclMore},
	}},
	{"scheduler", "Scheduler", []check{
		{name: "place", examine: place},
		{name: "time", examine: timeLeft},
	}},
}

// checks returns the checks of all groups.
func checks() []check {
	var all []check
	for _, g := range groups {
		for _, c := range g.checks {
			c.group = g.name
			all = append(all, c)
		}
	}
	return all
}

func found(format string, args ...any) Result {
	return Result{State: OK, Found: fmt.Sprintf(format, args...)}
}

func warn(fix, format string, args ...any) Result {
	return Result{State: Warning, Found: fmt.Sprintf(format, args...), Fix: fix}
}

func problem(fix, format string, args ...any) Result {
	return Result{State: Problem, Found: fmt.Sprintf(format, args...), Fix: fix}
}

func skip(format string, args ...any) Result {
	return Result{State: Skipped, Found: fmt.Sprintf(format, args...)}
}

const (
	// whole is how long all checks may take together.
	whole = 45 * time.Second
	// settle is how long a check whose time is over may take to end its processes. After that, a process that
	// the kernel blocks, for example on a dead file system, is left alone.
	settle = 6 * time.Second
)

// run makes all checks at once, and returns their results in the order of the checks.
func (p *patient) run(ctx context.Context, checks []check) []Result {
	ctx = python.Guarded(ctx)
	results := make([]Result, len(checks))
	var running sync.WaitGroup
	for i, c := range checks {
		running.Go(func() { results[i] = c.run(ctx, p) })
	}
	running.Wait()
	return results
}

// run makes one check within its time.
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
	bound := cmp.Or(c.bound, usualBound)
	limited, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	done := make(chan Result, 1)
	go func() { done <- c.result(limited, p) }()
	over := make(chan struct{})
	defer context.AfterFunc(limited, func() { time.AfterFunc(settle, func() { close(over) }) })()
	select {
	case r := <-done:
		if r.State == OK || r.State == Skipped || !errors.Is(limited.Err(), context.DeadlineExceeded) {
			return r
		}
	case <-over:
	}
	const again = "start gpurun doctor again when the machine is less busy"
	switch {
	case ctx.Err() != nil: // the time for all checks is over, before this check's own
		return warn(again, "not finished")
	case c.lateFix == "":
		return warn(again, "no answer after %s", bound)
	}
	return problem(c.lateFix, "no answer after %s", bound)
}

// result returns the check's result, or why it is skipped.
func (c check) result(ctx context.Context, p *patient) Result {
	if c.needs != nil {
		if why := c.needs(p); why != "" {
			return skip("%s", why)
		}
	}
	return c.examine(ctx, p)
}
