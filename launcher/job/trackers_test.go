package job

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
)

// A tracker's variables are set where the framework alone speaks to it, where the interpreter
// has it, and where the user has set none; a job of which nothing is known gets a tag.
func TestTracked(t *testing.T) {
	all := recipes.Recipe{Recipe: format.Recipe{Resume: format.Resume{Env: map[string]string{"WANDB_RUN_ID": "{job}", "WANDB_RESUME": "allow", "TENSORBOARD_LOGGING_DIR": "runs/{job}"}}}}
	installed := map[string]string{"wandb": "0.31.0", "mlflow-skinny": "3.17.2", "tensorboard": "2.21.0"}
	for name, test := range map[string]struct {
		source   string
		packages map[string]string
		env      commandline.Environ
		want     string
	}{
		"all":                     {"import torch", installed, nil, "MLFLOW_RUN_CONTEXT TENSORBOARD_LOGGING_DIR WANDB_RESUME WANDB_RUN_ID"},
		"by its source":           {"import mlflow", nil, nil, "MLFLOW_RUN_CONTEXT"},
		"nothing known":           {"import torch", nil, nil, ""},
		"an image":                {"x = wandb.Image(x)", installed, nil, "MLFLOW_RUN_CONTEXT TENSORBOARD_LOGGING_DIR WANDB_RESUME WANDB_RUN_ID"},
		"a run of its own":        {"wandb.init(project='x')", installed, nil, "MLFLOW_RUN_CONTEXT TENSORBOARD_LOGGING_DIR"},
		"its settings":            {"wandb.config.update(vars(args))", installed, nil, "MLFLOW_RUN_CONTEXT TENSORBOARD_LOGGING_DIR"},
		"by name":                 {"from wandb import init", installed, nil, "MLFLOW_RUN_CONTEXT TENSORBOARD_LOGGING_DIR"},
		"none installed":          {"import torch", map[string]string{"torch": "2.11"}, nil, ""},
		"the user's W&B and tags": {"import torch", installed, commandline.Environ{"WANDB_RUN_ID": "x", "MLFLOW_RUN_CONTEXT": ""}, "TENSORBOARD_LOGGING_DIR"},
	} {
		r := Resolved{Inspected: Inspected{source: []byte(test.source), env: test.env}, recipeChoice: recipeChoice{recipe: all}}
		r.command = recipes.Command{Argv: []string{"x.py"}, Packages: test.packages, Env: test.env}
		p := (&Prepared{Resolved: r}).Tracked("r1")
		if got := strings.Join(slices.Sorted(maps.Keys(p.tracked)), " "); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if tags, set := p.tracked[mlflowTags]; set && tags != `{"gpurun.run":"r1"}` {
			t.Errorf("%s: %s", name, tags)
		}
	}
}
