package job

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/script"
	"github.com/gpurun/gpurun/strategy"
)

// mostSource bounds, in bytes, how much of a job's own code is parsed: first the script, then the modules in
// the order of imports.
const mostSource = 4 << 20

// readingBudget is the processor time for the search for settings in a script before it starts, once its
// interpreter runs. Settings that are not found by then are unknown.
var readingBudget = 2 * time.Second

// own reads the settings of a script that no recipe knows from its source.
func (s Inspected) own(ctx context.Context, c recipeChoice) (recipeChoice, error) {
	found, err := s.analyse(ctx)
	if found == nil {
		return c, err
	}
	r := found.Recipe(func(r format.Recipe) string { return s.unsuited(c.command, r) })
	c.script, c.recipe = found, recipes.Recipe{Recipe: r}
	if c.evidence = found.Evidence(); len(c.evidence) == 0 && r.Resume.Latest == "" {
		c.recipe.Name = "" // a recipe that only names what is missing
	}
	c.warnings = append(c.warnings, found.Warnings()...)
	return c, nil
}

// ownSettings reads settings from the script's source that the recipe's places do not show: the recipe of a library such
// as Accelerate knows few of the settings of the scripts that use it.
func (s Inspected) ownSettings(ctx context.Context, c recipeChoice) (recipeChoice, error) {
	const k = strategy.MicroBatchSize
	plan, ranges := s.planOf(c.command, c.recipe)
	if plan == nil {
		return c, nil
	}
	batch := (plan[k] == "" || c.recipe.Knobs[k].Given) && ranges[k].Scope != strategy.ScopeDerived
	lacks := slices.DeleteFunc([]strategy.Knob{strategy.GradientAccumulationSteps, strategy.DataloaderWorkers}, func(k strategy.Knob) bool {
		return plan[k] != "" || ranges[k].Absent == "" || !c.recipe.Knobs[k].Given
	})
	if !batch && len(lacks) == 0 {
		return c, nil
	}
	found, err := s.analyse(ctx)
	if found == nil {
		return c, err
	}
	own := found.Recipe(func(r format.Recipe) string { return s.unsuited(c.command, r) })
	c.recipe.Knobs = maps.Clone(c.recipe.Knobs)
	for _, k := range lacks {
		if knob := own.Knobs[k]; knob.Places != nil {
			c.recipe.Knobs[k] = knob
		}
	}
	if batch && (plan[k] == "" || found.Unlike) {
		mine, _ := s.planOf(c.command, recipes.Recipe{Recipe: own})
		c.recipe.Knobs[k] = ownBatch(c.recipe, own.Knobs[k], ranges[k].Absent, plan[k], mine[k], found)
	}
	return c, nil
}

// ownBatch is the micro batch of a recipe by the script's source: its value, if the recipe's place does not show it, or
// shows an argument, written, of which the script computes another one, mine. absent is why the recipe cannot change it.
func ownBatch(r recipes.Recipe, own format.Knob, absent string, written, mine strategy.Value, found *script.Analysis) format.Knob {
	const k = strategy.MicroBatchSize
	knob := r.Knobs[k]
	if written != "" {
		return format.Knob{Absent: cmp.Or(own.Absent, "the script computes the micro batch from the argument"), Fixed: mine, Reported: mine == ""}
	}
	knob.Fixed, knob.Confirm = mine, true
	knob.Reported = mine == "" && own.Reported
	if absent != "" && knob.Absent == "" && knob.Given {
		why := fmt.Sprintf("the recipe %s changes the %s, which the command does not have", r.Name, knob.Places[0].Needs())
		if certain, known := found.Certain(k); known {
			why = fmt.Sprintf("the micro batch is %s, which the recipe %s does not change", certain.Name(), r.Name)
		}
		knob = format.Knob{Absent: why, Fixed: knob.Fixed, Reported: knob.Reported}
	}
	return knob
}

// planOf reads a plan by a recipe on one rank; nil if that fails.
func (s Inspected) planOf(command recipes.Command, r recipes.Recipe) (strategy.Plan, map[strategy.Knob]strategy.Range) {
	loaded, err := s.load(command, r.Recipe)
	if err != nil {
		return nil, nil
	}
	plan, ranges, err := r.Read(loaded, recipes.Topology{Ranks: 1})
	if err != nil {
		return nil, nil
	}
	return plan, ranges
}

