package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
)

// An Inspected job is one whose surroundings are known. It does not change.
type Inspected struct {
	job    Job
	env    environ.Vars // that the ranks inherit, the job's own on top
	place  cluster.Placement
	gpus   gpu.View
	python *python.Interpreter // nil for a program
	source []byte              // of the script or the module; nil where there is none
	// sourcePath is its file, empty without one.
	sourcePath string
	modules    []format.Source // that it imports, as far as they are the job's own
	warnings   []string
}

// Inspect finds out where a job would run: the scheduler's place, the environment,
// the GPUs, the interpreter and the script's source. It refuses a launch of several
// nodes.
func Inspect(ctx context.Context, j *Job, m Machine) (Inspected, error) {
	place, err := j.place(m.Environ)
	if err != nil {
		return Inspected{}, err
	}
	s := Inspected{job: *j, place: place, env: inherited(m.Environ).With(j.Env), warnings: slices.Concat(j.Warnings, m.Warnings, place.Warnings)}
	if s.gpus, err = m.visible(j, s.env); err != nil {
		s.warnings = append(s.warnings, strings.Split(err.Error(), "\n")...)
	}
	if s.python, err = s.findPython(); err != nil {
		return Inspected{}, err
	}
	if err = s.readSource(ctx); err != nil {
		return Inspected{}, err
	}
	if j.Through.Direct && strings.Contains("\n"+string(s.source), inlineMetadata) {
		s.python = nil // nobody can be asked what is in an environment that is yet to be made
	}
	s.warnings = append(s.warnings, guest(importedModules, func() error {
		s.modules = s.readModules()
		return nil
	})...)
	warnings, err := s.checkPromise(ctx, m)
	if err != nil {
		return Inspected{}, err
	}
	s.warnings = append(s.warnings, warnings...)
	return s, nil
}

// findPython finds the interpreter of the job, nil for a program.
func (s Inspected) findPython() (*python.Interpreter, error) {
	j := &s.job
	if interpreter, asked := j.asked(s.env); asked {
		return interpreter, nil
	}
	path, why, err := j.interpreter(s.env)
	switch {
	case err != nil || path == "":
		return nil, err
	case !filepath.IsAbs(path):
		return nil, fmt.Errorf("find the interpreter (%s): %q is not absolute", why, path)
	}
	return python.At(path, j.Workdir, s.env), nil
}

// inherited is what ranks inherit of gpurun's own environment.
func inherited(words []string) environ.Vars { return environ.Parse(cluster.RankEnv(words)) }

// readSource reads the source, by which a recipe is recognised, and makes sure that
// a script is there before anything starts.
func (s *Inspected) readSource(ctx context.Context) (err error) {
	switch s.job.Kind {
	case Script:
	case Module:
		s.warnings = append(s.warnings, guest(moduleSource, func() error {
			s.source, s.sourcePath = s.moduleSource(ctx)
			return nil
		})...)
		return nil
	default:
		return nil
	}
	s.sourcePath = s.under(s.job.Argv[0])
	s.warnings = append(s.warnings, guest(scriptSource, func() (unknown error) {
		var large tooLarge
		s.source, err = readFile(s.sourcePath, largestModule)
		if errors.As(err, &large) { // to search it would take longer than the job may wait
			unknown, err = err, nil
		}
		return unknown
	})...)
	if errors.Is(err, fs.ErrNotExist) {
		return errext.Errorf(fmt.Sprintf("it is looked for in %s", s.job.Workdir), "script %s does not exist", s.job.Argv[0])
	}
	if err != nil {
		return fmt.Errorf("read the script: %w", err)
	}
	return nil
}

// under resolves a path as the job's own process would.
func (s Inspected) under(path string) string { return under(s.job.Workdir, path) }

// auto reports whether the recipe is to be recognised.
func (s Inspected) auto() bool { return s.job.Recipe == "auto" || s.job.Recipe == "" }

// accelerator is what the job trains on: "cuda", "cpu", or PyTorch's word for what
// gpurun does not know.
func (s Inspected) accelerator() string {
	if s.gpus.Count > 0 {
		return cmp.Or(s.gpus.Accelerator, "cuda")
	}
	return "cpu"
}

// asWritten is the job's command as recipes see it, with no file read yet.
func (s Inspected) asWritten() recipes.Command {
	return recipes.Command{Argv: slices.Clone(s.job.Argv), Env: s.env, Files: map[string][]byte{}, Script: s.source, Modules: s.modules,
		Closed: !s.job.Launch.Probe || !s.job.Launch.Hooks}
}
