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
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/detect"
	"github.com/gpurun/gpurun/recipes/format"
)

// An Inspected job is a job whose surroundings are known. It is immutable.
type Inspected struct {
	Job         Job
	env         commandline.Environ // the ranks' environment: the inherited one, with the job's own variables
	Where       cluster.Placement
	GPUs        ranks.DeviceView
	Interpreter *python.Interpreter // nil for a program
	source      []byte              // source of the script or the module; nil for none
	// sourcePath is the source's file, empty for none.
	sourcePath string
	modules    []format.Source      // modules that it imports and that belong to the job
	reading    detect.SourceReading // the interpreter's findings in these
	unread     bool                 // the interpreter could not read them; a warning says why
	Warnings   []string
}

// Inspect finds out where a job would run: the scheduler's placement, the environment, the GPUs, the
// interpreter and the script's source. It refuses settings for nodes that cannot work.
func Inspect(ctx context.Context, j *Job, m Surroundings) (Inspected, error) {
	place, err := j.place(m.Environ)
	if err != nil {
		return Inspected{}, err
	}
	s := Inspected{Job: *j, Where: place, env: inherited(m.Environ).With(j.Env),
		Warnings: slices.Concat(j.Warnings, m.Warnings, place.Warnings)}
	if s.GPUs, err = m.visible(j, s.env); err != nil {
		s.Warnings = append(s.Warnings, strings.Split(err.Error(), "\n")...)
	}
	if s.Interpreter, err = s.findPython(); err != nil {
		return Inspected{}, err
	}
	if err = s.readSource(ctx); err != nil {
		return Inspected{}, err
	}
	if j.Through.Direct && strings.Contains("\n"+string(s.source), inlineMetadata) {
		s.Interpreter = nil // the wrapper has not made the environment yet
	}
	s.Warnings = append(s.Warnings, guest(importedModules, func() error {
		s.modules = s.readModules()
		return nil
	})...)
	unread := guest(sourceCode, func() (err error) {
		known := s.framework()
		s.reading, err = s.read(ctx, s.sources(), known)
		return err
	})
	s.Warnings, s.unread = append(s.Warnings, unread...), unread != nil
	warnings, err := s.checkPromise(ctx, m)
	if err != nil {
		return Inspected{}, err
	}
	s.Warnings = append(s.Warnings, warnings...)
	return s, nil
}

// findPython finds the interpreter of the job, nil for a program.
func (s Inspected) findPython() (*python.Interpreter, error) {
	j := &s.Job
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

// inherited returns the part of gpurun's environment that ranks inherit.
func inherited(words []string) commandline.Environ {
	return commandline.ParseEnviron(cluster.RankEnv(words))
}

// readSource reads the source, by which a recipe is recognised. It also makes sure that the script exists
// before anything starts.
func (s *Inspected) readSource(ctx context.Context) (err error) {
	switch s.Job.Kind {
	case Script:
	case Module:
		s.Warnings = append(s.Warnings, guest(moduleSource, func() error {
			s.source, s.sourcePath = s.moduleSource(ctx)
			return nil
		})...)
		return nil
	default:
		return nil
	}
	s.sourcePath = s.under(s.Job.Argv[0])
	s.Warnings = append(s.Warnings, guest(scriptSource, func() (unknown error) {
		var large tooLarge
		s.source, err = ReadFile(s.sourcePath, largestModule)
		if errors.As(err, &large) { // searching it would delay the job too long
			unknown, err = err, nil
		}
		return unknown
	})...)
	if errors.Is(err, fs.ErrNotExist) {
		return errext.Errorf(fmt.Sprintf("gpurun looks for it in %s", s.Job.Workdir), "script %s does not exist",
			s.Job.Argv[0])
	}
	if err != nil {
		return fmt.Errorf("read the script: %w", err)
	}
	return nil
}

// under resolves a path as the job's process would.
func (s Inspected) under(path string) string { return under(s.Job.Workdir, path) }

// auto reports whether gpurun has to recognise the recipe.
func (s Inspected) auto() bool { return s.Job.Recipe == "auto" || s.Job.Recipe == "" }

// Accelerator returns what the job trains on: "cuda", "cpu", or PyTorch's name of an accelerator that gpurun
// does not know.
func (s Inspected) Accelerator() string {
	if s.GPUs.Count > 0 {
		return cmp.Or(s.GPUs.Accelerator, "cuda")
	}
	return "cpu"
}

// asWritten returns the job's command for recipes, before any file is read.
func (s Inspected) asWritten() recipes.Command {
	return recipes.Command{Argv: slices.Clone(s.Job.Argv), Env: s.env, Files: map[string][]byte{}, Script: s.source,
		Modules: s.modules, Code: s.reading.Code,
		Closed: !s.Job.Launch.Probe || !s.Job.Launch.Hooks}
}

// moduleSource returns the source that "python -m module" runs, and its file; nil if it is not found, or if
// the module's name already determines the recipe. Nothing is imported for this, since that would run the
// package's code.
func (s Inspected) moduleSource(ctx context.Context) (source []byte, path string) {
	catalog, err := recipes.Embedded()
	if err != nil || detect.OwnProgram(s.asWritten(), catalog) {
		return nil, "" // choose reports errors of the recipes
	}
	base := strings.ReplaceAll(s.Job.Argv[0], ".", "/")
	files := []string{base + ".py", base + "/__main__.py"}
	for _, folder := range s.importPath(s.Job.Workdir) {
		for _, file := range files {
			path := filepath.Join(folder, file)
			if source, err := ReadFile(path, largestModule); err == nil {
				return source, path
			}
		}
	}
	if !s.auto() || s.Interpreter == nil {
		return nil, "" // nothing depends on it, or there is no interpreter
	}
	found, err := s.Interpreter.Files(ctx, files...)
	if err != nil {
		return nil, "" // the job itself will report the interpreter's error
	}
	for _, path := range found {
		if source, err := ReadFile(path, largestModule); path != "" && err == nil {
			return source, path
		}
	}
	return nil, ""
}

// An inference is a fact about a job that gpurun reads from its source, its configuration or its files. If it
// cannot be read it is unknown, and the job runs nevertheless.
type inference string

// The inferences.
const (
	scriptSource       inference = "the source of the job's script"
	moduleSource       inference = "the source of the job's module"
	importedModules    inference = "what the script imports"
	sourceCode         inference = "what the code of the job calls"
	promisedGPUs       inference = "whether PyTorch can use the promised GPUs"
	usedFramework      inference = "the job's framework"
	scriptSettings     inference = "where the script keeps its settings"
	scriptArguments    inference = "the arguments of the script"
	lossOfJob          inference = "what the loss is"
	joinsGroup         inference = "whether the script joins a process group"
	inProcess          inference = "what can be changed in the process"
	currentPlan        inference = "the job's plan"
	checkpointPlaces   inference = "where the job keeps its checkpoints"
	oneFolder          inference = "how to keep all attempts in one folder"
	experimentTrackers inference = "the job's experiment trackers"
	rememberedPlans    inference = "the remembered plans of this job"
	writtenPlan        inference = "how the plan is written into the command"
)

// beforeReading is called before each reader. Tests inject faults with it.
var beforeReading = func(inference) {}

// guest calls a reader. A panic or an error in it becomes a warning.
func guest(what inference, read func() error) (warnings []string) {
	err := errext.Recovered(func() error {
		beforeReading(what)
		return read()
	})
	if err == nil {
		return nil
	}
	return []string{fmt.Sprintf("%s is not known: %s", what, strings.Join(strings.Fields(err.Error()), " "))}
}
