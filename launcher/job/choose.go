package job

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/detect"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// A recipeChoice is a recipe, why it was chosen, and the command with all files that were read to choose it.
type recipeChoice struct {
	recipe   recipes.Recipe
	evidence []string
	command  recipes.Command
	// written is the recipe that the user wrote in train.toml, without the recognised parts.
	written  recipes.Recipe
	warnings []string
	// loss describes the job's loss, by the recipe.
	loss strategy.Loss
}

// choose finds the recipe: by name, from a file, or recognised. The tables of train.toml override it.
func (s Inspected) choose(ctx context.Context) (recipeChoice, error) {
	c, err := s.base(ctx)
	if err != nil {
		return recipeChoice{}, err
	}
	if c.recipe.Name != "" && c.command.Packages == nil {
		c.command.Packages = s.packages(ctx)
	}
	if c.recipe.Name != "" {
		c.warnings = append(c.warnings, guest(lossOfJob, func() error {
			command, err := s.load(c.command, c.recipe.Recipe)
			if err != nil {
				command = c.command // reading the plan reports a missing file
			}
			c.loss = c.recipe.LossOf(command).Known()
			return nil
		})...)
	}
	if s.auto() {
		c.warnings = append(c.warnings, guest(scriptSettings, func() error {
			c = s.own(c)
			return nil
		})...)
	}
	over, problems := recipes.FromKnobs(s.Job.Knobs)
	if len(problems) > 0 {
		return recipeChoice{}, errors.New(problems[0].Message)
	}
	over.Resume, over.Progress.Step = s.Job.Resume, s.Job.Step
	if err := c.bound(over.Knobs); err != nil {
		return recipeChoice{}, err
	}
	if c.recipe.Name == "" && len(over.Knobs) > 0 {
		c.evidence = []string{"[knobs] in train.toml"}
	}
	c.recipe, c.written = c.recipe.With(over), recipes.Recipe{}.With(over)
	if (c.recipe.Name != "" || len(over.Knobs) > 0) && s.source != nil {
		c.warnings = append(c.warnings, guest(scriptArguments, func() (err error) {
			c.command.Parser, err = s.parser(ctx, c.recipe.Recipe)
			return err
		})...)
		c.leave(s.mistyped(over, c.command.Parser))
	}
	return c, nil
}

// bound gives the user's minimum to a setting that was found without an entry in [knobs].
func (c *recipeChoice) bound(over map[strategy.Knob]format.Knob) error {
	for k, own := range over {
		if !own.OnlyBounded() {
			continue
		}
		found := c.recipe.Knobs[k]
		if found.Places == nil {
			return errext.Errorf("name its place, too: "+string(k)+" = { arg = \"--…\", min = … }",
				"[knobs] %s has only a minimum, and gpurun found no place for it in the job", k)
		}
		found.Min = own.Min
		over[k] = found
	}
	return nil
}

// leave removes knobs of the user that cannot be changed, by their reasons, and warns of them.
func (c *recipeChoice) leave(reasons map[strategy.Knob]string) {
	c.recipe.Knobs = maps.Clone(c.recipe.Knobs)
	for _, k := range slices.Sorted(maps.Keys(reasons)) {
		c.recipe.Knobs[k] = format.Knob{Absent: reasons[k]}
		c.warnings = append(c.warnings, fmt.Sprintf("[knobs] %s: %s", k, reasons[k]))
	}
}

// mistyped returns the knobs whose arguments in [knobs] the script does not define, with that as the reason.
func (s Inspected) mistyped(over recipes.Recipe, parser *format.Parser) map[strategy.Knob]string {
	reasons := map[strategy.Knob]string{}
	if !parser.Complete() {
		return reasons
	}
	for _, k := range strategy.Knobs {
		for _, place := range over.Knobs[k].Places {
			for _, name := range place.Arguments() {
				if parser.Has(name, true) || slices.Contains(s.Job.Argv, name) {
					continue
				}
				text := fmt.Sprintf("%s defines no argument %s", s.shown(s.sourcePath), name)
				if near := Nearest(name, parser.Names()); near != "" {
					text += fmt.Sprintf("; did you mean %s?", near)
				}
				reasons[k] = text
			}
		}
	}
	return reasons
}

// base finds the recipe that train.toml's tables override; a zero one if there is none.
func (s Inspected) base(ctx context.Context) (recipeChoice, error) {
	c := recipeChoice{command: s.asWritten()}
	var err error
	switch name := s.Job.Recipe; {
	case name == "none":
	case s.auto():
		warnings := guest(usedFramework, func() (err error) {
			c, err = s.recognise(ctx)
			return err
		})
		c.warnings = append(c.warnings, warnings...)
	case strings.ContainsRune(name, filepath.Separator):
		c.recipe, err = recipeFile(name)
	default:
		c.recipe, err = fromCatalog(name)
	}
	return c, err
}

// fromCatalog finds a recipe by name.
func fromCatalog(name string) (recipes.Recipe, error) {
	catalog, err := recipes.Catalog()
	if err != nil {
		return recipes.Recipe{}, fmt.Errorf("load the recipes: %w", err)
	}
	for _, r := range catalog {
		if r.Name == name {
			return r, nil
		}
	}
	return recipes.Recipe{}, errext.Errorf("gpurun recipes lists them; a path to a recipe file works too",
		"there is no recipe %q", name)
}

