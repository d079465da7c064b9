package hook

import (
	"encoding/json"
	"os/exec"
	"slices"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// TestRemediesAreThoseOfTheTable: the hook has code for what strategy/remedy.go says that it changes in a process, and for
// nothing else.
func TestRemediesAreThoseOfTheTable(t *testing.T) {
	needs(t)
	const script = `
import json
import sys
from inside.remedies import losscalls, rungs
print(json.dumps({"knobs": {knob: [str(v) for v in part.VALUES] for knob, part in rungs.ORDER}, "in_place": [*rungs.IN_PLACE, losscalls.RUNG]}))`
	cmd := exec.Command(testenv.Python(t), "-B", "-c", script)
	cmd.Dir = "."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var hook struct {
		Knobs   map[strategy.Knob][]strategy.Value `json:"knobs"`
		InPlace []strategy.Remedy                  `json:"in_place"`
	}
	if err := json.Unmarshal(out, &hook); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	job := strategy.Job{Knobs: map[strategy.Knob]strategy.Range{}}
	for _, k := range strategy.Knobs {
		inside := strategy.InsideOf(k)
		if _, has := hook.Knobs[k]; has != (inside != nil) {
			t.Errorf("%s: the hook has code for it: %t, the table a row: %t", k, has, inside != nil)
		}
		if inside == nil {
			continue
		}
		job.Knobs[k] = strategy.Range{By: strategy.ByHook, Values: inside.Values}
		for _, v := range inside.Values[1:] {
			if !slices.Contains(hook.Knobs[k], v) {
				t.Errorf("%s: the hook cannot set %s, which the table names", k, v)
			}
		}
	}
	allowed := strategy.AllowInPlace(strategy.Policy{InPlace: true, Mode: strategy.Predict}, job, nil, strategy.Plan{}, "cuda").Remedies
	slices.Sort(allowed)
	slices.Sort(hook.InPlace)
	if !slices.Equal(allowed, hook.InPlace) {
		t.Errorf("in place the hook has %v, the table %v", hook.InPlace, allowed)
	}
}
