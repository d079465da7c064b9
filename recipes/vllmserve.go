package recipes

import (
	"slices"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// vllmServe is the rule for vLLM's program, of whose commands one serves a model; the
// others talk to a server, or measure one.
var vllmServe = format.Rule{Shape: func(r *format.Recipe) {
	for _, knob := range []strategy.Knob{strategy.SequenceLength, strategy.Precision} {
		for i := range r.Knobs[knob].Places {
			r.Knobs[knob].Places[i].Chosen = true // "auto", and -1 for as long as fits
		}
	}
	r.Detection.Not = func(cmd Command) string {
		program := len(cmd.Argv) > 0 && !slices.ContainsFunc([]string{"vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"},
			func(module string) bool { return cmd.Argv[0] == module })
		if program && (len(cmd.Argv) < 2 || cmd.Argv[1] != "serve") {
			return "the command serves no model"
		}
		return ""
	}
}}
