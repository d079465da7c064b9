package job

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/checkpoint"
	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/script"
	"github.com/gpurun/gpurun/strategy"
)

// A Prepared job is one whose every question is answered, with nothing started:
// what gpurun plan prints, and what gpurun run launches. It does not change.
type Prepared struct {
	resolved Resolved
	plan     strategy.Plan
	knobs    map[strategy.Knob]strategy.Range
	ceiling  ceiling
	digest   string
	// unpinned is the job without the words that keep a run's attempts in one folder; nil
	// where it has none.
	unpinned *Prepared
	// tracked are the variables by which trackers go on with one run in all attempts.
	tracked map[string]string
}

// Read loads the configuration files of a job, and reads the current plan, what can
// be done with each knob, and the ceiling that each rank is held to.
func Read(ctx context.Context, r Resolved) (*Prepared, error) {
	p, err := r.understand()
	if err != nil {
		return nil, err
	}
	r = p.resolved
	if p.ceiling, err = r.limit(ctx); err != nil {
		return nil, err
	}
	if latest := r.job.Resume.Latest; latest != "" {
		if err := checkpoint.Check(r.job.Workdir, latest); err != nil {
			return nil, errext.WithHint(fmt.Errorf("look for checkpoints with resume.latest = %q: %w", latest, err),
				"name the folder of the checkpoints before the first *")
		}
	}
	p.digest = r.digest()
	return p, nil
}

// understand reads the plan by the job's recipe. Where one that was only recognised
// cannot, what the user wrote in train.toml counts alone.
func (r Resolved) understand() (p *Prepared, err error) {
	inferred := r.auto()
	for _, recipe := range []recipes.Recipe{r.recipe, r.written} {
		r.recipe = recipe
		var refused error
		warnings := guest(currentPlan, func() error {
			p, refused = r.byRecipe()
			if refused != nil && inferred {
				return refused
			}
			return nil
		})
		if len(warnings) == 0 {
			return p, refused
		}
		r.warnings = slices.Concat(r.warnings, warnings)
		r.evidence, r.script, r.loss, inferred = nil, nil, strategy.Loss{}, false
	}
	r.recipe = recipes.Recipe{}
	return r.byRecipe()
}

// byRecipe loads the configuration files that the recipe names, and reads the plan.
func (r Resolved) byRecipe() (*Prepared, error) {
	var err error
	if r.command, err = r.load(r.command, r.recipe.Recipe); err != nil {
		return nil, err
	}
	if r.job.Launch.DataParallel == 0 {
		if r.at, err = r.recipe.Parallel(r.command, r.at); err != nil {
			return nil, errext.WithHint(fmt.Errorf("count the data-parallel ranks: %w", err), "set launch.data_parallel")
		}
	}
	plan, knobs, err := r.readPlan()
	if err != nil {
		return nil, err
	}
	p := &Prepared{plan: plan, knobs: knobs}
	r.warnings = slices.Concat(r.warnings,
		r.keepSchedule(knobs),
		guest(inProcess, func() error {
			plan, knobs := maps.Clone(plan), maps.Clone(knobs)
			r.inside(plan, knobs)
			r.doubtPrecision(plan, knobs)
			p.plan, p.knobs = plan, knobs
			return nil
		}),
	)
	p.resolved = r
	_, warnings := p.checkpoints()
	p.resolved.warnings = append(p.resolved.warnings, warnings...)
	return p, nil
}

// readPlan is what the job sets as it is written, and what can be done with each knob.
func (r Resolved) readPlan() (strategy.Plan, map[strategy.Knob]strategy.Range, error) {
	plan, knobs, err := r.recipe.Read(r.command, r.at)
	if err != nil {
		return nil, nil, errext.WithHint(fmt.Errorf("read the job's plan: %w", err),
			"check [knobs] and the job's arguments; gpurun plan shows what is understood")
	}
	for k, own := range knobs {
		if families, reason, fragile := r.recipe.Families(k); fragile {
			own.Checkpoint = &strategy.Survival{Groups: families, Reason: reason}
			knobs[k] = own
		}
	}
	if r.accelerator() == "cpu" {
		delete(plan, strategy.Allocator)
		knobs[strategy.Allocator] = strategy.Range{Absent: "the job trains on the CPU"}
	}
	if unknown := r.gpus.Name; unknown != "" && r.gpus.Count > 0 {
		delete(plan, strategy.Allocator)
		knobs[strategy.Allocator] = strategy.Range{Absent: "gpurun does not know the allocator of an " + unknown}
	}
	return plan, knobs, nil
}

// Job is the job as it was read; its maps and lists are not to be changed.
func (p *Prepared) Job() Job { return p.resolved.job }

// Environ is a copy of the environment that the ranks inherit, with the job's own
// variables.
func (p *Prepared) Environ() environ.Vars { return p.resolved.env.With() }

// Startable says why the program of the job cannot be started. The error has a hint.
func (p *Prepared) Startable() error { return Startable(&p.resolved.job, p.resolved.env.Words()) }

// Python is the interpreter's path; empty for a program.
func (p *Prepared) Python() string {
	if p.resolved.python == nil {
		return ""
	}
	return p.resolved.python.Path()
}

// Interpreter is the one that runs the job's script or module; nil for a program, and
// where a wrapper makes it as the job starts.
func (p *Prepared) Interpreter() *python.Interpreter { return p.resolved.python }

// GPUs are those that the job would see.
func (p *Prepared) GPUs() gpu.View { return p.resolved.gpus }

// Accelerator is what the job trains on: "cuda", "cpu", or PyTorch's word for what
// gpurun does not know.
func (p *Prepared) Accelerator() string { return p.resolved.accelerator() }

