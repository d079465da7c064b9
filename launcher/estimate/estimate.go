// Package estimate implements "gpurun estimate": the GPU memory that a model, or a job that has not run, is
// expected to need. Package memory does the arithmetic; this package reads the command line and the
// configuration of the job and its model, and writes the output. It starts no program, and reads nothing from
// a network.
package estimate

import (
	"errors"
	"os"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/strategy/memory"
)

// Usage and Description are the help of the verb.
const (
	Usage       = "gpurun estimate SIZE --precision WHICH --micro-batch N --sequence N [flags]\ngpurun estimate [flags] train.toml\ngpurun estimate [flags] [torchrun's flags] script.py [arguments …]"
	Description = `A SIZE is a number of parameters: 7B, 350M, 1.3e9. Weights, gradients, optimizer, activations and buffers are shown at
each phase of a step, as expected and at most, with the cards that they fit on and what was assumed. Nothing is started.
With --json: {"parameters", "instants": {"load", "forward", "backward", "optimizer"}, "parts": {"weights", "gradients",
"optimizer", "activations", "buffers"}, "peak_bytes": [mean, bound], "host_bytes", "cards": [{"bytes", "fits"}]}, and more`
)

// A Request is a command line of gpurun estimate, with the facts about its job.
type Request struct {
	commandline.Estimate
	shape memory.Architecture
	// from describes the source of the shape; empty if it comes only from flags.
	from string
	// trouble is why a job's model is not known.
	trouble  error
	plan     memory.RankPlan
	weights  bool // the precision also applies to the weights
	notes    []string
	measured []memory.Measurement
}

// Read reads the words after "gpurun estimate". If Job is not nil, the caller prepares it and calls Of.
// Errors have hints; job.ErrHelp means that the user requests help.
func Read(words []string) (*Request, error) {
	read, err := commandline.ReadEstimate(words, func(word string) bool {
		_, err := os.Stat(word)
		return err == nil
	})
	var wrong *commandline.OptionProblem
	switch {
	case errors.As(err, &wrong) && wrong.Fault == commandline.Unknown:
		hint := "gpurun help estimate lists its flags"
		if meant := job.Nearest(wrong.Option, wrong.Options); meant != "" {
			hint = "did you mean " + meant + "?"
		}
		return nil, errext.WithHint(err, hint)
	case err != nil:
		return nil, errext.WithHint(err, errext.Hint(err))
	case len(read.Others) > 0:
		return nil, errext.Errorf("gpurun help estimate lists its flags", "unexpected argument %q: it goes with a job only",
			read.Others[0])
	}
	if g, given := read.Given["parameters"]; given && read.Size != "" && g.Value != read.Size {
		return nil, errext.Errorf("keep one of them", "--parameters %s contradicts %s", g.Value, read.Size)
	} else if given {
		read.Size = g.Value
	}
	return &Request{Estimate: read}, nil
}

// Answer makes the estimate. Errors have hints, for example which flag sets an unknown value.
func (r *Request) Answer() (*Forecast, error) {
	shape, err := r.architecture()
	if err != nil {
		return nil, err
	}
	plan, err := r.planned()
	if err != nil {
		return nil, err
	}
	if err := r.complete(plan); err != nil {
		return nil, err
	}
	weights := plan.Weights
	if plan.DeepSpeed {
		weights = "deepspeed"
	}
	a := &Forecast{Estimated: memory.Estimate(shape, plan), weights: weights, notes: r.notes, measured: r.same(plan),
		from: r.from}
	full := a.Plan
	full.Checkpointing = "full"
	if full != a.Plan {
		checkpointed := memory.Estimate(shape, full)
		a.checkpointed = &checkpointed
	}
	return a, nil
}