// recipeFile reads the user's own recipe.
func recipeFile(path string) (recipes.Recipe, error) {
	text, err := ReadFile(path, largestRecipe)
	if err != nil {
		return recipes.Recipe{}, errext.WithHint(fmt.Errorf("read the recipe: %w", err),
			"job.recipe is a framework's name or the path of a recipe file; gpurun recipes lists the names")
	}
	return recipes.ParseFile(path, text) // the error has the place of each fault
}

// recognise finds the recipe by patterns in the command, its files and its source; a zero one if none or
// several match.
func (s Inspected) recognise(ctx context.Context) (recipeChoice, error) {
	catalog, err := recipes.Embedded()
	if err != nil {
		return recipeChoice{}, fmt.Errorf("load the recipes: %w", err)
	}
	c, ok := s.detect(s.asWritten(), catalog)
	if ok {
		// A framework may have several recipes, for different versions.
		c.command.Packages = s.packages(ctx)
		c, _ = s.detect(c.command, catalog)
		c.warnings = detect.Outdated(c.command, catalog, c.recipe.Recipe)
	}
	return c, nil
}

// detect recognises a recipe by the command. It loads the files that the command names according to a recipe,
// since the recipe may match by their keys.
func (s Inspected) detect(command recipes.Command, among []format.Recipe) (recipeChoice, bool) {
	for _, r := range among {
		// A missing file matches nothing. Read reports it if the chosen recipe needs it.
		command, _ = s.load(command, r)
	}
	found, evidence, ok := detect.Detect(command, among)
	if !ok {
		return recipeChoice{command: command}, false
	}
	packages := slices.Sorted(maps.Keys(found.Versions))
	if !slices.ContainsFunc(packages, func(name string) bool { return command.Packages[name] != "" }) &&
		len(packages) > 0 {
		evidence = append(evidence, fmt.Sprintf("the version of %s is not known: the recipe is for %s",
			strings.Join(packages, " or "), found.Versions[packages[0]]))
	}
	return recipeChoice{recipe: recipes.Recipe{Recipe: found}, evidence: evidence, command: command}, true
}

// load adds to a command the configuration files that it names according to a recipe, and the files that
// these name. With an error, it returns the command with the files that could be read.
func (s Inspected) load(command recipes.Command, r format.Recipe) (recipes.Command, error) {
	files := maps.Clone(command.Files)
	command.Files = files
	for {
		more := slices.DeleteFunc(r.FilesNamed(command), func(name string) bool { return files[name] != nil })
		if len(more) == 0 {
			return command, nil
		}
		for _, name := range more {
			if strings.Contains(name, "://") {
				return command, fmt.Errorf(
					"read a configuration file of the job: %s is not on this machine: download it, and name the copy", name)
			}
			text, err := ReadFile(s.under(name), largestFile)
			if err != nil {
				return command, fmt.Errorf("read a configuration file of the job: %w", err)
			}
			files[name] = text
		}
	}
}

// packages returns the packages of the job's interpreter; nil if there is no interpreter, or it fails: the
// job itself will report the error.
func (s Inspected) packages(ctx context.Context) map[string]string {
	if s.Interpreter == nil {
		return nil
	}
	installed, err := s.Interpreter.Packages(ctx)
	if err != nil {
		return nil
	}
	return installed
}

// A RecipeDetection shows why a job's recipe was recognised.
type RecipeDetection struct {
	Recipe     string            `json:"recipe"` // empty for none
	Evidence   []string          `json:"evidence"`
	Candidates []CandidateRecipe `json:"candidates"`
}

// A CandidateRecipe is a recipe whose patterns match the job in part.
type CandidateRecipe struct {
	Recipe   string   `json:"recipe"`
	Evidence []string `json:"evidence"`
	Matched  bool     `json:"matched"`
	Yields   string   `json:"yields_to,omitempty"`
}

// Detection returns the recipe that the job gets, and the other candidates.
func (p *Prepared) Detection() (RecipeDetection, error) {
	candidates, err := p.Candidates()
	if err != nil {
		return RecipeDetection{}, err
	}
	name, evidence := p.Recipe()
	d := RecipeDetection{Recipe: name, Evidence: append([]string{}, evidence...), Candidates: []CandidateRecipe{}}
	for _, c := range candidates {
		d.Candidates = append(d.Candidates, CandidateRecipe{c.Recipe.Name, c.Evidence, c.Matched, c.Yields})
	}
	return d, nil
}

// Against explains why a candidate is not the job's recipe.
func (c CandidateRecipe) Against() string {
	switch {
	case c.Yields != "":
		return fmt.Sprintf("not %s: it gives way to %s", c.Recipe, c.Yields)
	case c.Matched:
		return fmt.Sprintf("not %s: more than one recipe fits: name it in job.recipe", c.Recipe)
	}
	return fmt.Sprintf("not %s: these signs are not enough", c.Recipe)
}

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
