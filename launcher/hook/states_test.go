package hook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// onCPU takes the CPU for a device whose states can leave: for memory that the ceiling does not count.
func (r *trial) onCPU(t *testing.T) *trial {
	t.Helper()
	text, err := os.ReadFile("inside/remedies/states.py")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer(`DEVICES = ("cuda",)`, `DEVICES = ("cuda", "cpu")`, "PART = 256 << 20", "PART = 8 << 20", "SMALLEST = 64 << 10", "SMALLEST = 0").Replace(string(text))
	r.parts = map[string]string{"states": changed}
	return r
}

// A job whose optimizer's states do not fit under its ceiling trains in one process to the losses, weights and states that
// it has without a ceiling, wherever memory runs out. Without the remedy it fails.
func TestStatesLeaveUnderCeiling(t *testing.T) {
	for _, c := range []struct {
		way, ceiling, phase string
		step                int
		foreseen            bool
	}{
		{"first", "40", "optimizer", 0, false},
		{"later", "24", "optimizer", 3, false},
		{"temporary", "140", "optimizer", 0, true},
		{"forward", "72", "forward", 2, false},
	} {
		t.Run(c.way, func(t *testing.T) {
			run := func(ceiling string, remedies ...strategy.Remedy) (string, *strategy.ProcessReport, bool) {
				r := repeating(t, "states.py", remedies...).onCPU(t)
				r.orders.InPlace.Optimizer = len(remedies) > 0
				r.env = []string{"MALLOC_MMAP_THRESHOLD_=65536"} // what is freed no longer counts
				out, errs, code := testenv.Warmed(t, r.job(t, testenv.Python(t), r.orders.Script, c.way, ceiling))
				said, _ := r.told(t)
				if code != 0 && len(remedies) > 0 {
					t.Fatalf("exit code %d, %+v, %+v: %s", code, said.InPlace, said.InPlaceRefused, errs)
				}
				return out, said, code == 0
			}
			want, _, trained := run("0")
			if !trained {
				t.Fatal("it does not train without a ceiling")
			}
			if out, _, trained := run(c.ceiling); trained {
				t.Fatalf("it fits: %s", out)
			}
			got, said, _ := run(c.ceiling, strategy.RemedyOffloadOptimizer)
			if got != want {
				t.Errorf("trained to %s, want %s", got, want)
			}
			if len(said.InPlace) == 0 || said.InPlaceRefused != nil {
				t.Fatalf("repeated %+v, refused %+v", said.InPlace, said.InPlaceRefused)
			}
			if one := said.InPlace[len(said.InPlace)-1]; one.Phase != c.phase || (one.Requested == 0) != c.foreseen || !c.foreseen && (one.Step != c.step || one.Remedy != strategy.RemedyOffloadOptimizer || one.Elements != 1) {
				t.Errorf("repeated %+v", one)
			}
		})
	}
}

// What an earlier attempt needed in place is on from the beginning, and nothing else is.
func TestStatesLeaveWhereTheyHadTo(t *testing.T) {
	run := func(ceiling string) (string, *strategy.ProcessReport) {
		r := repeating(t, "states.py", strategy.RemedyCheckpointing, strategy.RemedyOffloadOptimizer).onCPU(t)
		r.orders.InPlace.Optimizer = true
		r.orders.InPlace.Armed = []strategy.ArmedRemedy{{Remedy: strategy.RemedyOffloadOptimizer, Elements: 1, Longest: 1}}
		r.env = []string{"MALLOC_MMAP_THRESHOLD_=65536"}
		out, errs, code := testenv.Warmed(t, r.job(t, testenv.Python(t), r.orders.Script, "first", ceiling))
		said, _ := r.told(t)
		if code != 0 {
			t.Fatalf("exit code %d, repeated %+v, refused %+v: %s", code, said.InPlace, said.InPlaceRefused, errs)
		}
		return out, said
	}
	want, said := run("0")
	if len(said.InPlace) != 0 || said.Settings[strategy.ActivationCheckpointing] == "full" {
		t.Errorf("repeated %+v, runs with %v", said.InPlace, said.Settings)
	}
	if got, said := run("40"); got != want || len(said.InPlace) != 0 || said.InPlaceRefused != nil {
		t.Errorf("trained to %s, want %s; repeated %+v, refused %+v", got, want, said.InPlace, said.InPlaceRefused)
	}
}

// A relaunched attempt begins with the states in host memory, those of a checkpoint, too: it comes to what the job alone
// comes to, also where a later start has no remedy.
func TestStatesLeaveFromTheBeginning(t *testing.T) {
	needs(t)
	want, got := "", ""
	for _, on := range [][]bool{{false, false, false}, {true, true, false}, {false, true, true}} {
		path, all := filepath.Join(t.TempDir(), "states.pt"), ""
		for _, turned := range on {
			r := repeating(t, "states.py").onCPU(t)
			r.orders.InPlace, r.env = nil, []string{"STATES=" + path}
			if turned {
				r.orders.Turn = strategy.Plan{strategy.OffloadOptimizer: "cpu"}
			}
			all += r.warmed(t, r.orders.Script, "resumed", "0")
			if said, _ := r.told(t); (said.Applied[strategy.OffloadOptimizer] == [2]strategy.Value{"none", "cpu"}) != turned {
				t.Errorf("turned on %t: %+v", turned, said.Applied)
			}
		}
		all = strings.ReplaceAll(all, "gpurun: optimizer offload none→cpu\n", "")
		if want == "" {
			want = all
		} else if got = all; got != want {
			t.Errorf("%v: trained to %s, want %s", on, got, want)
		}
	}
}

// Under the frameworks, and with two ranks, losses and weights are those of the job alone.
func TestStatesLeaveUnderFrameworks(t *testing.T) {
	for way, module := range map[string]string{"trainer": "transformers", "lightning_": "lightning", "accelerate_": "accelerate", "ranks": ""} {
		t.Run(way, func(t *testing.T) {
			if module != "" {
				needs(t, module)
			}
			run := func(turned bool) []trained {
				r := repeating(t, "repeated_frameworks.py").onCPU(t)
				r.env = []string{"CUDA_VISIBLE_DEVICES=", "ACCELERATE_USE_CPU=true"}
				if turned {
					r.orders.Turn = strategy.Plan{strategy.OffloadOptimizer: "cpu"}
				}
				out := r.warmed(t, r.orders.Script, way)
				rank, own := r.told(t)
				if rank != nil {
					own = append(own, *rank)
				}
				applied := 0
				for _, p := range own {
					if len(p.Applied) > 0 {
						applied++
					}
				}
				if (applied > 0) != turned {
					t.Errorf("turned on %t: %+v", turned, own)
				}
				return outcomes(t, strings.ReplaceAll(out, "gpurun: optimizer offload none→cpu\n", ""))
			}
			if diff := cmp.Diff(run(false), run(true), cmpopts.IgnoreFields(trained{}, "Calls", "Hit")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
