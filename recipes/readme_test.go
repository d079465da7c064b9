package recipes_test

import (
	"os"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// TestReadmeExample: the train.toml of "A recipe in ten minutes" is read as the page describes,
// from a configuration file like the one on the page.
func TestReadmeExample(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "## A recipe in ten minutes")
	if !found {
		t.Fatal("the section is gone")
	}
	var example strings.Builder
	for line := range strings.Lines(section) {
		if code, indented := strings.CutPrefix(line, "       "); indented {
			example.WriteString(code)
		}
	}
	var file struct {
		Job struct {
			Script string
			Args   []string
		}
		Knobs map[string]any
	}
	if err := toml.Unmarshal([]byte(example.String()), &file); err != nil {
		t.Fatalf("%v in\n%s", err, &example)
	}
	r, problems := recipes.FromKnobs(file.Knobs)
	if problems != nil {
		t.Fatal(problems)
	}
	cmd := recipes.Command{
		Argv: append([]string{file.Job.Script}, file.Job.Args...), Env: map[string]string{},
		Files: map[string][]byte{"conf.yaml": []byte("optim:\n  accumulate: 1\n  dtype: f32\n")},
	}
	plan, ranges, err := r.Read(cmd, recipes.Topology{Ranks: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := strategy.Plan{
		strategy.MicroBatchSize: "16", strategy.GradientAccumulationSteps: "1", strategy.ActivationCheckpointing: "none", strategy.Precision: "fp32",
	}
	for k, v := range want {
		if plan[k] != v || ranges[k].Absent != "" {
			t.Errorf("%s = %q (%s), want %s", k, plan[k], ranges[k].Absent, v)
		}
	}
}