// BF16 reports whether every one of the job's devices, as NVML knows them, computes in
// bfloat16; a CPU does, in PyTorch, and so do the accelerators of other makers that
// are in use.
func (p *Prepared) BF16(devices []gpu.Device) bool {
	if p.Accelerator() != "cuda" {
		return true
	}
	for _, d := range devices {
		if !d.BF16() {
			return false
		}
	}
	return len(devices) > 0
}

// Ranks is the number of ranks on this node. A job that starts its own has as many,
// and is one process for gpurun.
func (p *Prepared) Ranks() int { return p.resolved.local }

// Plan is a copy of what the job sets as it is written.
func (p *Prepared) Plan() strategy.Plan { return maps.Clone(p.plan) }

// StrategyJob is what strategy.Decide has to know.
func (p *Prepared) StrategyJob() strategy.Job {
	r := p.resolved
	return strategy.Job{Knobs: maps.Clone(p.knobs), Ranks: r.at.Ranks, LocalRanks: r.local, DataParallel: r.at.DataParallel, Written: p.Plan(),
		Ceiling: r.job.Limits.DeviceMemory, Loss: r.loss, Pipeline: script.Pipeline(r.sources()),
		Resumption: strategy.Resumption{
			Data: r.recipe.Resume.Data, Shifts: r.recipe.Resume.Shifts, Own: r.recipe.Name == "" || r.recipe.Resume.Own, Exact: r.recipe.Resume.Exact,
		}}
}

// Policy is what gpurun may do to get the job trained.
func (p *Prepared) Policy() strategy.Policy {
	j := p.resolved.job
	r := j.Recovery
	return strategy.Policy{
		Mode: strategy.Mode(r.Mode), Prefer: strategy.Prefer(r.Prefer), Climb: r.Climb, MaxAttempts: r.MaxAttempts, Numerics: strategy.Numerics(r.Numerics), NumericsSaid: j.NumericsSaid, Never: r.Never,
		NVMePath: r.NVMePath, TransientRetries: r.TransientRetries, Restarts: j.Launch.MaxRestarts, RestartFromZero: strategy.Seconds(r.RestartFromZero),
	}
}

// Recipe is the recipe's name, empty without one, and why it was
// recognised.
func (p *Prepared) Recipe() (name string, evidence []string) {
	return p.resolved.recipe.Name, slices.Clone(p.resolved.evidence)
}

// RecipeName is the recipe's name for people.
func (p *Prepared) RecipeName() string {
	switch r := p.resolved.recipe; {
	case r.Name != "":
		return r.Name
	case len(p.resolved.job.Knobs) > 0:
		return "[knobs]"
	}
	return "none"
}

// Candidates are the recipes of whose marks the job has some.
func (p *Prepared) Candidates() ([]script.Match, error) {
	all, err := recipes.Embedded(nil)
	if err != nil {
		return nil, fmt.Errorf("load the recipes: %w", err)
	}
	return script.Candidates(p.resolved.command, all), nil
}

// Warnings are sentences for people: what was asked for and has no effect, or an
// unexpected one.
func (p *Prepared) Warnings() []string { return slices.Clone(p.resolved.warnings) }

// Place says for people where the job runs, and on what.
func (p *Prepared) Place() string {
	device, gpus := "CPU", p.resolved.gpus
	switch {
	case gpus.Count > 0 && gpus.Name != "":
		device = fmt.Sprintf("%d × %s (%s), which gpurun does not know: failures are diagnosed, ceilings are off", gpus.Count, gpus.Name, gpus.Source)
	case gpus.Count > 0:
		device = fmt.Sprintf("%d GPUs (%s)", gpus.Count, gpus.Source)
		model := gpus.Model
		if len(gpus.Devices) > 0 {
			model = gpus.Devices[0].Name
		}
		if model != "" {
			device = fmt.Sprintf("%d × %s (%s)", gpus.Count, model, gpus.Source)
		}
	}
	return strings.TrimSpace(p.resolved.place.Evidence + ", " + device)
}

// Where is which node of which launch this is.
func (p *Prepared) Where() cluster.Placement { return p.resolved.place }

// Scheduler names the scheduler's job, the same after a restart of it; empty without
// one.
func (p *Prepared) Scheduler() string { return p.resolved.place.Identity() }

// Restarts counts how often a scheduler has started this job again.
func (p *Prepared) Restarts() int {
	if p.resolved.place.Job == "" {
		return 0
	}
	return p.resolved.place.RestartCount
}

// Ends asks until when the job may run here, and whether it is started again
// afterwards: cluster.Placement's Ends. It is nil where there is no scheduler.
func (p *Prepared) Ends() func(context.Context) (end time.Time, again bool) {
	if p.resolved.place.Job == "" {
		return nil
	}
	return p.resolved.place.Ends
}

// Step is the pattern of a training step in the job's output, whose first group is
// the number; nil where none is known.
func (p *Prepared) Step() (*regexp.Regexp, error) {
	pattern := p.resolved.recipe.Progress.Step
	if pattern == "" {
		return nil, nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("read the pattern of a step: %w", err)
	}
	return re, nil
}

// Value says the value of a knob for people, or why a knob that the job has does not
// show one; empty for a knob that nothing is known of.
func (p *Prepared) Value(k strategy.Knob) string {
	r, known := p.knobs[k]
	switch {
	case p.plan[k] != "":
		return string(p.plan[k])
	case known && r.Scope == strategy.ScopeDerived:
		return "derived by the job"
	case known && (r.By == strategy.ByHook || r.Told):
		return "the job's process says it"
	case known && r.Absent == "":
		return "not known: name it in the job, or give the knob a default in [knobs]"
	}
	return ""
}
