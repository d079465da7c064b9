package doctor

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	// preflightBound is how long the checks may take together; what they started is gone within
	// seconds after that, which makes a minute at most.
	preflightBound = 55 * time.Second
	// driverBound is how long the driver may take; waking a node's GPUs takes seconds.
	driverBound = 20 * time.Second
	// trialBound is how long one trial may take, the import of PyTorch included.
	trialBound = 30 * time.Second
)

// A preflight tries a node's GPUs before the first attempt, as the job would use them, and finds broken ones.
// The driver's report on their health is read in parallel with the ranks' start (gpu.Baseline).
type preflight struct {
	driver healthReader
	python *python.Interpreter // nil if the job's is not known
	// devices are the CUDA numbers of the devices that the job uses.
	devices []int
}

// healthReader is the part of gpu.Baseline that preflight needs.
type healthReader interface {
	Findings(context.Context) gpu.Findings
	Unfit(device int, fault string) cause.DriverEvent
}

// PreflightOf returns the preflight of a job: nil if launch.preflight is off, or if the job uses no NVIDIA
// GPU. A run that continues after a GPU failure has a preflight by default. The preflight returns the facts
// that prevent the start, within a minute, and none if ctx ends before.
func PreflightOf(p *job.Prepared, devices *gpu.Baseline, failed bool) func(ctx context.Context, warn func(string)) []strategy.Fact {
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

// Run makes the trials one after another until one finds something.
func (f *preflight) Run(ctx context.Context, warn func(string)) []strategy.Fact {
	ctx, cancel := context.WithTimeout(ctx, preflightBound)
	defer cancel()
	for _, step := range []struct {
		bound time.Duration
		try   func(context.Context) (unfit []cause.DriverEvent, warning string)
	}{{driverBound, f.askDriver}, {trialBound, f.tryDevices}, {trialBound, f.tryTogether}} {
		limited, cancel := context.WithTimeout(ctx, step.bound)
		unfit, warning := step.try(limited)
		cancel()
		if warning != "" {
			warn("preflight: " + warning)
		}
		var facts []strategy.Fact
		for _, event := range unfit {
			facts = append(facts, strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", DriverEvent: &event})
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
		return []cause.DriverEvent{{Kind: cause.UnfitEvent, Fault: fmt.Sprintf("the GPUs' driver gives no answer for %s", driverBound)}}, ""
	}
	return found.Unfit, ""
}

//go:embed device.py
var deviceScript string

// device is the output of device.py.
type device struct {
	Absent string // why CUDA cannot be tried
	Full   bool   // there was too little memory
	Wrong  int    // number of words that were read back wrong
	Error  string
}

// tryDevices fills 256 MiB on each device, on all at once.
func (f *preflight) tryDevices(ctx context.Context) (unfit []cause.DriverEvent, warning string) {
	if f.python == nil {
		return nil, "the GPUs are not tried: the job is a program, whose interpreter is not known"
	}
	faults, warnings := make([]string, len(f.devices)), make([]string, len(f.devices))
	var trying sync.WaitGroup
	for i, k := range f.devices {
		trying.Go(func() {
			d, err := python.RunOne[device](ctx, f.python, deviceScript, fmt.Sprint(k))
			faults[i], warnings[i] = d.judge(err)
		})
	}
	trying.Wait()
	for i, k := range f.devices {
		if faults[i] != "" {
			unfit = append(unfit, f.driver.Unfit(k, faults[i]))
		}
		if warnings[i] != "" {
			warning = fmt.Sprintf("cuda:%d is not tried: %s", k, warnings[i])
		}
	}
	return unfit, warning
}

// judge returns what is wrong with a device, or why nothing was tried.
func (d device) judge(err error) (fault, warning string) {
	switch {
	case err != nil:
		return blame(err, "256 MiB written and read back")
	case d.Absent != "":
		return "", d.Absent
	case d.Full, mismatch(d.Error):
		return "", python.Shorten(d.Error)
	case d.Error != "":
		return "256 MiB cannot be written and read back: " + python.Shorten(d.Error), ""
	case d.Wrong > 0:
		return fmt.Sprintf("of 256 MiB, %d words were not read as they were written", d.Wrong), ""
	}
	return "", ""
}

// tryTogether starts a rank on each device, and lets them compute a sum over NCCL.
func (f *preflight) tryTogether(ctx context.Context) (unfit []cause.DriverEvent, warning string) {
	if len(f.devices) < 2 || f.python == nil {
		return nil, ""
	}
	t, err := python.Meet(ctx, f.python, "nccl", f.devices)
	what := fmt.Sprintf("NCCL between %d GPUs", len(f.devices))
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
