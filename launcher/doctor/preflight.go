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

// A preflight looks at a node's GPUs before a job's first attempt, and says on which of them
// nothing should be trained: a list of steps, made one after the other until one finds
// something. What the driver says of the devices' health costs no time and is looked at beside
// the ranks' start (package gpu's Baseline); here, nothing has been started yet, and each
// device is tried as the job would use it.
type preflight struct {
	driver healthReader
	python *python.Interpreter // nil where nobody knows the job's
	// devices are the numbers of those that the job uses, as CUDA counts them.
	devices []int
}

// healthReader is what is asked of package gpu's Baseline.
type healthReader interface {
	Findings(context.Context) gpu.Findings
	Unfit(device int, fault string) cause.DriverEvent
}

// A preflightStep looks at one thing. What it finds keeps the job from starting, a warning does not.
type preflightStep struct {
	bound time.Duration
	look  func(context.Context, *preflight) (unfit []cause.DriverEvent, warning string)
}

var preflightSteps = []preflightStep{{driverBound, askDriver}, {trialBound, tryDevices}, {trialBound, tryTogether}}

// PreflightOf is the preflight of a job: nil where launch.preflight does not ask for one, and where
// the job uses no GPU of NVIDIA's. A run that goes on after a GPU had failed asks for one by
// itself, unless its user said no.
func PreflightOf(p *job.Prepared, devices *gpu.Baseline, failed bool) func(context.Context, func(warning string)) []strategy.Fact {
	used := p.Examined()
	if p.Job().Launch.Preflight != job.PreflightOn && !failed || used == 0 {
		return nil
	}
	f := &preflight{driver: devices, python: p.Interpreter()}
	for k := range used {
		f.devices = append(f.devices, k)
	}
	return f.Run
}

// Run makes the checks, and returns what keeps the job from starting: nothing, also where
// ctx ends before. It takes a minute at most.
func (f *preflight) Run(ctx context.Context, warn func(string)) []strategy.Fact {
	ctx, cancel := context.WithTimeout(ctx, preflightBound)
	defer cancel()
	for _, c := range preflightSteps {
		limited, cancel := context.WithTimeout(ctx, c.bound)
		unfit, warning := c.look(limited, f)
		cancel()
		if warning != "" {
			warn("preflight: " + warning)
		}
		if len(unfit) > 0 {
			return unfitFacts(unfit)
		}
	}
	return nil
}

func unfitFacts(unfit []cause.DriverEvent) []strategy.Fact {
	var all []strategy.Fact
	for _, event := range unfit {
		all = append(all, strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", DriverEvent: &event})
	}
	return all
}

// askDriver asks the driver. A driver that does not answer is as bad as its devices.
func askDriver(ctx context.Context, f *preflight) ([]cause.DriverEvent, string) {
	found := f.driver.Findings(ctx) // people are told of what is notable beside the start
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return []cause.DriverEvent{{Kind: cause.UnfitEvent, Fault: fmt.Sprintf("the GPUs' driver gives no answer for %s", driverBound)}}, ""
	}
	return found.Unfit, ""
}

//go:embed device.py
var deviceScript string

// device is what device.py tells.
type device struct {
	Absent string // why there is no CUDA to try
	Full   bool   // there was too little memory
	Wrong  int    // words that were not read as they were written
	Error  string
}

// tryDevices has each device hold 256 MiB, all at once.
func tryDevices(ctx context.Context, f *preflight) (unfit []cause.DriverEvent, warning string) {
	if f.python == nil {
		return nil, "the GPUs are not tried: the job is a program, whose interpreter nobody knows"
	}
	faults, warnings := make([]string, len(f.devices)), make([]string, len(f.devices))
	var trying sync.WaitGroup
	for i, k := range f.devices {
		trying.Go(func() {
			var d device
			err := python.Trial{Text: deviceScript, Words: [][]string{{fmt.Sprint(k)}}}.Run(ctx, f.python, &d)
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

// judge says what is wrong with a device, or why nothing was tried.
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

// tryTogether lets a rank on each device sum up with the others, by NCCL.
func tryTogether(ctx context.Context, f *preflight) (unfit []cause.DriverEvent, warning string) {
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

// noNCCL is what a PyTorch says that is built without.
const noNCCL = "have NCCL built in"

// blame says whether a trial failed by the devices' fault. Where PyTorch could not even be
// imported, and where what failed is the software or the container, the job itself says so
// better.
func blame(err error, what string) (fault, warning string) {
	words := python.WordsOf(err)
	switch {
	case errors.Is(err, python.ErrBusy), errors.Is(err, context.Canceled):
		return "", err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s: no end after %s", what, trialBound), ""
	case words == "": // no process ran to its end
		return "", err.Error()
	case !strings.Contains(words, python.Ready), strings.Contains(words, noNCCL):
		return "", err.Error()
	case mismatch(words):
		return "", err.Error()
	case python.NCCLFix(words) != "":
		return "", fmt.Sprintf("%v (%s)", err, python.NCCLFix(words))
	}
	return fmt.Sprintf("%s: %v", what, err), ""
}

// mismatch reports whether the words are about a driver and a PyTorch that do not fit.
func mismatch(words string) bool {
	return slices.ContainsFunc(cause.Scan("stderr", words), func(f cause.Finding) bool { return f.Code == cause.Driver })
}
