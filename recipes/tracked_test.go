package recipes_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes"
)

// The Trainer's variables name the run and its folder. A tracker is left to the user if one of
// its variables is set; the others are not.
func TestTracked(t *testing.T) {
	const wandb = "WANDB_RUN_ID=r1 WANDB_RESUME=allow"
	for _, test := range []struct{ recipe, argv, env, want string }{
		{"hf-trainer", "x.py --output_dir out", "", wandb + " TENSORBOARD_LOGGING_DIR=out/runs/r1"},
		{"hf-trainer", "x.py", "HOME=/", wandb + " TENSORBOARD_LOGGING_DIR=trainer_output/runs/r1"},
		{"hf-trainer", "x.py", "WANDB_RUN_ID=mine", "TENSORBOARD_LOGGING_DIR=trainer_output/runs/r1"},
		{"hf-trainer", "x.py", "WANDB_RESUME=", "TENSORBOARD_LOGGING_DIR=trainer_output/runs/r1"},
		{"hf-trainer", "x.py", "TENSORBOARD_LOGGING_DIR=tb", wandb},
		{"trl", "x.py", "", wandb + " TENSORBOARD_LOGGING_DIR=trainer_output/runs/r1"},
		{"lightning", "x.py fit", "", wandb},
		{"torchtune", "x.py", "", ""},
	} {
		want := map[string]string{}
		for _, word := range strings.Fields(test.want) {
			name, value, _ := strings.Cut(word, "=")
			want[name] = value
		}
		env := map[string]string{}
		if name, value, set := strings.Cut(test.env, "="); set {
			env[name] = value
		}
		got := catalogued(t, test.recipe).Tracked(recipes.Command{Argv: strings.Fields(test.argv), Env: env}, "r1")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s, with %q (-want +got):\n%s", test.recipe, test.argv, test.env, diff)
		}
	}
}

// A variable without a value in the command is omitted; a job's own [resume] keeps the variables.
func TestTrackedOfARecipe(t *testing.T) {
	r := parsedRecipe(t, "[resume]\nenv = { A_DIR = \"{out}/{job}\", A_ID = \"{job}\" }\nvalues = { out = [{ arg = \"--out\" }] }\n")
	own := parsedRecipe(t, "[resume]\nlatest = \"x-*\"\nargs = [\"--from\", \"{latest}\"]\n")
	for _, recipe := range []recipes.Recipe{r, r.With(own)} {
		cmd := recipes.Command{Argv: []string{"x.py", "--out", "o"}}
		want := map[string]string{"A_DIR": "o/j", "A_ID": "j"}
		if recipe.Resume.Own {
			delete(want, "A_DIR") // with the values
		}
		if diff := cmp.Diff(want, recipe.Tracked(cmd, "j")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"A_ID": "j"}, recipe.Tracked(recipes.Command{Argv: []string{"x.py"}}, "j")); diff != "" {
			t.Errorf("without --out (-want +got):\n%s", diff)
		}
	}
}
