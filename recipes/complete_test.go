package recipes_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// TestEveryRecipeIsComplete: each recipe of the catalog has golden files, and is checked against
// the framework itself or has a reason why not.
func TestEveryRecipeIsComplete(t *testing.T) {
	all, err := recipes.Catalog()
	if err != nil {
		t.Fatal(err)
	}
	shown := rungsInGoldenFiles(t)
	for name, rungs := range shown {
		for rung := range rungs {
			if !slices.Contains(slices.Concat(strategy.DeviceRungs, strategy.HostRungs), rung) {
				t.Errorf("recipes/testdata/golden: a scene of %s has `rung %s`, which is no rung", name, rung)
			}
		}
	}
	for _, r := range all {
		if len(shown[r.Name]) == 0 {
			t.Errorf("%s: no scene in recipes/testdata/golden has the lines `recipe %s` and `rung …`", r.Name, r.Name)
		}
		for knob, rung := range rungOf {
			if k, kept := r.Knobs[knob]; kept && k.Absent == "" && !shown[r.Name][rung] {
				t.Errorf("%s keeps %s: add a scene with `recipe %s` and `rung %s` to recipes/testdata/golden", r.Name, knob, r.Name, rung)
			}
		}
		parser, why := filepath.Join("conformance", r.Name, "parse.py"), filepath.Join("conformance", r.Name, "UNVERIFIED")
		if !isFile(parser) && !isFile(why) {
			t.Errorf("%s: there is neither recipes/%s, which asks the framework, nor recipes/%s with one line that says why not", r.Name, parser, why)
		}
	}
}

// TestKnobsAreExplained: README.md has a line for each knob, with its named values in their
// order.
func TestKnobsAreExplained(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, knob := range strategy.Knobs {
		row := regexp.MustCompile("(?m)^\\| .*`" + string(knob) + "`.* \\| (.+) \\|$").FindStringSubmatch(string(page))
		if row == nil {
			t.Errorf("recipes/README.md, Knobs: no line for `%s`", knob)
			continue
		}
		var values []string
		for _, v := range strategy.Vocabulary(knob) {
			values = append(values, "`"+string(v)+"`")
		}
		if want := strings.Join(values, ", "); !strings.HasPrefix(row[1], want) {
			t.Errorf("recipes/README.md, Knobs: the values of %s are %s", knob, want)
		}
	}
}

// rungOf has the remedies of every framework whose recipe keeps the knob.
var rungOf = map[strategy.Knob]strategy.Rung{
	strategy.MicroBatchSize: strategy.RungMicroBatch, strategy.ActivationCheckpointing: strategy.RungCheckpointing,
}

// rungsInGoldenFiles returns the remedies in the golden files of each recipe.
func rungsInGoldenFiles(t *testing.T) map[string]map[strategy.Rung]bool {
	t.Helper()
	shown := map[string]map[strategy.Rung]bool{}
	for _, written := range golden(t) {
		name, rung := "", ""
		for line := range strings.Lines(written.lines) {
			switch word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word {
			case "recipe":
				name = rest
			case "rung":
				rung = rest
			}
		}
		if name != "" && rung != "" {
			if shown[name] == nil {
				shown[name] = map[strategy.Rung]bool{}
			}
			shown[name][strategy.Rung(rung)] = true
		}
	}
	return shown
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}
