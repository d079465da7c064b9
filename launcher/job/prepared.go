package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/detect"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// A Prepared job is a job about which everything is known before any rank starts. gpurun plan prints it, and
// gpurun run launches it. It is immutable.
type Prepared struct {
	Resolved

	plan    strategy.Plan
	knobs   map[strategy.Knob]strategy.Range
	ceiling ceiling
	Digest  string // identifies this job
	// unpinned is the job without the arguments that keep a run's attempts in one folder; nil if it has none.
	unpinned *Prepared
	// tracked are the variables that make experiment trackers continue one run in all attempts.
	tracked map[string]string
}

// Read loads the configuration files of a job. It reads the current plan, the range of each knob, and the
// memory ceiling of each rank.
func Read(ctx context.Context, r Resolved) (*Prepared, error) {
	p, err := r.understand()
	if err != nil {
		return nil, err
	}
	r = p.Resolved
	if p.ceiling, err = r.limit(ctx); err != nil {
		return nil, err
	}
	if latest := r.Job.Resume.Latest; latest != "" {
		if err := CheckCheckpoints(r.Job.Workdir, latest); err != nil {
			return nil, errext.WithHint(fmt.Errorf("look for checkpoints with resume.latest = %q: %w", latest, err),
				"name the folder of the checkpoints before the first *")
		}
	}
	p.Digest = r.digest()
	return p, nil
}

// understand reads the plan with the job's recipe. If a recognised recipe fails, only the user's entries in
// train.toml count.
func (r Resolved) understand() (p *Prepared, err error) {
	inferred := r.auto()
	for _, recipe := range []recipes.Recipe{r.recipe, r.written} {
		r.recipe = recipe.Guarded(r.command)
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
		r.Warnings = slices.Concat(r.Warnings, warnings)
		r.evidence, r.loss, inferred = nil, strategy.Loss{}, false
	}
	r.recipe = recipes.Recipe{}.Guarded(r.command)
	return r.byRecipe()
}

// byRecipe loads the configuration files that the recipe names, and reads the plan.
func (r Resolved) byRecipe() (*Prepared, error) {
	var err error
	if r.command, err = r.load(r.command, r.recipe.Recipe); err != nil {
		return nil, err
	}
	if r.Job.Launch.DataParallel == 0 {
		if r.at, err = r.recipe.Parallel(r.command, r.at); err != nil {
			return nil, errext.WithHint(fmt.Errorf("count the data-parallel ranks: %w", err), "set launch.data_parallel")
		}
	}
	plan, knobs, err := r.readPlan()
	if err != nil {
		return nil, err
	}
	p := &Prepared{plan: plan, knobs: knobs}
	r.Warnings = slices.Concat(r.Warnings,
		guest(inProcess, func() error {
			plan, knobs := maps.Clone(plan), maps.Clone(knobs)
			r.inside(plan, knobs)
			r.assumed(plan, knobs)
			p.plan, p.knobs = plan, knobs
			return nil
		}),
	)
	p.Resolved = r
	_, warnings := p.checkpoints()
	p.Warnings = slices.Concat(p.Warnings, warnings, r.unparsed())
	return p, nil
}

// readPlan returns the plan of the job as written, and the range of each knob.
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
	if r.Accelerator() == "cpu" {
		delete(plan, strategy.Allocator)
		knobs[strategy.Allocator] = strategy.Range{Absent: "the job trains on the CPU"}
	}
	if unknown := r.GPUs.Name; unknown != "" && r.GPUs.Count > 0 {
		delete(plan, strategy.Allocator)
		knobs[strategy.Allocator] = strategy.Range{Absent: "gpurun does not know the allocator of an " + unknown}
	}
	return plan, knobs, nil
}

// Environ returns a copy of the environment that the ranks inherit, with the job's own variables.
func (p *Prepared) Environ() commandline.Environ { return p.env.With() }

// Startable returns why the program of the job cannot be started. The error has a hint.
func (p *Prepared) Startable() error { return Startable(&p.Job, p.env.Words()) }

// Python returns the interpreter's path; empty for a program.
func (p *Prepared) Python() string {
	if p.Interpreter == nil {
		return ""
	}
	return p.Interpreter.Path()
}

