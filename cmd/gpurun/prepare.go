package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/ranks"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/strategy"
)

// A prepared job has the connection to the GPUs' driver that was opened for it: nil if the job sees no GPU.
type prepared struct {
	*job.Prepared
	nvml  *ranks.NVMLConnection
	begun journal.CommandLine // how the run is started; zero for none
	// guards start while the job is prepared; nil if no rank will be started.
	guards *ranks.Guards
}

// prepare finds out everything about a job, and starts no rank. The caller closes the result. If beside is
// set, NVML initialises in the background.
func prepare(ctx context.Context, j *job.Job, beside bool) (*prepared, error) {
	p := &prepared{}
	// else the job does not use the driver
	if !ranks.HidesDevices(commandline.ParseEnviron(os.Environ()).With(j.Env).Words()) {
		p.nvml = ranks.ConnectNVML()
	}
	var err error
	if p.Prepared, err = job.Prepare(
		ctx, j, job.Surroundings{Environ: os.Environ(), NVML: p.nvml, Beside: beside}); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// readJob reads the command line: gpurun's own flags, then a train.toml or arguments as for torchrun. Settings that the
// site does not allow are no error yet.
func readJob(ctx context.Context, args []string) (*job.Job, job.Own, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, job.Own{}, fmt.Errorf("find the working directory: %w", err)
	}
	return job.OpenToRun(ctx, args, os.Environ(), dir)
}

// prepareArgs prepares the job of a command line, for verbs that start nothing. onAny: the answer is the same on every
// node of the launch.
// The caller closes the result.
func prepareArgs(ctx context.Context, args []string, onAny bool) (*prepared, job.Own, error) {
	j, own, err := readJob(ctx, args)
	if err == nil {
		err = j.Refused()
	}
	if err != nil {
		return nil, own, err
	}
	p, err := prepare(ctx, j.Numbered(onAny), false)
	return p, own, err
}

func (p *prepared) close() error { return p.nvml.Close() }

// secrets returns a masker for the secrets in the job's command and environment, and for the notification
// URLs.
func (p *prepared) secrets() *mask.Masker {
	return mask.New(p.Job.Argv, p.Environ(), p.Secrets()...)
}

// propose returns the words that start a plan from the beginning, in the run in dir.
func (p *prepared) propose(dir string) func(strategy.Plan, strategy.Arguments, int) (strategy.Proposal, error) {
	return func(plan strategy.Plan, by strategy.Arguments, n int) (strategy.Proposal, error) {
		return p.Propose(plan, by, dir, n, os.Getenv)
	}
}
