package hook

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// A job with constants in its script, whose model has no blocks to recompute or needs more than
// that, trains in parts of the batch under a ceiling, with the losses and weights that it has
// without one; with dropout they are others, since it draws other numbers.
func TestJobTrainsInPartsUnderCeiling(t *testing.T) {
	for _, test := range []struct {
		name, mib string
		remedies  []strategy.Remedy
		parts     int // at most, in the last repeat; 0: the job's own error ends it
	}{
		{"contrastive", "50", []strategy.Remedy{strategy.RemedySplit}, 8},
		{"contrastive", "50", []strategy.Remedy{strategy.RemedyCheckpointing}, 0},
		{"encoder", "50", []strategy.Remedy{strategy.RemedyCheckpointing, strategy.RemedySplit}, 4},
		{"blocks", "38", []strategy.Remedy{strategy.RemedyCheckpointing, strategy.RemedySplit}, 4},
		{"dropout", "50", []strategy.Remedy{strategy.RemedySplit}, 8},
		{"evaluation", "8", []strategy.Remedy{strategy.RemedySplit}, 4},
		{"evaluation first", "8", []strategy.Remedy{strategy.RemedySplit}, 4},
	} {
		t.Run(test.name+" "+strings.Join(named(test.remedies), " "), func(t *testing.T) {
			r := repeating(t, "parts.py", test.remedies...)
			out, errs, code := testenv.Warmed(t, r.job(t, testenv.Python(t), r.orders.Script, test.name, test.mib))
			if test.parts == 0 {
				if code == 0 || !strings.Contains(errs, "DefaultCPUAllocator") {
					t.Errorf("exit code %d: %s", code, errs)
				}
				return
			}
			said, _ := r.told(t)
			if code != 0 {
				t.Fatalf("exit code %d, refused %+v: %s", code, said.InPlaceRefused, errs)
			}
			if test.name != "dropout" {
				free := repeating(t, "parts.py")
				free.orders.InPlace = nil
				got, want := figuresOf(t, out), figuresOf(t, free.warmed(t, free.orders.Script, test.name, "0"))
				if !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) <= 1e-5*math.Max(math.Abs(b), 1e-2) }) {
					t.Errorf("trained to %v, want %v", got, want)
				}
			}
			if n := len(said.InPlace); n == 0 || said.InPlaceRefused != nil {
				t.Fatalf("repeated %+v, refused %+v", said.InPlace, said.InPlaceRefused)
			}
			last := said.InPlace[len(said.InPlace)-1]
			if last.Remedy != strategy.RemedySplit || last.Parts < 2 || last.Parts > test.parts {
				t.Errorf("repeated %+v", said.InPlace)
			}
			if asked := !strings.HasPrefix(test.name, "evaluation"); asked != (said.Loss.ModelRows == "yes") || asked == (said.Refused["forward_parts"] != "") {
				t.Errorf("rows %q, refused %q", said.Loss.ModelRows, said.Refused)
			}
		})
	}
}

func named(remedies []strategy.Remedy) (all []string) {
	for _, r := range remedies {
		all = append(all, string(r))
	}
	return all
}

// figuresOf reads the losses and weights that parts.py prints.
func figuresOf(t *testing.T, line string) []float64 {
	t.Helper()
	var got struct{ Losses, Weights []float64 }
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return append(got.Losses, got.Weights...)
}
