package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// A prepared job is one whose every question is answered, with nothing started:
// what gpurun plan prints, and what gpurun run launches.
type prepared struct {
	job      *job.Job
	env      []string // that the ranks inherit, the job's own on top
	place    cluster.Place
	nvml     *gpu.NVML // nil where there is none
	gpus     gpu.View
	python   string
	recipe   recipes.Recipe
	evidence []string // why this recipe
	command  recipes.Command
	at       recipes.Topology
	local    int // ranks on this node
	plan     strategy.Plan
	knobs    map[strategy.Knob]strategy.Range
	ceiling  ceiling
	digest   string
	warnings []string
}

// prepare answers every question about a job. It starts no rank. The caller
// closes the result.
func prepare(ctx context.Context, j *job.Job) (*prepared, error) {
	p := &prepared{job: j, warnings: slices.Clone(j.Warnings)}
	steps := []func(context.Context) error{p.locate, p.count, p.interpreter, p.script, p.choose, p.read, p.limit}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	return p, nil
}

// prepareArgs prepares the job of a command line, for verbs that start nothing.
// The caller closes the result.
func prepareArgs(ctx context.Context, args []string) (*prepared, job.Own, error) {
	j, own, err := readJob(args)
	if err != nil {
		return nil, own, err
	}
	p, err := prepare(ctx, j)
	return p, own, err
}

func (p *prepared) close() error {
	if p.nvml == nil {
		return nil
	}
	return p.nvml.Close()
}

// locate finds out where gpurun runs, and refuses a launch of several nodes.
func (p *prepared) locate(context.Context) error {
	place, err := cluster.Detect(os.Environ())
	if err != nil {
		return &usageError{err: err}
	}
	if err := place.Refuse(); err != nil {
		return err
	}
	p.place = place
	p.env = launcher.Overlay(cluster.RankEnv(os.Environ()), p.job.Env)
	return nil
}

// count finds the GPUs that the job would see, and how many ranks it has.
func (p *prepared) count(context.Context) error {
	nvml, err := gpu.Open()
	if err != nil && !errors.Is(err, gpu.ErrAbsent) {
		p.warnings = append(p.warnings, err.Error())
	}
	p.nvml = nvml
	if p.gpus, err = gpu.Visible(p.env, p.nvml); err != nil {
		p.warnings = append(p.warnings, err.Error())
	}
	if p.local, err = p.ranks(); err != nil {
		return err
	}
	p.at = recipes.Topology{Ranks: p.local, DataParallel: p.local, NVMePath: p.job.Recovery.NVMePath}
	if n := p.job.Launch.DataParallel; n > 0 {
		if p.local%n != 0 {
			return usagef("it is the world size divided by tensor, pipeline and context parallel sizes",
				"launch.data_parallel = %d does not divide the %d ranks", n, p.local)
		}
		p.at.DataParallel = n
	}
	return nil
}

// ranks is the number of ranks on this node, by torchrun's rules.
func (p *prepared) ranks() (int, error) {
	count := p.job.Launch.NprocPerNode
	if n, ok := count.Number(); ok {
		if p.gpus.Count > 0 && n > p.gpus.Count && !p.job.Launch.Self {
			p.warnings = append(p.warnings, fmt.Sprintf("%d ranks share %d visible GPUs (%s)", n, p.gpus.Count, p.gpus.Source))
		}
		return n, nil
	}
	switch {
	case count == "gpu" && p.gpus.Count == 0:
		return 0, usagef("set CUDA_VISIBLE_DEVICES, or ask for a number of processes", "nproc_per_node is \"gpu\", and no GPU is visible")
	case count != "cpu" && p.gpus.Count > 0:
		return p.gpus.Count, nil
	}
	return cpus(), nil
}

// accelerator is what the job trains on.
func (p *prepared) accelerator() string {
	if p.gpus.Count > 0 {
		return "cuda"
	}
	return "cpu"
}

