package job

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// assumed removes values of a framework that this job may have otherwise: no word of the command sets them. The
// process's report counts instead.
func (r Resolved) assumed(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	r.assumedDefaults(plan, knobs)
	r.assumedPrecision(plan, knobs)
}

// assumedDefaults removes a recognised framework's defaults if a shell script starts the program. The program was not
// read: it may be a fork of the framework's, with the same arguments and other defaults.
func (r Resolved) assumedDefaults(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	if r.Job.shellScript() == "" || r.recipe.Name == "" || r.recipe.Name == ownScript || !r.auto() {
		return
	}
	d := format.NewDraft(r.recipe.Recipe, r.command)
	set := func(k strategy.Knob) bool {
		return slices.ContainsFunc(d.Places(r.recipe.Knobs[k]), func(p format.Place) bool {
			_, found, err := p.Get(d, k)
			return found || err != nil
		})
	}
	for k, own := range knobs {
		if plan[k] == "" || r.recipe.Knobs[k].Own || own.By == strategy.ByHook || set(k) {
			continue
		}
		delete(plan, k)
		own.Reported, own.Doubtful = true, true // the process reports it
		own.Absent = cmp.Or(own.Absent, "the command does not have it, and "+filepath.Base(r.Job.shellScript())+" starts a program that was not read, whose default is not known")
		knobs[k] = own
	}
}

// inType are the versions that load a model in fp32 whatever type it was saved in, and loadsAsSaved the recipes
// whose framework loads it in the type in which it was saved (LLaMA-Factory: model/patcher.py).
var (
	inType       = format.Versions{"transformers": "<5"}
	loadsAsSaved = []string{"llama-factory"}
)

// assumedPrecision removes fp32, the default of a framework that loads the model in the type in which it was saved.
func (r Resolved) assumedPrecision(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	const k = strategy.Precision
	own := knobs[k]
	saved := slices.Contains(loadsAsSaved, r.recipe.Name) || inType.Outside(r.command.Packages) != ""
	if own.Absent != "" || r.recipe.Knobs[k].Own || plan[k] != "fp32" || !saved {
		return
	}
	delete(plan, k)
	own.Doubtful = true
	knobs[k] = own
}
