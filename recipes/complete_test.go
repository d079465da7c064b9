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
	shown := remediesInGoldenFiles(t)
	for name, remedies := range shown {
		for remedy := range remedies {
			if !slices.Contains(slices.Concat(strategy.DeviceRemedies, strategy.HostRemedies), remedy) {
				t.Errorf("recipes/testdata/golden: a scene of %s has `rung %s`, which is no rung", name, remedy)
			}
		}
	}
	for _, r := range all {
		if len(shown[r.Name]) == 0 {
			t.Errorf("%s: no scene in recipes/testdata/golden has the lines `recipe %s` and `rung …`", r.Name, r.Name)
		}
		for knob, remedy := range remedyOf {
			if k, kept := r.Knobs[knob]; kept && k.Absent == "" && !shown[r.Name][remedy] {
				t.Errorf("%s keeps %s: add a scene with `recipe %s` and `rung %s` to recipes/testdata/golden", r.Name, knob, r.Name, remedy)
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

// remedyOf has the remedies of every framework whose recipe keeps the knob.
var remedyOf = map[strategy.Knob]strategy.Remedy{
	strategy.MicroBatchSize: strategy.RemedyMicroBatch, strategy.ActivationCheckpointing: strategy.RemedyCheckpointing,
}

// remediesInGoldenFiles returns the remedies in the golden files of each recipe.
func remediesInGoldenFiles(t *testing.T) map[string]map[strategy.Remedy]bool {
	t.Helper()
	shown := map[string]map[strategy.Remedy]bool{}
	for _, written := range golden(t) {
		name, remedy := "", ""
		for line := range strings.Lines(written.lines) {
			switch word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word {
			case "recipe":
				name = rest
			case "rung":
				remedy = rest
			}
		}
		if name != "" && remedy != "" {
			if shown[name] == nil {
				shown[name] = map[strategy.Remedy]bool{}
			}
			shown[name][strategy.Remedy(remedy)] = true
		}
	}
	return shown
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}
