package show

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

// TestSummaryShowsLostGPUTime: and not of one that lost nothing.
func TestSummaryShowsLostGPUTime(t *testing.T) {
	again := []strategy.InPlace{{Remedy: strategy.RemedyCheckpointing, Phase: "forward", Times: 1}}
	for name, test := range map[string]struct {
		verdict launcher.Verdict
		want    string
	}{
		"rescued":  {launcher.Verdict{Outcome: strategy.Trained, Attempts: make([]launcher.AttemptSummary, 2), GPUTime: &strategy.GPUTime{Total: 9000, Lost: 31, Rescued: 8640, Rescues: 1}}, "; used 2.5 GPU-h, 31 GPU-s of it for nothing\n"},
		"failed":   {launcher.Verdict{Outcome: strategy.Failed, Attempts: make([]launcher.AttemptSummary, 1), GPUTime: &strategy.GPUTime{Total: 90, Lost: 90, AtLeast: true}}, "; used 90 GPU-s, at least 90 GPU-s of it for nothing\n"},
		"in place": {launcher.Verdict{Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{InPlace: again}}, GPUTime: &strategy.GPUTime{Total: 100, Rescued: 70, Rescues: 1}}, ""},
		"trained":  {launcher.Verdict{Outcome: strategy.Trained, Attempts: make([]launcher.AttemptSummary, 1), GPUTime: &strategy.GPUTime{Total: 9000}}, ""},
	} {
		var out strings.Builder
		WriteVerdict(&out, "run", journal.RunOf([]launcher.Event{launcher.Began{Run: "r"}}), test.verdict, "")
		if got := strings.Contains(out.String(), "GPU-"); got != (test.want != "") || !strings.Contains(out.String(), test.want) {
			t.Errorf("%s:\n%s", name, out.String())
		}
	}
}

// A job on the CPU uses no GPU time.
func TestSummaryOfAJobOnTheCPUShowsNoGPUTime(t *testing.T) {
	var out strings.Builder
	events := []launcher.Event{launcher.Began{Run: "r"}, launcher.Started{}, launcher.Ended{Evidence: strategy.Evidence{Accelerator: "cpu"}}}
	WriteVerdict(&out, "run", journal.RunOf(events), launcher.Verdict{Outcome: strategy.Failed, Attempts: make([]launcher.AttemptSummary, 1), GPUTime: &strategy.GPUTime{Total: 90, Lost: 90}}, "")
	if got := out.String(); strings.Contains(got, "GPU") {
		t.Error(got)
	}
}