func (p *prepared) interpreter(context.Context) error {
	path, why, err := job.Interpreter(p.job, p.env, exec.LookPath)
	if err != nil {
		return err
	}
	p.python = path
	if path != "" && !filepath.IsAbs(path) {
		return fmt.Errorf("find the interpreter (%s): %q is not absolute", why, path)
	}
	return nil
}

// script reads the script's source, by which a recipe is recognised, and makes
// sure that it is there before anything starts.
func (p *prepared) script(ctx context.Context) error {
	p.command = recipes.Command{Argv: slices.Clone(p.job.Argv), Env: environMap(p.env), Files: map[string][]byte{}}
	switch p.job.Kind {
	case job.Script:
	case job.Module:
		p.command.Script = p.moduleSource(ctx, p.job.Argv[0])
		return nil
	default:
		return nil
	}
	source, err := os.ReadFile(p.under(p.job.Argv[0]))
	if errors.Is(err, fs.ErrNotExist) {
		return usagef(fmt.Sprintf("it is looked for in %s", p.job.Workdir), "script %s does not exist", p.job.Argv[0])
	}
	if err != nil {
		return &usageError{err: fmt.Errorf("read the script: %w", err)}
	}
	p.command.Script = source
	return nil
}

// under resolves a path as the job's own process would.
func (p *prepared) under(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(p.job.Workdir, path)
}

// choose finds the recipe: named, from a file, or recognised; train.toml's own
// tables override it.
func (p *prepared) choose(ctx context.Context) error {
	var catalog []recipes.Recipe
	var err error
	if p.job.Recipe == "auto" || p.job.Recipe == "" {
		catalog, err = recipes.Likely(p.command)
	} else {
		catalog, err = recipes.Catalog()
	}
	if err != nil {
		return fmt.Errorf("load the recipes: %w", err)
	}
	var base recipes.Recipe // none
	switch name := p.job.Recipe; {
	case name == "none":
	case name == "auto" || name == "":
		found, evidence, ok := p.detect(catalog)
		if ok && p.command.Packages == nil {
			// Recipes differ by the framework's version, and a framework may have
			// several. Jobs of no framework do not wait for the answer.
			p.command.Packages = p.packages(ctx)
			found, evidence, ok = p.detect(catalog)
		}
		if ok {
			base, p.evidence = found, evidence
		}
	case strings.ContainsRune(name, filepath.Separator):
		if base, err = recipeFile(name); err != nil {
			return err
		}
	default:
		i := slices.IndexFunc(catalog, func(r recipes.Recipe) bool { return r.Name == name })
		if i < 0 {
			return usagef("gpurun recipes lists them; a path to a recipe file works too", "there is no recipe %q", name)
		}
		base = catalog[i]
	}
	if base.Name != "" && p.command.Packages == nil {
		p.command.Packages = p.packages(ctx)
	}
	over, problems := recipes.FromKnobs(p.job.Knobs)
	if len(problems) > 0 {
		return usagef("", "%s", problems[0].Message)
	}
	over.Resume = recipes.Resume{Latest: p.job.Resume.Latest, Args: p.job.Resume.Args}
	if p.job.Progress.Step != nil {
		over.Progress.Step = p.job.Progress.Step.String()
	}
	p.recipe = base.With(over)
	if base.Name == "" && len(over.Knobs) > 0 {
		p.evidence = []string{"[knobs] in train.toml"}
	}
	return nil
}

// recipeName is the recipe's name for people.
func (p *prepared) recipeName() string {
	switch {
	case p.recipe.Name != "":
		return p.recipe.Name
	case len(p.recipe.Knobs) > 0:
		return "[knobs]"
	}
	return "none"
}

