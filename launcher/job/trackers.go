package job

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
)

// A tracker is a service that draws curves of trainings.
type tracker struct {
	// prefix is that of its variables, packages are the Python packages of which it needs one.
	prefix   string
	packages []string
	// own finds in a script that it speaks to the tracker itself, in a way by which a run that
	// is gone on with would mean something else.
	own *regexp.Regexp
}

// trackers are those that recipes have variables for.
//
// A script that begins runs itself may begin several, or one in each rank, and one that writes
// its settings into the run may be refused: W&B (wandb 0.31, sdk/wandb_config.py, _sanitize) and
// MLflow (3.17, store/tracking/sqlalchemy_store.py, _log_params) raise where a setting of a run
// that is gone on with gets another value, such as the micro batch after a rescue. What
// frameworks do is known: transformers 5.23, accelerate 1.15 and Lightning 2.6 begin one run on
// rank 0 and pass allow_val_change to W&B.
var trackers = []tracker{
	{"WANDB_", []string{"wandb"}, regexp.MustCompile(`\bwandb\.(init|config|finish|agent|setup)\b|\bfrom wandb\b`)},
	{"TENSORBOARD_", []string{"tensorboard", "tensorboardx"}, nil},
}

// mlflowTags has MLflow tag every run that the job begins (mlflow 3.17,
// tracking/context/system_environment_context.py).
const mlflowTags = "MLFLOW_RUN_CONTEXT"

// Tracked returns the job with the variables by which experiment trackers know its attempts as
// one run of that name.
func (p *Prepared) Tracked(name string) *Prepared {
	next := *p
	next.resolved.warnings = append(p.Warnings(), guest(experimentTrackers, func() error {
		next.tracked = p.resolved.trackedAs(name)
		return nil
	})...)
	return &next
}

func (r Resolved) trackedAs(name string) map[string]string {
	tracked := r.recipe.Tracked(r.command, name)
	maps.DeleteFunc(tracked, func(variable, _ string) bool {
		return slices.ContainsFunc(trackers, func(t tracker) bool { return strings.HasPrefix(variable, t.prefix) && !r.tracks(t) })
	})
	if _, set := r.env.Lookup(mlflowTags); !set && r.installed("mlflow", "mlflow-skinny") {
		tags, err := json.Marshal(map[string]string{"gpurun.run": name})
		if err == nil { // texts are encoded always
			tracked[mlflowTags] = string(tags)
		}
	}
	return tracked
}

// tracks reports whether a tracker is left to the job's framework.
func (r Resolved) tracks(t tracker) bool {
	if !r.installed(t.packages...) {
		return false
	}
	for _, s := range r.sources() {
		if t.own != nil && t.own.Match(s.Text) {
			return false
		}
	}
	return true
}

// installed reports whether the job's interpreter has one of the packages. Where it is not asked,
// which is for jobs of no framework, the first one's name in the script is taken for it.
func (r Resolved) installed(packages ...string) bool {
	if r.command.Packages != nil {
		return slices.ContainsFunc(packages, func(name string) bool { return r.command.Packages[name] != "" })
	}
	return slices.ContainsFunc(r.sources(), func(s format.Source) bool { return bytes.Contains(s.Text, []byte(packages[0])) })
}
