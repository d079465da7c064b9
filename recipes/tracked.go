package recipes

import (
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
)

// Tracked are the variables by which all attempts of a run go on with one run of an experiment
// tracker; name is that run's. Where the command's environment has one of a tracker's, that
// tracker is left to the user, and what the command does not say is left out.
func (r Recipe) Tracked(cmd Command, name string) map[string]string {
	d, taken, all := format.NewDraft(r.Recipe, cmd), map[string]bool{}, map[string]string{}
	for variable := range r.Resume.Env {
		if _, set := cmd.Env[variable]; set {
			taken[tracker(variable)] = true
		}
	}
	for variable, text := range r.Resume.Env {
		if value, known := filled(d, text); known && !taken[tracker(variable)] {
			all[variable] = strings.ReplaceAll(value, "{job}", name)
		}
	}
	return all
}

// tracker is whose a variable is: WANDB_RUN_ID and WANDB_RESUME are of one.
func tracker(variable string) string {
	prefix, _, _ := strings.Cut(variable, "_")
	return prefix
}
