// Package recipes knows where a training framework keeps each setting that a strategy may change.
// It reads the plan of a command, and turns the next plan into a changed command and changed
// copies of its files.
//
// The package does no I/O: the caller loads the files that FilesNamed lists, and writes the files
// of a strategy.Command. A plan is always applied to the original command, never to the result of an
// earlier plan.
//
// README.md documents the format of a recipe file and of the [knobs] table.
package recipes

import (
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// A Recipe describes how one framework, or one user's script, spells the knobs. It reads and
// changes commands.
type Recipe struct{ format.Recipe }

// The parts of a recipe, and its inputs.
type (
	Command  = format.Command
	Topology = format.Topology
	Knob     = format.Knob
	Resume   = format.Resume
	Progress = format.ProgressLines
	Verified = format.Verified
)

// ParseFile reads a recipe file, which the user knows by this name. The error is a
// *edit.FileError with all its faults, each at its position.
func ParseFile(file string, text []byte) (Recipe, error) {
	r, err := format.Parse(file, text, rules)
	return Recipe{r}, err
}

// FromKnobs reads the [knobs] table of a train.toml, in the form that a TOML decoder returns. The
// recipe has no name.
func FromKnobs(table map[string]any) (Recipe, []edit.Problem) {
	r, problems := format.FromKnobs(table)
	return Recipe{r}, problems
}

// KnobKeys lists the keys that an entry of [knobs] may have.
func KnobKeys() []string { return format.KnobKeys() }

// Turned lists the knobs that the recipe can change, in the order of strategy.Knobs.
func (r Recipe) Turned() []strategy.Knob {
	return slices.DeleteFunc(slices.Clone(strategy.Knobs), func(k strategy.Knob) bool {
		knob, known := r.Knobs[k]
		return !known || knob.Absent != ""
	})
}

// Families returns the sets of a knob's values within which a checkpoint survives a change, and
// the reason why it does not survive others. It is false for a knob on which checkpoints do not
// depend.
func (r Recipe) Families(k strategy.Knob) (families [][]strategy.Value, reason string, fragile bool) {
	for _, s := range r.Checkpoint {
		if s.Knob == k {
			return s.Families, s.Reason, true
		}
	}
	return nil, "", false
}

// With returns the recipe in which the knobs of over replace its knobs, with over's resume and
// progress if over has them.
func (r Recipe) With(over Recipe) Recipe { return Recipe{r.Recipe.With(over.Recipe)} }

// catalog has the recipes that come with gpurun, one TOML file for each framework.
//
//go:embed catalog
var catalog embed.FS

// verified has the results of make conformance, by the name of the recipe.
//
//go:embed verified.toml
var verified []byte

// Catalog returns the recipes that come with gpurun, sorted by name.
func Catalog() ([]Recipe, error) {
	read, err := Embedded()
	all := make([]Recipe, len(read))
	for i, r := range read {
		all[i] = Recipe{r}
	}
	return all, err
}

// Embedded returns the recipes of Catalog, for callers that look for the recipe of a command. Each file is read once;
// the recipes are not changed.
var Embedded = sync.OnceValues(func() ([]format.Recipe, error) {
	entries, err := catalog.ReadDir("catalog")
	if err != nil {
		return nil, fmt.Errorf("read the catalog of recipes: %w", err)
	}
	reports := map[string]*format.Verified{}
	if err := toml.Unmarshal(verified, &reports); err != nil {
		return nil, fmt.Errorf("read the conformance reports: %w", err)
	}
	all, faults := make([]format.Recipe, len(entries)), make([]error, len(entries))
	var reading sync.WaitGroup
	for i, e := range entries {
		reading.Go(func() { all[i], faults[i] = readEmbedded(e.Name()) })
	}
	reading.Wait()
	for i := range all {
		all[i].Verified = reports[all[i].Name]
	}
	slices.SortStableFunc(all, func(a, b format.Recipe) int { return strings.Compare(a.Name, b.Name) })
	return all, errors.Join(faults...)
})

// readEmbedded reads one recipe.
func readEmbedded(file string) (format.Recipe, error) {
	text, err := catalog.ReadFile("catalog/" + file)
	if err != nil {
		return format.Recipe{}, fmt.Errorf("read the catalog of recipes: %w", err)
	}
	r, err := format.Parse(file, text, rules)
	if err != nil {
		return r, fmt.Errorf("read the catalog of recipes: %w", err)
	}
	return r, nil
}

// Observer returns a reader of the lines in which a job reports that it starts from scratch instead of resuming, or
// that it did nothing. It is nil if the recipe knows no such line.
func (r Recipe) Observer() func(line string) (strategy.ObservedSetting, bool) {
	if r.Resume.Lost == "" && r.Progress.Nothing == "" {
		return nil
	}
	matcher := func(expression string) func(line string) bool {
		if expression == "" {
			return func(string) bool { return false }
		}
		return regexp.MustCompile(expression).MatchString // Parse has already compiled it
	}
	lost, nothing := matcher(r.Resume.Lost), matcher(r.Progress.Nothing)
	return func(line string) (strategy.ObservedSetting, bool) {
		seen := strategy.ObservedSetting{Fresh: lost(line), Nothing: nothing(line), Text: line}
		return seen, seen.Fresh || seen.Nothing
	}
}
