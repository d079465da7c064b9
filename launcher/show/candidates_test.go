package show

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

// TestCandidatesBeginWithThePlanThatFitted: the remembered plan is listed, once.
func TestCandidatesBeginWithThePlanThatFitted(t *testing.T) {
	fitted := strategy.Plan{strategy.MicroBatchSize: "16"}
	written := strategy.Plan{strategy.MicroBatchSize: "64"}
	v := Survey{
		Plan: written, Value: func(k strategy.Knob) string { return string(written[k]) },
		Recalled:   &strategy.Recalled{Plan: fitted, Changed: written.Changed(fitted), Peak: 436 << 20},
		Candidates: []strategy.Candidate{{Plan: written, Reason: "does not fit in 490 MiB"}},
	}
	page := func() string {
		var out strings.Builder
		if err := v.Show(&out, mask.New(nil, nil)); err != nil {
			t.Fatal(err)
		}
		_, list, _ := strings.Cut(out.String(), "verdict\n")
		return strings.Join(strings.Fields(list), " ")
	}
	if got := page(); !strings.HasPrefix(got, "436 MiB measured – micro batch 64→16 fitted; the next run starts with it") {
		t.Errorf("%q", got)
	}
	v.Candidates = append(v.Candidates, strategy.Candidate{Plan: fitted, Reason: "chosen"})
	if got := page(); strings.Contains(got, "fitted;") || strings.Count(got, "64→16") != 1 {
		t.Errorf("%q", got)
	}
}