// analyse finds the settings of a script in its source and its modules; nil if there is no source, or if
// nothing in it trains.
func (s Inspected) analyse(ctx context.Context) (*script.Analysis, error) {
	if s.Interpreter == nil || s.source == nil || s.unread || installed(s.sourcePath) || s.unparsed() != nil {
		return nil, nil
	}
	reading := s.reading
	if reading.Facts == nil && reading.Unknown == "" { // no code that computes a loss was seen
		var err error
		if reading, err = s.read(ctx, s.sources(), true, false); err != nil {
			return nil, err
		}
	}
	switch {
	case reading.Facts != nil:
		found := script.Decide(*reading.Facts, s.shown(s.sourcePath), s.Job.Argv, s.beside)
		return &found, nil
	case reading.Unknown != "":
		return nil, errors.New(reading.Unknown)
	}
	return nil, nil
}

// read lets the interpreter parse sources, each alone and, if deep is set, all together. If packages is set,
// the same run lists the packages. The result is empty if no source trains, or if there is no interpreter.
func (s Inspected) read(ctx context.Context, sources []format.Source, deep, packages bool) (script.SourceReading, error) {
	r := script.SourceRequest{Names: s.calledNames(), Deep: deep && s.Job.Recipe != "none" && !installed(s.sourcePath), Seconds: readingBudget.Seconds()}
	trains, size := false, 0
	for _, one := range sources {
		if size += len(one.Text); size > mostSource {
			break
		}
		trains = trains || script.MentionsTorch(one.Text)
		r.Sources = append(r.Sources, format.Source{Path: s.shown(one.Path), Text: one.Text})
	}
	interpreter := s.reader()
	if !trains || interpreter == nil {
		return script.SourceReading{}, nil
	}
	input, err := r.Input()
	if err != nil {
		return script.SourceReading{}, err
	}
	output := interpreter.Output
	if packages && interpreter == s.Interpreter {
		output = interpreter.OutputWithPackages
	}
	printed, err := output(ctx, r.Program(), input)
	if err != nil {
		return script.SourceReading{}, err
	}
	reading, err := script.Read(printed)
	if err == nil && !r.Deep && reading.Unknown != "" {
		err = errors.New(reading.Unknown)
	}
	return reading, err
}

// framework reports whether a recipe seems to know the job, by everything except its code.
func (s Inspected) framework() bool {
	if !s.auto() {
		return s.Job.Recipe != "none"
	}
	likely, err := s.likely()
	return err == nil && len(script.Candidates(s.asWritten(), likely)) > 0
}

// reader returns the interpreter that parses the job's source: the job's, or any other, since no code of the
// job runs; nil for none.
func (s Inspected) reader() *python.Interpreter {
	if s.Interpreter != nil {
		return s.Interpreter
	}
	path, err := python.Finder{Dir: s.Job.Workdir, Env: s.env}.InPath("python3")
	if err != nil {
		return nil
	}
	return python.At(path, s.Job.Workdir, s.env)
}

// calledNames returns the functions that the user's entries name, by their last names.
func (s Inspected) calledNames() []string {
	r, _ := recipes.FromKnobs(s.Job.Knobs) // choose reports their problems
	if strings.ContainsRune(s.Job.Recipe, filepath.Separator) {
		if file, err := recipeFile(s.Job.Recipe); err == nil {
			r = file.With(r)
		}
	}
	return r.CallNames()
}

