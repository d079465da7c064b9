package show

import (
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// The sentence about a run that trained is made of the verdict's fields, whatever its reason says.
func TestEndOfATrainedRun(t *testing.T) {
	again := []strategy.InPlace{{Remedy: strategy.RemedyCheckpointing, Phase: "forward", Times: 1, Requested: 1}}
	lost := strategy.Changes{strategy.MicroBatchSize: {"4", "8"}}
	for want, v := range map[string]launcher.Verdict{
		"":                     {Outcome: strategy.Failed, Reason: "attempt 1: trained", Attempts: []launcher.AttemptSummary{{N: 1}}},
		"trained in attempt 2": {Outcome: strategy.Trained, Reason: "x", Attempts: []launcher.AttemptSummary{{N: 1}, {N: 2}}},
		"trained in attempt 0; 1 step repeated in place with activation checkpointing (0.00 s)": {Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{InPlace: again}}},
		"trained in attempt 0; " + lost.Lost():                                                  {Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{Untaken: lost}}},
	} {
		if got := trained(&v); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
