package job

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/detect"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// mostSource bounds, in bytes, how much of a job's own code is parsed: first the script, then the modules in
// the order of imports.
const mostSource = 4 << 20

// readingBudget is the processor time for reading the names in a script before it starts, once its
// interpreter runs. Names that are not found by then are unknown.
var readingBudget = 2 * time.Second

// ownScript is the name of a recipe that has only the likely settings of a script.
const ownScript = "own-script"

// own adds the settings whose names suggest knobs, for the knobs that no recipe reads from this command.
func (s Inspected) own(c recipeChoice) recipeChoice {
	if s.unparsed() != nil {
		return c
	}
	command := c.command
	if installed(s.sourcePath) {
		command.Script, command.Code = nil, nil // only the command is the user's
	}
	likely := detect.Job{Command: command, Read: s.beside, Folder: filepath.Dir(s.shown(s.sourcePath))}.Likely()
	if c.recipe.Name != "" {
		plan, ranges := s.planOf(c.command, c.recipe)
		maps.DeleteFunc(likely, func(k strategy.Knob, _ format.Knob) bool {
			knob := c.recipe.Knobs[k]
			switch {
			case plan == nil || plan[k] != "" || ranges[k].Scope == strategy.ScopeDerived:
				return true
			case knob.InCode(): // which argument its computed value comes from
				return !k.Whole()
			}
			return ranges[k].Absent == "" || !knob.Given
		})
	}
	maps.DeleteFunc(likely, func(k strategy.Knob, _ format.Knob) bool { return s.describes(k) })
	if len(likely) == 0 {
		return c
	}
	if c.recipe.Name == "" {
		c.recipe = recipes.Recipe{Recipe: format.Recipe{Name: ownScript, Title: "a script of one's own"}}
	}
	knobs := maps.Clone(c.recipe.Knobs)
	if knobs == nil {
		knobs = map[strategy.Knob]format.Knob{}
	}
	maps.Copy(knobs, likely)
	c.recipe.Knobs = knobs
	return c
}

// describes reports whether an entry of [knobs] has the knob's place, and not only a bound.
func (s Inspected) describes(k strategy.Knob) bool {
	entry := s.Job.Knobs[string(k)]
	table, is := entry.(map[string]any)
	return entry != nil && !(is && len(table) == 1 && table["min"] != nil)
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

// read lets the interpreter parse sources. If packages is set, the same run lists the packages. The result is empty if
// no source names a package that trains, or if there is no interpreter.
func (s Inspected) read(ctx context.Context, sources []format.Source, packages bool) (detect.SourceReading, error) {
	r := detect.SourceRequest{Names: s.calledNames(), Seconds: readingBudget.Seconds()}
	trains, size := false, 0
	for _, one := range sources {
		if size += len(one.Text); size > mostSource {
			break
		}
		trains = trains || detect.MentionsTorch(one.Text)
		r.Sources = append(r.Sources, format.Source{Path: s.shown(one.Path), Text: one.Text})
	}
	interpreter := s.reader()
	if !trains || interpreter == nil {
		return detect.SourceReading{}, nil
	}
	input, err := r.Input()
	if err != nil {
		return detect.SourceReading{}, err
	}
	output := interpreter.Output
	if packages && interpreter == s.Interpreter {
		output = interpreter.OutputWithPackages
	}
	printed, err := output(ctx, detect.Program, input)
	if err != nil {
		return detect.SourceReading{}, err
	}
	reading, err := detect.Read(printed)
	if err == nil && reading.Unknown != "" {
		err = errors.New(reading.Unknown)
	}
	return reading, err
}

// framework reports whether a recipe seems to know the job, by everything except its code.
func (s Inspected) framework() bool {
	if !s.auto() {
		return s.Job.Recipe != "none"
	}
	catalog, err := recipes.Embedded()
	return err == nil && len(detect.Candidates(s.asWritten(), catalog)) > 0
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

// unparsed warns of a script that the job's own interpreter does not parse: it would end at once.
func (s Inspected) unparsed() []string {
	if code := s.reading.Code; len(code) > 0 && code[0].Failed != "" {
		return []string{fmt.Sprintf("the job's Python does not parse %s (%s): it was written for another version, or has a mistake", s.shown(s.sourcePath), code[0].Failed)}
	}
	return nil
}
