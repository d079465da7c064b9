// Package preflight looks at a node's GPUs before a job's first attempt, and says on which
// of them nothing should be trained.
//
// A preflight is a list of checks, made one after the other until one finds something. What
// the driver says of the devices' health costs no time and is looked at beside the ranks'
// start (package gpu's Baseline); here, nothing has been started yet, and each device is
// tried as the job would use it.
package preflight

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	// whole is how long the checks may take together; what they started is gone within
	// seconds after that, which makes a minute at most.
	whole = 55 * time.Second
	// answer is how long the driver may take; waking a node's GPUs takes seconds.
	answer = 20 * time.Second
	// each is how long one trial may take, the import of PyTorch included.
	each = 30 * time.Second
)

// A Preflight is what is looked at.
type Preflight struct {
	driver driver
	python *python.Interpreter // nil where nobody knows the job's
	// devices are the numbers of those that the job uses, as CUDA counts them.
	devices []int
}

// driver is what is asked of package gpu's Baseline.
type driver interface {
	Findings(context.Context) gpu.Findings
	Unfit(device int, fault string) cause.DriverEvent
}

// A check looks at one thing. What it finds keeps the job from starting, a warning does not.
type check struct {
	bound time.Duration
	look  func(context.Context, *Preflight) (unfit []cause.DriverEvent, warning string)
}

var checks = []check{{answer, health}, {each, tryDevices}, {each, tryTogether}}

// Of is the preflight of a job: nil where launch.preflight does not ask for one, and where
// the job uses no GPU of NVIDIA's. A run that goes on after a GPU had failed asks for one by
// itself, unless its user said no.
func Of(p *job.Prepared, devices *gpu.Baseline, failed bool) func(context.Context, func(warning string)) []strategy.Fact {
	used := p.Examined()
	if p.Job().Launch.Preflight != job.PreflightOn && !failed || used == 0 {
		return nil
	}
	f := &Preflight{driver: devices, python: p.Interpreter()}
	for k := range used {
		f.devices = append(f.devices, k)
	}
	return f.Run
}

// Run makes the checks, and returns what keeps the job from starting: nothing, also where
// ctx ends before. It takes a minute at most.
func (f *Preflight) Run(ctx context.Context, warn func(string)) []strategy.Fact {
	ctx, cancel := context.WithTimeout(ctx, whole)
	defer cancel()
	for _, c := range checks {
		limited, cancel := context.WithTimeout(ctx, c.bound)
		unfit, warning := c.look(limited, f)
		cancel()
		if warning != "" {
			warn("preflight: " + warning)
		}
		if len(unfit) > 0 {
			return facts(unfit)
		}
	}
	return nil
}

func facts(unfit []cause.DriverEvent) []strategy.Fact {
	var all []strategy.Fact
	for _, event := range unfit {
		all = append(all, strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", DriverEvent: &event})
	}
	return all
}
