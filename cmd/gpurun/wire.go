package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/node"
	"github.com/gpurun/gpurun/launcher/output"
	"github.com/gpurun/gpurun/recipes"
)

// A wiring is what the parts of a launch have to know of a prepared job.
type wiring struct {
	began    launcher.Began
	warnings []string
	launcher launcher.Launcher // but Starter, World and Store
	node     node.Options
	world    node.WorldOptions
}

// wire is the one place where a prepared job is taken apart for those who launch it.
// run is the run's name, and began when its attempt 0 did.
func wire(p *prepared, run string, began time.Time, s streams) (wiring, error) {
	launch := p.job.Launch
	step, err := stepPattern(p.recipe)
	if err != nil {
		return wiring{}, err
	}
	w := wiring{
		warnings: p.warnings,
		began: launcher.Began{
			Run: run, Name: p.job.Name, Version: version(), Digest: p.digest, Recipe: p.recipeName(), Python: p.python,
			Place: p.placeLine(), Policy: p.policy(), Job: p.strategyJob(), Plan: p.plan, Scheduler: p.scheduler(), At: time.Now().UTC(),
		},
		launcher: launcher.Launcher{
			Policy: p.policy(), Job: p.strategyJob(), Accelerator: p.accelerator(), Recipe: p, HangTimeout: launch.HangTimeout,
			Graces: launcher.Graces{User: launch.ShutdownTimeout, Failure: node.FailureGrace},
		},
		node: node.Options{
			Run: run, Ranks: p.local, Plain: launch.Self, Argv: argvOf(p.job.Kind, p.python, launch.LocalRankArg), Env: environ.Parse(p.env),
			Workdir: p.job.Workdir, DataLimit: p.ceiling.data, MasterPort: launch.MasterPort, RunID: launch.RunID, MaxRestarts: launch.MaxRestarts,
			Probe: launch.Probe, NVMePath: p.job.Recovery.NVMePath, Grace: launch.ShutdownTimeout,
			Output: node.Output{
				Stdin: s.in, Stdout: s.out, Stderr: s.err, TTY: launch.TTY, Redirect: streamsOf(launch.Redirects), Tee: streamsOf(launch.Tee),
				Filter: launch.LocalRanksFilter, Role: launch.Role, Step: step, Observe: p.recipe.Prover(),
			},
			Settings: settings{p.recipe, p.command, p.at},
		},
		world: node.WorldOptions{
			Accelerator: p.accelerator(), BF16: p.bf16(), NVMePath: p.job.Recovery.NVMePath, Missing: p.missing,
			Checkpoint: checkpoints{p.recipe, p.command, p.job.Workdir, began}.newest,
		},
	}
	if p.nvml != nil {
		w.world.Devices, w.world.Baseline = p.nvml, p.gpus.Devices
	}
	return w, nil
}

// search says where the run directory of a job is looked for.
func search(p *prepared, own job.Own) journal.Search {
	root := filepath.Join(p.job.Workdir, ".gpurun", p.job.Name)
	if p.job.Launch.LogDir != "" {
		root = p.job.Launch.LogDir // as torchrun: a folder of its own below it for each run
	}
	return journal.Search{Named: own.RunDir, Root: root, Scheduler: p.scheduler(), Restarted: p.place.RestartCount > 0}
}

// scheduler is the scheduler's name for the job, empty without one.
func (p *prepared) scheduler() string {
	if p.place.Job == "" {
		return ""
	}
	return string(p.place.Kind) + " " + p.place.Job + " " + p.place.Step
}

func (p *prepared) placeLine() string {
	device := "CPU"
	if p.gpus.Count > 0 {
		device = fmt.Sprintf("%d GPUs (%s)", p.gpus.Count, p.gpus.Source)
		if len(p.gpus.Devices) > 0 {
			device = fmt.Sprintf("%d × %s (%s)", p.gpus.Count, p.gpus.Devices[0].Name, p.gpus.Source)
		}
	}
	return strings.TrimSpace(p.place.Evidence + ", " + device)
}

// bf16 reports whether every device computes in bfloat16; a CPU does, in PyTorch.
func (p *prepared) bf16() bool {
	if p.accelerator() == "cpu" {
		return true
	}
	for _, d := range p.gpus.Devices {
		if !d.BF16() {
			return false
		}
	}
	return len(p.gpus.Devices) > 0
}

// stepPattern is the pattern of a training step, nil for none.
func stepPattern(r recipes.Recipe) (*regexp.Regexp, error) {
	if r.Progress.Step == "" {
		return nil, nil
	}
	re, err := regexp.Compile(r.Progress.Step)
	if err != nil {
		return nil, fmt.Errorf("read the pattern of a step: %w", err)
	}
	return re, nil
}

func streamsOf(s job.Streams) map[int]output.Streams {
	m := map[int]output.Streams{}
	if s.All != job.NoStd {
		m[output.AllRanks] = output.Streams(s.All)
	}
	for local, std := range s.Ranks {
		m[local] = output.Streams(std)
	}
	return m
}

// argvOf puts the interpreter before the job's words, as torchrun does.
func argvOf(kind job.Kind, python string, localRank bool) func(words []string, local int) []string {
	return func(words []string, local int) []string {
		var argv []string
		switch kind {
		case job.Script:
			argv = []string{python, "-u"}
		case job.Module:
			argv = []string{python, "-u", "-m"}
		}
		argv = append(argv, recipes.ForRank(words, local)...)
		if localRank {
			argv = append(argv, "--local-rank="+strconv.Itoa(local))
		}
		return argv
	}
}
