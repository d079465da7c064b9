package job

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/script"
	"github.com/gpurun/gpurun/strategy"
)

// A recipeChoice is a recipe, why it was chosen, and the command with all that was read
// for that.
type recipeChoice struct {
	recipe   recipes.Recipe
	evidence []string
	command  recipes.Command
	script   *script.Analysis // nil but for a script that no recipe knows
	// written is what the user wrote in train.toml, without what was recognised.
	written  recipes.Recipe
	warnings []string
	// loss is what recipe and source show of the job's loss.
	loss strategy.Loss
}

// choose finds the recipe: named, from a file, or recognised; train.toml's own
// tables override it.
func (s Inspected) choose(ctx context.Context) (recipeChoice, error) {
	c, err := s.base(ctx)
	if err != nil {
		return recipeChoice{}, err
	}
	if c.recipe.Name != "" && c.command.Packages == nil {
		c.command.Packages = s.packages(ctx)
	}
	if c.recipe.Name == "" && s.auto() {
		c.warnings = append(c.warnings, guest(scriptSettings, func() (err error) {
			c, err = s.own(ctx, c)
			return err
		})...)
	}
	switch {
	case c.script != nil:
		c.loss = c.script.Loss()
		c.loss.Own = true
	case c.recipe.Name != "":
		c.warnings = append(c.warnings, guest(lossOfSource, func() (err error) {
			c, err = s.judge(ctx, c)
			return err
		})...)
	}
	over, problems := recipes.FromKnobs(s.Job.Knobs)
	if len(problems) > 0 {
		return recipeChoice{}, errors.New(problems[0].Message)
	}
	over.Resume, over.Progress.Step = s.Job.Resume, s.Job.Step
	if arguments := accumulationArguments(over); c.script != nil && c.loss.Class == "" && len(arguments) > 0 {
		c.loss = c.script.LossDividedBy(arguments)
		c.loss.Own = true
	}
	if c.recipe.Name == "" && len(over.Knobs) > 0 {
		c.evidence = []string{"[knobs] in train.toml"}
	}
	c.recipe, c.written = c.recipe.With(over), recipes.Recipe{}.With(over)
	if c.recipe.Name != "" && s.source != nil {
		c.warnings = append(c.warnings, guest(scriptArguments, func() (err error) {
			c.command.Parser, err = s.parser(ctx, c.recipe.Recipe)
			return err
		})...)
	}
	return c, nil
}

// accumulationArguments are the names of the arguments that a recipe keeps the accumulation in.
func accumulationArguments(r recipes.Recipe) (names []string) {
	for _, place := range r.Knobs[strategy.GradientAccumulationSteps].Places {
		names = append(names, place.Arguments()...)
	}
	return names
}

// base finds the recipe that train.toml's tables override; a zero one where there is
// none.
func (s Inspected) base(ctx context.Context) (recipeChoice, error) {
	c := recipeChoice{command: s.asWritten()}
	var err error
	switch name := s.Job.Recipe; {
	case name == "none":
	case s.auto():
		c.warnings = guest(usedFramework, func() (err error) {
			c, err = s.recognise(ctx)
			return err
		})
	case strings.ContainsRune(name, filepath.Separator):
		c.recipe, err = recipeFile(name)
	default:
		c.recipe, err = fromCatalog(name)
	}
	return c, err
}

// fromCatalog finds a recipe by its name.
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
	return recipes.Recipe{}, errext.Errorf("gpurun recipes lists them; a path to a recipe file works too", "there is no recipe %q", name)
}

// recipeFile reads a recipe of the user's own.
func recipeFile(path string) (recipes.Recipe, error) {
	text, err := ReadFile(path, largestRecipe)
	if err != nil {
		return recipes.Recipe{}, errext.WithHint(fmt.Errorf("read the recipe: %w", err), "job.recipe is a framework's name or the path of a recipe file; gpurun recipes lists the names")
	}
	return recipes.ParseFile(path, text) // an error has each fault at its place
}

// recognise finds the recipe by the marks of the command, its files and its source;
// a zero one where none or several fit.
func (s Inspected) recognise(ctx context.Context) (recipeChoice, error) {
	likely, err := s.likely()
	if err != nil {
		return recipeChoice{}, err
	}
	c, ok := s.detect(s.asWritten(), likely)
	if ok {
		// Recipes differ by the framework's version, and a framework may have several.
		c.command.Packages = s.packages(ctx)
		c, _ = s.detect(c.command, likely)
	}
	return c, nil
}

// likely are the recipes of the catalog that the job could be of.
func (s Inspected) likely() ([]format.Recipe, error) {
	files, err := script.Likely(s.asWritten())
	if err != nil {
		return nil, fmt.Errorf("load the recipes: %w", err)
	}
	among, err := recipes.Embedded(files)
	if err != nil {
		return nil, fmt.Errorf("load the recipes: %w", err)
	}
	return among, nil
}

// detect recognises a recipe by the command, loading the files that a recipe says
// the command names, since their keys may be what tells it.
func (s Inspected) detect(command recipes.Command, among []format.Recipe) (recipeChoice, bool) {
	for _, r := range among {
		// One that is not there is no mark of anything; Read complains of it if the
		// recipe that is chosen needs it.
		command, _ = s.load(command, r)
	}
	found, evidence, ok := script.Detect(command, among)
	if !ok {
		return recipeChoice{command: command}, false
	}
	return recipeChoice{recipe: recipes.Recipe{Recipe: found}, evidence: evidence, command: command}, true
}

// load adds to a command the configuration files that it names, as a recipe
// understands it, until they name no further one. Beside an error, it returns the
// command with those that could be read.
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
				return command, fmt.Errorf("read a configuration file of the job: %s is not on this machine: download it, and name the copy", name)
			}
			text, err := ReadFile(s.under(name), largestFile)
			if err != nil {
				return command, fmt.Errorf("read a configuration file of the job: %w", err)
			}
			files[name] = text
		}
	}
}

// packages are those that the job's interpreter has; nil where it has none to ask,
// or does not answer: the job itself will say what is wrong with it.
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

// A RecipeDetection is what a job's recipe was recognised by.
type RecipeDetection struct {
	Recipe     string            `json:"recipe"` // empty: none
	Evidence   []string          `json:"evidence"`
	Candidates []CandidateRecipe `json:"candidates"`
}

// A CandidateRecipe is a recipe of whose marks the job has some.
type CandidateRecipe struct {
	Recipe   string   `json:"recipe"`
	Evidence []string `json:"evidence"`
	Matched  bool     `json:"matched"`
	Yields   string   `json:"yields_to,omitempty"`
}

// Detection shows which recipe the job gets, and what else it could have been.
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
	return fmt.Sprintf("not %s: these marks are not enough", c.Recipe)
}