// BF16 reports whether all of the job's devices, as NVML reports them, compute in bfloat16. PyTorch on the
// CPU does, and so do the commonly used accelerators of other makers.
func (p *Prepared) BF16(devices []ranks.Device) bool {
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

// Plan returns a copy of the plan of the job as written.
func (p *Prepared) Plan() strategy.Plan { return maps.Clone(p.plan) }

// StrategyJob returns the job in the form that strategy.Decide needs.
func (p *Prepared) StrategyJob() strategy.Job {
	r := p.Resolved
	return strategy.Job{Knobs: maps.Clone(p.knobs), Ranks: r.at.Ranks, LocalRanks: r.Ranks,
		DataParallel: r.at.DataParallel, Written: p.Plan(),
		Ceiling: r.Job.DeviceMemory, NotInside: r.notInside(), Loss: r.loss,
		Resumption: strategy.Resumption{
			Data: r.recipe.Resume.Data, Shifts: r.recipe.Resume.Shifts, Own: r.recipe.Name == "" ||
				r.recipe.Resume.Own, Exact: r.recipe.Resume.Exact,
		}}
}

// Policy returns what gpurun may change.
func (p *Prepared) Policy() strategy.Policy {
	policy := p.Job.Policy
	policy.Restarts = p.Job.Launch.MaxRestarts
	return policy
}

// Recipe returns the recipe's name, empty for none, and why it was recognised.
func (p *Prepared) Recipe() (name string, evidence []string) {
	return p.recipe.Name, slices.Clone(p.evidence)
}

// Evidence lists the signs by which the recipe was recognised.
func (p *Prepared) Evidence() []string { return slices.Clone(p.evidence) }

// RecipeName returns the recipe's name for messages.
func (p *Prepared) RecipeName() string {
	switch r := p.recipe; {
	case r.Name != "":
		return r.Name
	case len(p.Job.Knobs) > 0:
		return "[knobs]"
	}
	return "none"
}

// Candidates returns the recipes whose patterns match the job in part.
func (p *Prepared) Candidates() ([]detect.Match, error) {
	all, err := recipes.Embedded()
	if err != nil {
		return nil, fmt.Errorf("load the recipes: %w", err)
	}
	return detect.Candidates(p.command, all), nil
}

// Place describes to the user where the job runs, and on which devices.
func (p *Prepared) Place() string {
	device, gpus := "CPU", p.GPUs
	switch {
	case gpus.Count > 0 && gpus.Name != "":
		device = fmt.Sprintf("%d × %s (%s), which gpurun does not know: failures are diagnosed, ceilings are off",
			gpus.Count, gpus.Name, gpus.Source)
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
	return strings.TrimSpace(p.Where.Evidence + ", " + device)
}

// Scheduler returns the scheduler's name for the job, the same after a restart; empty without a scheduler.
func (p *Prepared) Scheduler() string { return p.Where.Identity() }

// Restarts returns how often a scheduler has restarted this job.
func (p *Prepared) Restarts() int {
	if p.Where.Job == "" {
		return 0
	}
	return p.Where.RestartCount
}

// Ends returns the function that queries until when the job may run here, and whether it is started again
// afterwards (cluster.Placement.Ends). It is nil without a scheduler.
func (p *Prepared) Ends() func(context.Context) (end time.Time, again bool) {
	if p.Where.Job == "" {
		return nil
	}
	return p.Where.Ends
}

// Step returns the pattern of a training step in the job's output, whose first group is the step number; nil
// if none is known.
func (p *Prepared) Step() (*regexp.Regexp, error) {
	pattern := p.recipe.Progress.Step
	if pattern == "" {
		return nil, nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("read the pattern of a step: %w", err)
	}
	return re, nil
}

// Value returns the value of a knob for messages, or why the value of an existing knob is not known; empty
// for an unknown knob.
func (p *Prepared) Value(k strategy.Knob) string {
	r, known := p.knobs[k]
	switch {
	case p.plan[k] != "":
		return string(p.plan[k])
	case known && len(r.Likely) > 0:
		return likelyWords(r.Likely)
	case known && r.Scope == strategy.ScopeDerived:
		return "derived by the job"
	case known && (r.By == strategy.ByHook || r.Reported):
		return "to be reported by the job's process"
	case known && r.Absent == "":
		return "not known: name it in the job, or give the knob a default in [knobs]"
	}
	return ""
}

// likelyWords describes the settings that may be a knob: "likely 16 by --batch-size", "likely 64 of all ranks by
// --total-batch-size".
func likelyWords(likely []strategy.Likely) string {
	var words []string
	for _, one := range likely {
		value := string(one.Value)
		if one.All {
			value += " of all ranks"
		}
		words = append(words, strings.TrimSpace(value+" by "+one.Name))
	}
	return "likely " + strings.Join(words, ", or ")
}

// Surroundings describe the machine on which a job is prepared.
type Surroundings struct {
	// Environ is gpurun's own environment, in the form of os.Environ.
	Environ []string
	// NVML is the connection to the GPUs' driver, nil if it is not queried. The caller closes it; a prepared
	// job does not keep it.
	NVML *ranks.NVMLConnection
	// Beside: NVML initialises while the ranks start. gpurun waits for it only if the job needs a fact that
	// has no other source.
	Beside bool
	// Warnings are messages to the user about the machine.
	Warnings []string
}

// Prepare finds out everything about a job without starting a rank, in the steps Inspect, Resolve and Read.
// An error that the user can fix has a hint.
func Prepare(ctx context.Context, j *Job, m Surroundings) (*Prepared, error) {
	inspected, err := Inspect(ctx, j, m)
	if err != nil {
		return nil, err
	}
	resolved, err := Resolve(ctx, inspected)
	if err != nil {
		return nil, err
	}
	return Read(ctx, resolved)
}

// visible returns the GPUs that a job would see.
func (m Surroundings) visible(j *Job, env commandline.Environ) (ranks.DeviceView, error) {
	if m.Beside && j.DeviceMemory == 0 { // a ceiling is a share of the capacity
		if view, certain := ranks.ListedDevices(env.Words()); certain {
			return view, nil
		}
	}
	nvml, err := m.NVML.NVML()
	view, failed := ranks.VisibleDevices(env.Words(), nvml)
	return view, errors.Join(err, failed)
}

// A Resolved job is a job whose ranks and recipe are known. It is immutable.
type Resolved struct {
	Inspected
	processes
	at recipes.Topology
	recipeChoice
}

// Resolve finds the number of ranks of a job, and its recipe. Only a job with a framework waits until its
// interpreter has listed the packages.
func Resolve(ctx context.Context, s Inspected) (Resolved, error) {
	c, err := s.choose(ctx)
	if err != nil {
		return Resolved{}, err
	}
	r := Resolved{Inspected: s, recipeChoice: c}
	if r.processes, err = s.count(c); err != nil {
		return Resolved{}, err
	}
	if r.Plain {
		r.command.Devices = s.GPUs.Count
	} else {
		r.env = r.env.With(s.nodeVars(r.Ranks))
	}
	r.Warnings = slices.Concat(s.Warnings, s.rankWarnings(r.processes), s.sharedCheckpoints(), s.noCeiling(), c.warnings)
	world := r.Ranks * max(1, s.Where.Nodes)
	r.at = recipes.Topology{Ranks: world, Plain: r.Plain &&
		r.Ranks == 1, DataParallel: world, NVMePath: s.Job.Policy.NVMePath}
	if n := s.Job.Launch.DataParallel; n > 0 {
		if world%n != 0 && !r.Plain {
			return Resolved{}, errext.Errorf("it is the world size divided by tensor, pipeline and context parallel sizes",
				"launch.data_parallel = %d does not divide the %d ranks", n, world)
		}
		r.at.DataParallel = n
	}
	return r, nil
}

// nodeVariables are usual variables for the name of a pod's node, which Kubernetes' downward API provides.
var nodeVariables = []string{"NODE_NAME", "K8S_NODE_NAME", "MY_NODE_NAME"}

// Node returns this node by the name that the scheduler uses.
func (p *Prepared) Node() strategy.Node {
	host, err := os.Hostname()
	if err != nil {
		host = "" // unknown
	}
	switch place := p.Where; {
	case place.Slurm():
		return strategy.Node{Name: cmp.Or(place.Node, host), Scheduler: "slurm", Job: place.Job}
	case place.Kind == cluster.Kubernetes || p.env["KUBERNETES_SERVICE_HOST"] != "":
		n := strategy.Node{Scheduler: "kubernetes", Job: host}
		for _, name := range nodeVariables {
			n.Name = cmp.Or(n.Name, p.env[name])
		}
		return n
	}
	return strategy.Node{Name: host}
}

// assumed removes values of a framework that this job may have otherwise: no word of the command sets them. The
// process's report counts instead.
func (r Resolved) assumed(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	r.assumedDefaults(plan, knobs)
	r.assumedPrecision(plan, knobs)
}

// assumedDefaults removes a recognised framework's defaults if a shell script starts the program. The program was not
// read: it may be a fork of the framework's, with the same arguments and other defaults.
func (r Resolved) assumedDefaults(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	if r.Job.shellScript() == "" || r.recipe.Name == "" || r.recipe.Name == ownScript || !r.auto() {
		return
	}
	d := format.NewDraft(r.recipe.Recipe, r.command)
	set := func(k strategy.Knob) bool {
		return slices.ContainsFunc(d.Places(r.recipe.Knobs[k]), func(p format.Place) bool {
			_, found, err := p.Get(d, k)
			return found || err != nil
		})
	}
	for k, own := range knobs {
		if plan[k] == "" || r.recipe.Knobs[k].Own || own.By == strategy.ByHook || set(k) {
			continue
		}
		delete(plan, k)
		own.Reported, own.Doubtful = true, true // the process reports it
		own.Absent = cmp.Or(own.Absent,
			"the command does not have it, and "+filepath.Base(
				r.Job.shellScript())+" starts a program that was not read, whose default is not known")
		knobs[k] = own
	}
}

// inType are the versions that load a model in fp32 whatever type it was saved in, and loadsAsSaved the recipes
// whose framework loads it in the type in which it was saved (LLaMA-Factory: model/patcher.py).
var (
	inType       = format.Versions{"transformers": "<5"}
	loadsAsSaved = []string{"llama-factory"}
)

// assumedPrecision removes fp32, the default of a framework that loads the model in the type in which it was saved.
func (r Resolved) assumedPrecision(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	const k = strategy.Precision
	own := knobs[k]
	saved := slices.Contains(loadsAsSaved, r.recipe.Name) || inType.Outside(r.command.Packages) != ""
	if own.Absent != "" || r.recipe.Knobs[k].Own || plan[k] != "fp32" || !saved {
		return
	}
	delete(plan, k)
	own.Doubtful = true
	knobs[k] = own
}