// detect recognises a recipe by the command, loading the files that a recipe
// says the command names, since their keys may be what tells it.
func (p *prepared) detect(catalog []recipes.Recipe) (recipes.Recipe, []string, bool) {
	for _, r := range catalog {
		// One that is not there is no mark of anything; read complains of it if the
		// recipe that is chosen needs it.
		_ = p.load(r)
	}
	return recipes.Detect(p.command, catalog)
}

// load reads the configuration files that the command names, as a recipe
// understands it, until they name no further one.
func (p *prepared) load(r recipes.Recipe) error {
	for {
		more := slices.DeleteFunc(r.FilesNamed(p.command), func(name string) bool { return p.command.Files[name] != nil })
		if len(more) == 0 {
			return nil
		}
		for _, name := range more {
			if strings.Contains(name, "://") {
				return fmt.Errorf("read a configuration file of the job: %s is not on this machine: download it, and name the copy", name)
			}
			text, err := os.ReadFile(p.under(name))
			if err != nil {
				return fmt.Errorf("read a configuration file of the job: %w", err)
			}
			p.command.Files[name] = text
		}
	}
}

func recipeFile(path string) (recipes.Recipe, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return recipes.Recipe{}, &usageError{err: fmt.Errorf("read the recipe: %w", err)}
	}
	r, err := recipes.ParseFile(path, text)
	if err != nil {
		return r, err // with each fault at its place
	}
	return r, nil
}

// read loads the configuration files and the current plan.
func (p *prepared) read(context.Context) error {
	if err := p.load(p.recipe); err != nil {
		return &usageError{err: err}
	}
	if p.job.Launch.DataParallel == 0 {
		at, err := p.recipe.Parallel(p.command, p.at)
		if err != nil {
			return &usageError{err: fmt.Errorf("count the data-parallel ranks: %w", err), hint: "set launch.data_parallel"}
		}
		p.at = at
	}
	plan, knobs, err := p.recipe.Read(p.command, p.at)
	if err != nil {
		return &usageError{err: fmt.Errorf("read the job's plan: %w", err), hint: "check [knobs] and the job's arguments; gpurun plan shows what is understood"}
	}
	for k, r := range knobs {
		if families, reason, fragile := p.recipe.Families(k); fragile {
			r.Checkpoint = &strategy.Survival{Groups: families, Reason: reason}
			knobs[k] = r
		}
	}
	if p.accelerator() == "cpu" {
		delete(plan, strategy.Allocator)
		knobs[strategy.Allocator] = strategy.Range{Absent: "the job trains on the CPU"}
	}
	p.plan, p.knobs = plan, knobs
	p.digest = p.digestAll()
	return nil
}

// digestAll tells this job from every other: its command, its train.toml and
// the configuration files that it names.
func (p *prepared) digestAll() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", p.job.Digest)
	for _, name := range slices.Sorted(maps.Keys(p.command.Files)) {
		fmt.Fprintf(h, "%q %x\n", name, sha256.Sum256(p.command.Files[name]))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// strategyJob is what Decide has to know.
func (p *prepared) strategyJob() strategy.Job {
	return strategy.Job{Knobs: p.knobs, Ranks: p.at.Ranks, LocalRanks: p.local, DataParallel: p.at.DataParallel, Written: p.plan,
		Resumption: strategy.Resumption{Data: p.recipe.Resume.Data, Shifts: p.recipe.Resume.Shifts}}
}

func (p *prepared) policy() strategy.Policy {
	r := p.job.Recovery
	return strategy.Policy{
		Mode: strategy.Mode(r.Mode), MaxAttempts: r.MaxAttempts, Numerics: strategy.Numerics(r.Numerics), Never: r.Never,
		NVMePath: r.NVMePath, TransientRetries: r.TransientRetries, Restarts: p.job.Launch.MaxRestarts, RestartFromZero: r.RestartFromZero,
	}
}

func environMap(env []string) map[string]string {
	m := map[string]string{}
	for _, word := range env {
		if k, v, ok := strings.Cut(word, "="); ok {
			m[k] = v
		}
	}
	return m
}