// shown returns a path as a user would write it in the job's working directory.
func (s Inspected) shown(path string) string {
	if rel, err := filepath.Rel(s.Job.Workdir, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

// beside reads a configuration file of the job by a path that shown returned; nil if there is none.
func (s Inspected) beside(path string) []byte {
	text, err := ReadFile(s.under(path), largestFile)
	if err != nil {
		return nil
	}
	return text
}

// unsuited returns why a knob cannot be read at the place that the source shows, such as a missing file.
func (s Inspected) unsuited(command recipes.Command, r format.Recipe) string {
	loaded, err := s.load(command, r)
	if err == nil {
		_, _, err = recipes.Recipe{Recipe: r}.Read(loaded, recipes.Topology{Ranks: 1})
	}
	if err != nil {
		return strings.Join(strings.Fields(err.Error()), " ")
	}
	return ""
}

// computes matches source that may compute its own loss, or change more than gradients in a forward pass.
var computes = lazy.Regexp(`(?m)^\s*(?:async )?def (?:forward|compute_loss|training_step|loss\w*|\w*_loss)\b|\bbackward\(|\bcross_entropy\(|Loss\(|return_loss`)

// computes reports whether some of the job's own code may compute a loss.
func (s Inspected) computes() bool {
	return slices.ContainsFunc(s.sources(), func(f format.Source) bool { return computes().Match(f.Text) })
}

// judge sets the loss by the recipe and the job's own code, and keeps the micro batch if the loss compares
// its samples.
func (s Inspected) judge(ctx context.Context, c recipeChoice) (recipeChoice, error) {
	command, err := s.load(c.command, c.recipe.Recipe)
	if err != nil {
		command = c.command // reading the plan reports a missing file
	}
	of := c.recipe.LossOf(command)
	c.loss = of.Known()
	if of.Class == format.LossFeatures || !s.computes() {
		return c, nil
	}
	found, err := s.analyse(ctx)
	if err != nil || s.unread || found != nil && found.Unread() != "" {
		c.loss = strategy.Loss{Class: strategy.Average, Reason: "the job's own code, which may compute a loss, was not read"}
	}
	if found == nil || found.Unread() != "" {
		return c, err
	}
	if why := cmp.Or(found.Unequal(of.Computed()), s.normOfNamedClass(c.recipe.Name)); why != "" {
		c.recipe.Knobs = maps.Clone(c.recipe.Knobs)
		micro := c.recipe.Knobs[strategy.MicroBatchSize]
		micro.Unless = append(slices.Clip(micro.Unless), script.Against(why))
		c.recipe.Knobs[strategy.MicroBatchSize] = micro
	}
	own, computed := found.LibraryLoss()
	switch {
	case !of.Computed() || !computed:
	case own.Class == strategy.Exact:
		c.loss = strategy.Loss{Class: strategy.Exact, Reason: own.Reason + "; " + of.Reason, Own: true}
	default:
		c.loss = own
	}
	return c, nil
}

// unparsed warns of a script that the job's own interpreter does not parse: it would end at once.
func (s Inspected) unparsed() []string {
	if code := s.reading.Code; len(code) > 0 && code[0].Failed != "" {
		return []string{fmt.Sprintf("the job's Python does not parse %s (%s): it was written for another version, or has a mistake", s.shown(s.sourcePath), code[0].Failed)}
	}
	return nil
}

// normOfNamedClass is the reason against a smaller micro batch of LightningCLI, which makes the models that its files
// name: no code calls their classes.
func (s Inspected) normOfNamedClass(recipe string) string {
	if recipe != "lightning" {
		return ""
	}
	if at := s.first(batchNorm()); at != "" {
		return script.HasBatchNorm(at)
	}
	return ""
}

// place is an offset in a source as a user would write it: "train.py:3".
func (s Inspected) place(source format.Source, offset int) string {
	return fmt.Sprintf("%s:%d", s.shown(source.Path), 1+bytes.Count(source.Text[:offset], []byte("\n")))
}

// ownSchedules are the recipes whose jobs make the learning rate's schedule themselves. The frameworks of the
// others count optimizer steps. The recipe of a job with only [knobs] has no name.
var ownSchedules = []string{"", "own-script", "accelerate", "deepspeed", "lightning-script"}

// keepSchedule keeps the micro batch of a job whose learning rate depends on the number of batches. With a
// smaller one there would be more batches, but as many optimizer steps as before.
func (r Resolved) keepSchedule(knobs map[strategy.Knob]strategy.Range) (warnings []string) {
	micro := knobs[strategy.MicroBatchSize]
	if micro.Absent != "" || !slices.Contains(ownSchedules, r.recipe.Name) || r.schedules() {
		return nil
	}
	warnings = guest(batchSchedule, func() error {
		micro.Absent = r.scheduleOfBatches()
		return nil
	})
	if len(warnings) > 0 {
		micro.Absent = warnings[0]
	}
	if micro.Absent != "" {
		knobs[strategy.MicroBatchSize] = micro
	}
	return warnings
}

// schedules reports whether the search for the script's settings has compared its schedules with its
// accumulation.
func (r Resolved) schedules() bool {
	if r.script == nil {
		return false
	}
	found, certain := r.script.Certain(strategy.GradientAccumulationSteps)
	return certain && !found.Derived
}

// scheduleOfBatches returns the place where the learning rate depends on the number of batches; empty for
// none.
func (r Resolved) scheduleOfBatches() string {
	for _, file := range r.reading.Code {
		if s := file.Schedule; s != nil {
			return fmt.Sprintf("%s:%d: %s counts batches (%s): with smaller ones the learning rate would follow another schedule; count optimizer steps there", file.Path, s.Line, s.Name, s.Text)
		}
	}
	return ""
}
