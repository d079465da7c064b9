package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	// driverBound is how long the driver may take; waking a node's GPUs takes seconds.
	driverBound = 20 * time.Second
	// trialBound is how long the trial may take, the import of PyTorch included. With the processes that must
	// be killed then, both take a minute at most.
	trialBound = 30 * time.Second
)

// A preflight waits for the driver's report on a node's GPUs before the first attempt, and tries them together
// as the job would use them.
type preflight struct {
	driver interface {
		Findings(context.Context) ranks.DeviceFindings
	}
	python *python.Interpreter // nil if the job's is not known
	// devices are the CUDA numbers of the devices that the job uses.
	devices []int
}

// PreflightOf returns the preflight of a job: nil if launch.preflight is off, or if the job uses no NVIDIA
// GPU. A run that continues after a GPU failure has a preflight by default. The preflight returns the facts
// that prevent the start, within a minute, and none if ctx ends before.
func PreflightOf(p *job.Prepared, devices *ranks.DeviceBaseline, failed bool) func(ctx context.Context,
	warn func(string)) []strategy.Fact {
	used := p.Examined()
	if p.Job.Launch.Preflight != job.PreflightOn && !failed || used == 0 {
		return nil
	}
	f := &preflight{driver: devices, python: p.Interpreter}
	for k := range used {
		f.devices = append(f.devices, k)
	}
	return f.Run
}

// Run asks the driver, and if that finds nothing, tries the devices together.
func (f *preflight) Run(ctx context.Context, warn func(string)) []strategy.Fact {
	for _, step := range []struct {
		bound time.Duration
		try   func(context.Context) (unfit []cause.DriverEvent, warning string)
	}{{driverBound, f.askDriver}, {trialBound, f.tryTogether}} {
		limited, cancel := context.WithTimeout(ctx, step.bound)
		unfit, warning := step.try(limited)
		cancel()
		if warning != "" {
			warn("preflight: " + warning)
		}
		var facts []strategy.Fact
		for _, event := range unfit {
			facts = append(facts, strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun",
				Content: (*strategy.DriverEvent)(&event)})
		}
		if facts != nil {
			return facts
		}
	}
	return nil
}

// askDriver reads the devices' health. If the driver does not answer, all its devices count as broken.
func (f *preflight) askDriver(ctx context.Context) ([]cause.DriverEvent, string) {
	found := f.driver.Findings(ctx) // Baseline warns about minor findings
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return []cause.DriverEvent{{Kind: cause.UnfitEvent,
			Fault: fmt.Sprintf("the GPUs' driver gives no answer for %s", driverBound)}}, ""
	}
	return found.Unfit, ""
}

// tryTogether starts a rank on each device, and lets them compute a sum over NCCL.
func (f *preflight) tryTogether(ctx context.Context) (unfit []cause.DriverEvent, warning string) {
	what := fmt.Sprintf("NCCL between %d GPUs", len(f.devices))
	switch {
	case len(f.devices) < 2:
		return nil, ""
	case f.python == nil:
		return nil, what + " is not tried: the job is a program, whose interpreter is not known"
	}
	t, err := python.Meet(ctx, f.python, f.devices)
	fault := ""
	switch {
	case err != nil:
		fault, warning = blame(err, what)
	case !t.Sum:
		fault = what + ": the sum over all is wrong"
	}
	if fault != "" {
		unfit = []cause.DriverEvent{{Kind: cause.UnfitEvent, Fault: fault}}
	}
	if warning != "" {
		warning = what + " is not tried: " + warning
	}
	return unfit, warning
}

// noNCCL is the error of a PyTorch that is built without.
const noNCCL = "have NCCL built in"

// blame decides whether a trial failed because of the devices. If PyTorch could not be imported, or the
// software or the container failed, it only warns: the job itself will fail with a better message.
func blame(err error, what string) (fault, warning string) {
	words := python.WordsOf(err)
	switch {
	case errors.Is(err, python.ErrBusy), errors.Is(err, context.Canceled):
		return "", err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s: no end after %s", what, trialBound), ""
	case words == "", // no process ran to its end
		!strings.Contains(words, python.Ready), strings.Contains(words, noNCCL), mismatch(words):
		return "", err.Error()
	case python.NCCLFix(words) != "":
		return "", fmt.Sprintf("%v (%s)", err, python.NCCLFix(words))
	}
	return fmt.Sprintf("%s: %v", what, err), ""
}

// mismatch reports whether an error is about a driver that does not fit PyTorch.
func mismatch(words string) bool {
	return slices.ContainsFunc(cause.Scan("stderr", words), func(f cause.Finding) bool { return f.Code == cause.Driver })
}
