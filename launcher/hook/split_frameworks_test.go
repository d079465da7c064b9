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

// frameworkInParts runs a way of split_frameworks.py with so much memory, in MiB, as its name says; "0" is no limit.
func frameworkInParts(t *testing.T, way, mib string, remedies ...strategy.Remedy) (out, errs string, code int, told []strategy.ProcessReport) {
	t.Helper()
	r := repeating(t, "split_frameworks.py", remedies...)
	out, errs, code = testenv.Warmed(t, r.job(t, testenv.Python(t), r.orders.Script, way, mib))
	rank, own := r.told(t)
	if rank != nil {
		own = append(own, *rank)
	}
	return out, errs, code, own
}

// Under the frameworks, and under DistributedDataParallel with one rank that runs out of memory alone, a model in which
// recomputation cannot help trains in parts of the batch under a ceiling, with the losses and weights that it has without one.
// With recomputation alone the job's own error ends it under the same ceiling.
func TestFrameworksTrainInParts(t *testing.T) {
	for way, test := range map[string]struct{ module, mib string }{
		"trainer": {"transformers", "50"}, "checkpointed": {"transformers", "150"}, "lightning_": {"lightning", "50"}, "accelerate_": {"accelerate", "50"}, "ranks": {"", "50"},
	} {
		t.Run(way, func(t *testing.T) {
			if test.module != "" {
				needs(t, test.module)
			}
			out, errs, code, _ := frameworkInParts(t, way, "0")
			if code != 0 {
				t.Fatalf("exit code %d without a ceiling: %s", code, errs)
			}
			want := trainedInParts(t, out)
			if _, errs, code, _ := frameworkInParts(t, way, test.mib, strategy.RemedyCheckpointing); code == 0 || !strings.Contains(errs, "DefaultCPUAllocator") {
				t.Errorf("with recomputation alone: exit code %d: %s", code, errs)
			}
			out, errs, code, told := frameworkInParts(t, way, test.mib, strategy.RemedyCheckpointing, strategy.RemedySplit)
			got, short := trainedInParts(t, out), 0
			for _, p := range told {
				if p.InPlaceRefused != nil {
					t.Errorf("refused %+v", p.InPlaceRefused)
				}
				if slices.ContainsFunc(p.InPlace, func(one strategy.InPlace) bool { return one.Remedy != strategy.RemedySplit }) {
					t.Errorf("repeated %+v", p.InPlace)
				}
				short += min(len(p.InPlace), 1)
			}
			if code != 0 || short != 1 {
				t.Errorf("exit code %d; %d processes did a step again: %s", code, short, errs)
			}
			if !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) <= 1e-5*math.Max(math.Abs(b), 1e-2) }) || len(want) == 0 {
				t.Errorf("trained to %v, want %v", got, want)
			}
		})
	}
}

// A loss inside the model whose normalisation is not known is not computed in parts: the job's own error ends it.
func TestLossOfUnknownNormalisationIsNotDivided(t *testing.T) {
	for way, module := range map[string]string{"unknown": "", "trainer_unknown": "transformers"} {
		t.Run(way, func(t *testing.T) {
			if module != "" {
				needs(t, module)
			}
			_, errs, code, told := frameworkInParts(t, way, "50", strategy.RemedySplit)
			if code == 0 || !strings.Contains(errs, "DefaultCPUAllocator") || len(told) != 1 {
				t.Fatalf("exit code %d of %d processes: %s", code, len(told), errs)
			}
			if p := told[0]; len(p.InPlace) > 0 || p.InPlaceRefused == nil || !strings.Contains(p.InPlaceRefused.Reason, "gives a number that is neither a mean nor a sum over the rows") {
				t.Errorf("repeated %+v, refused %+v", p.InPlace, p.InPlaceRefused)
			}
		})
	}
}

// trainedInParts returns the losses and weights of each rank.
func trainedInParts(t *testing.T, out string) (figures []float64) {
	t.Helper()
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, `{"losses"`) {
			var one struct{ Losses, Weights []float64 }
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatal(err)
			}
			figures = append(append(figures, one.Losses...), one.Weights...)
		}
	}
	return figures
}
