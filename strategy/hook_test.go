package strategy

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// The traceback of a truncated-BPTT job that gpurun's hook ended.
const hookFrames = `Traceback (most recent call last):
  File "/home/u/train.py", line 31, in <module>
    out, h = net(x, h)
  File "/v/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1553, in _call_impl
    return forward_call(*args, **kwargs)
  File "/home/u/.gpurun/t/r/attempt-0/probe-3582417238/inside/inplace.py", line 211, in called
    return self.again(error)
  File "/home/u/.gpurun/t/r/attempt-0/probe-3582417238/inside/model/places.py", line 90, in choose
    raise Unrepeatable("no remedy could be turned on")
`

// An error of gpurun's own hook is never blamed on the job, in the process's report, in error.json and in saved output, and
// whatever the job printed before it.
func TestErrorOfTheHookIsNotTheJobs(t *testing.T) {
	const named = "gpurun-probe.places.Unrepeatable: no remedy could be turned on"
	for name, facts := range map[string][]Fact{
		"its last line":        append(says(0, 1, hookFrames+named+"\n"), exits(0, 2, 1)...),
		"another class":        append(says(0, 1, hookFrames+"gpurun-probe.rootstate.Changed: a buffer has another shape\n"), exits(0, 2, 1)...),
		"no message":           append(says(0, 1, hookFrames+"gpurun-probe.gate.Late\n"), exits(0, 2, 1)...),
		"with a rank's prefix": append(says(0, 1, prefixed(1, hookFrames+named+"\n")), exits(0, 2, 1)...),
		"the last word": append([]Fact{{Rank: 0, Source: "probe", Content: (*Finding)(func() *cause.Finding {
			f := cause.LastWord(cause.Exception{Class: "gpurun-probe.places.Unrepeatable", Message: "no remedy could be turned on", Traceback: hookFrames})
			f.Stream, f.Seq = "probe", 1
			return &f
		}())}}, exits(0, 2, 1)...),
	} {
		d := Diagnose(Evidence{Ranks: 1, Facts: facts})
		if d.Cause != cause.Unknown || !strings.Contains(d.Sentence(), "an error of gpurun's own hook") || !strings.Contains(d.Advice, "--mode off") {
			t.Errorf("%s: %s, %q, advice %q", name, d.Cause, d.Sentence(), d.Advice)
		}
		if d.Place != nil && d.Place.File != "/home/u/train.py" {
			t.Errorf("%s: the place is %s", name, d.Place.Words())
		}
		verdict := Decide(Policy{Mode: Predict, MaxAttempts: 9, Restarts: 3}, Job{}, []Attempt{{Diagnosis: d}}, Inventory{})
		if verdict.Relaunch || verdict.Outcome != Failed || verdict.Code != CodeBug || strings.Contains(verdict.Reason, "change of its settings") {
			t.Errorf("%s: %+v", name, verdict)
		}
	}
	for name, text := range map[string]string{
		"a user's error that the hook passes on": hookFrames + "KeyError: 'h'\n",
		"a job that prints the importers":        "[<gpurun-probe.imports.Finder object at 0x7f84>]\nTraceback (most recent call last):\n  File \"/home/u/train.py\", line 3, in <module>\n    x\nKeyError: 'h'\n",
		"a job that prints the name":             "loading gpurun-probe.places: done\nTraceback (most recent call last):\n  File \"/home/u/train.py\", line 3, in <module>\n    x\nKeyError: 'h'\n",
	} {
		d := Diagnose(Evidence{Ranks: 1, Facts: append(says(0, 1, text), exits(0, 2, 1)...)})
		if d.Cause != cause.UserError || d.Place == nil || d.Place.File != "/home/u/train.py" {
			t.Errorf("%s: %s at %+v", name, d.Cause, d.Place)
		}
	}
}
