// Package doctor finds out whether a machine can train, and a job on it: it looks at the
// interpreter and its PyTorch, the GPUs, memory, limits, disks, DeepSpeed, the ranks
// together and the scheduler, and says of each what was found and how to mend it.
//
// A check is a value of one type, in the file of its group, and one function. Whatever
// needs Python runs as a process of the job's interpreter, as a rank would, and ends
// with its descendants when its time is over. Nothing is left behind.
package doctor

import (
	"context"
	"fmt"
	"time"
)

// A Status is how a check ended.
type Status string

// The states. A problem keeps jobs from training, or loses their work; a warning costs
// speed, or will matter some day; what is skipped says nothing.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Problem Status = "problem"
	Skipped Status = "skipped"
)

// A Result is what a check found, and what to do about it.
type Result struct {
	Name  string `json:"name"`
	Group string `json:"group"`
	State Status `json:"state"`
	Found string `json:"found"`
	Fix   string `json:"fix"` // empty but for a warning or a problem
}

// A check looks at one thing.
type check struct {
	name, group string
	// lane: checks that share one would disturb each other, and run in their order; the
	// others run at once.
	lane string
	// bound is how long it may take; 0 means usual.
	bound time.Duration
	// torch: it needs a PyTorch that can be imported, and waits until that is known.
	torch bool
	// late is the fix where it does not end in time; empty where that says nothing of
	// training, and is a warning.
	late string
	look func(context.Context, *patient) Result
}

// usual is how long a check may take that says nothing else.
const usual = 10 * time.Second

// checks are all that there are, in the order in which they are shown.
func checks() []check {
	var all []check
	for _, group := range []struct {
		name   string
		checks []check
	}{
		{"job", jobChecks}, {"python", pythonChecks}, {"gpus", gpuChecks}, {"machine", machineChecks}, {"limits", limitChecks},
		{"disks", diskChecks}, {"nvme", nvmeChecks}, {"deepspeed", deepspeedChecks}, {"ranks", rankChecks}, {"scheduler", schedulerChecks},
	} {
		for _, c := range group.checks {
			c.group = group.name
			all = append(all, c)
		}
	}
	return all
}

// found, warn, problem and skip are how a check ends.
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
