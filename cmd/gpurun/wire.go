package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/node"
	"github.com/gpurun/gpurun/launcher/nodes"
	"github.com/gpurun/gpurun/launcher/ranks"
)

// A wiring is a prepared job, split into the options of the parts that launch it.
type wiring struct {
	began    launcher.Began
	warnings []string
	launcher launcher.Launcher // without Starter, World and Store
	node     node.Options
	world    node.WorldOptions
	before   *ranks.DeviceBaseline
	notice   node.NoticeOptions
	thisNode *nodes.Node
	run      nodes.RunInfo
}

// wire splits a prepared job into the options of the parts that launch it. run is the run's name, tracked its
// name for experiment trackers, and began the start of attempt 0.
func wire(p *prepared, run, tracked string, began time.Time, s stdio) (wiring, error) {
	p = &prepared{p.Tracked(tracked), p.nvml, p.begun, p.guards}
	j := p.Job
	launch := j.Launch
	step, err := p.Step()
	if err != nil {
		return wiring{}, err
	}
	before := p.nvml.Baseline(p.Environ().Words(), p.GPUs, p.Examined())
	w := wiring{
		warnings: append(slices.Clone(p.Warnings), j.Held()...), before: before,
		began: launcher.Began{
			Run: run, Name: j.Name, Version: manual.Version(), At: time.Now().UTC(),
			Digest: p.Digest, Files: p.Inputs(), Tracked: tracked, Recipe: p.RecipeName(),
			Python: p.Python(), PythonBy: j.PythonBy(),
			Place: p.Place(), Scheduler: p.Scheduler(), Restart: p.Restarts(),
			Policy: p.Policy(), Job: p.StrategyJob(), Plan: p.Plan(),
		},
		launcher: launcher.Launcher{
			Policy: p.Policy(), Job: p.StrategyJob(), Accelerator: p.Accelerator(), Recipe: p,
			Conditions: p.Conditions(manual.Version()), HangTimeout: launch.HangTimeout, Stalls: launch.Stalls,
			Graces: launcher.Graces{User: launch.ShutdownTimeout, Failure: node.FailureGrace},
		},
		node: nodeOptions(p, run, before, outputOf(p, step, s)),
		world: node.WorldOptions{
			Accelerator: p.Accelerator(), Node: p.Node(), Device: p.DeviceOf(before.Level), Settle: before.Settle,
			NVMePath: j.Policy.NVMePath, Missing: p.Missing,
			BF16:       func(ctx context.Context) bool { return p.BF16(before.Devices(ctx)) },
			Checkpoint: func() (path string, written time.Time, none string) { return p.NewestCheckpoint(began) },
		},
		notice: node.NoticeOptions{Mode: launch.OnNotice, Grace: launch.NoticeGrace, Scheduler: p.Ends()},
	}
	if c := p.Checkpoints(); c.Glob != "" || c.Pointer != "" {
		w.notice.Checkpoint = c.Newest
	}
	return w, nil
}

// nodeOptions returns the options of this node's ranks.
func nodeOptions(p *prepared, run string, before *ranks.DeviceBaseline, out node.Console) node.Options {
	j := p.Job
	launch := j.Launch
	return node.Options{
		Run: run, Output: out, Ranks: p.Ranks, Plain: p.Plain, Launcher: launch.Self, Argv: p.Argv,
		Script: p.RankScript(), Module: p.RankModule(), Workdir: j.Workdir,
		Env: p.Environ(), Numbers: cluster.TaskNumbers(os.Environ()), UsedVariable: p.UsedVariable,
		MasterPort: launch.MasterPort, RunID: launch.RunID, MaxRestarts: launch.MaxRestarts, Grace: launch.ShutdownTimeout,
		Hook: j.LoadsHook(), Questions: j.Policy.Questions.Duration(), Snapshot: launch.Snapshot,
		Stalls:   launch.Stalls != nil,
		NVMePath: j.Policy.NVMePath, DataLimit: p.DataLimit(), Growing: p.Checkpoints().Growing, Guards: p.guards,
		Accelerator: p.Accelerator(), Alarms: before.Watch, Used: before.Used, Devices: before.Follow,
	}
}

// outputOf returns the destinations of the ranks' output.
func outputOf(p *prepared, step *regexp.Regexp, s stdio) node.Console {
	launch := p.Job.Launch
	return node.Console{Stdin: s.in, TTY: launch.TTY, Mask: p.secrets(), OutputOptions: ranks.OutputOptions{
		Stdout: s.out, Stderr: s.err, Step: step,
		Redirect: streamsOf(launch.Redirects), Tee: streamsOf(launch.Tee),
		Filter: launch.LocalRanksFilter, Role: launch.Role,
		Observe: p.Observer(), MaxBytes: cmp.Or(launch.LogLimit, -1),
	}}
}

// search returns where to look for the run directory of a job.
func search(p *prepared, own job.Own) journal.RunSearch {
	j := p.Job
	s := searchOf(&j, own)
	s.Scheduler, s.Restart, s.Digest, s.Files, s.Refused = p.Scheduler(), p.Restarts(), p.Digest, p.Inputs(), j.Refused()
	return s
}

// searchOf returns the part of search that is known before the job is prepared.
func searchOf(j *job.Job, own job.Own) journal.RunSearch {
	root := filepath.Join(j.Workdir, ".gpurun", j.Name)
	if j.Launch.LogDir != "" {
		root = j.Launch.LogDir // as in torchrun: a separate folder below it for each run
	}
	return journal.RunSearch{Named: own.RunDir, ID: own.RunID, Root: root, IfTrained: own.IfTrained, Fresh: own.Fresh}
}

func streamsOf(s commandline.Streams) map[int]ranks.StreamSet {
	m := map[int]ranks.StreamSet{}
	if s.All != commandline.NoStd {
		m[ranks.AllRanks] = ranks.StreamSet(s.All)
	}
	for local, std := range s.Ranks {
		m[local] = ranks.StreamSet(std)
	}
	return m
}
