package hook

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/test/testenv"
)

// Under the frameworks, and with two ranks, a job in which memory does not run out prints what it prints without the hook.
func TestFrameworksAreUntouched(t *testing.T) {
	untouchedFrameworks(t, usualPython(t))
}

func TestTransformersFrameworksAreUntouched(t *testing.T) {
	untouchedFrameworks(t, newerPythons(t))
}

func untouchedFrameworks(t *testing.T, pythons []string) {
	for _, python := range pythons {
		for way, module := range map[string]string{"trainer": "transformers", "lightning_": "lightning", "accelerate_": "accelerate", "ranks": "torch"} {
			t.Run(way+" with "+strings.Trim(strings.ReplaceAll(python, "/", "-"), "-"), func(t *testing.T) {
				if !has(python, module) {
					t.Skipf("%s has no %s", python, module)
				}
				run := func(orders *Orders) string {
					r := newTrial(t)
					if r.bare = orders == nil; !r.bare {
						r.orders = *orders
					}
					r.orders.Script = testdata(t, "repeated_frameworks.py")
					r.env = []string{"CUDA_VISIBLE_DEVICES=", "ACCELERATE_USE_CPU=true"}
					out, errs, code := testenv.Warmed(t, r.job(t, python, r.orders.Script, way))
					if code != 0 {
						t.Fatalf("exit code %d: %s%s", code, out, errs)
					}
					return printed(out)
				}
				want := run(nil)
				for mode, orders := range map[string]*Orders{"defaults": inPlaceOrders(), "--no-in-place": {Hooks: true, Record: RecordFirst}} {
					if diff := cmp.Diff(want, run(orders)); diff != "" {
						t.Errorf("with %s (-alone +with the hook):\n%s", mode, diff)
					}
				}
			})
		}
	}
}

// printed returns the lines with what a process of repeated_frameworks.py has trained to.
func printed(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, `{"losses"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// What the job's functions hold in the first step is given back when they return: no frame is kept until Python looks for
// garbage.
func TestFirstStepIsLetGo(t *testing.T) {
	needs(t)
	r := newTrial(t)
	r.orders = *inPlaceOrders()
	out, errs, code := r.run(t, `
import gc
import weakref

import torch
from torch import nn

held = []


def step(model, optimizer):
    x = torch.ones(2, 4)
    held.append(weakref.ref(x))
    nn.functional.cross_entropy(model(x), torch.zeros(2, dtype=torch.long)).backward()
    optimizer.step()


model = nn.Linear(4, 4)
optimizer = torch.optim.AdamW(model.parameters())
gc.disable()
for _ in range(3):
    step(model, optimizer)
print("held", sum(each() is not None for each in held))
`)
	if code != 0 || !strings.Contains(out, "held 0") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// A step of a job in which nothing goes wrong calls few of the hook's functions: each takes a microsecond or two.
func TestHealthyStepCallsFewFunctions(t *testing.T) {
	python := needs(t)
	for mode, orders := range map[string]*Orders{"defaults": inPlaceOrders(), "no-in-place": {Hooks: true, Record: RecordFirst}} {
		for model, most := range map[string]int{"linear": 10, "padded": 11} {
			t.Run(mode+"/"+model, func(t *testing.T) {
				r := newTrial(t)
				r.orders, r.env = *orders, []string{"OMP_NUM_THREADS=1"}
				r.orders.Script = testdata(t, "healthy_cost.py")
				out, errs, code := testenv.Warmed(t, r.job(t, python, r.orders.Script, model))
				var cost struct{ Calls int }
				if err := json.Unmarshal([]byte(out), &cost); err != nil || code != 0 {
					t.Fatalf("%v: %s%s", err, out, errs)
				}
				if cost.Calls == 0 || cost.Calls > most {
					t.Errorf("%d calls", cost.Calls)
				}
			})
		}
	}
}

// What the hook adds to a healthy job, in processor time. Jobs with the hook and without it take turns.
func BenchmarkHealthyJob(b *testing.B) {
	python := needs(b)
	type costs struct{ First, Step, Calls float64 }
	run := func(model string, orders *Orders) (c costs) {
		r := &trial{dir: b.TempDir(), modules: b.TempDir(), home: b.TempDir(), bare: orders == nil, env: []string{"OMP_NUM_THREADS=1"}}
		script, err := filepath.Abs("testdata/healthy_cost.py")
		if err != nil {
			b.Fatal(err)
		}
		if orders != nil {
			r.orders = *orders
		}
		r.orders.Script = script
		cmd := r.job(b, python, script, model)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &c)
		}
		if err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		return c
	}
	for _, model := range []string{"linear", "gpt", "resnet", "lstm"} {
		for mode, orders := range map[string]*Orders{"defaults": inPlaceOrders(), "no-in-place": {Hooks: true, Record: RecordFirst}} {
			b.Run(model+"/"+mode, func(b *testing.B) {
				var alone, hooked []costs
				for range max(b.N, 3) {
					alone, hooked = append(alone, run(model, nil)), append(hooked, run(model, orders))
				}
				least := func(all []costs, of func(costs) float64) float64 {
					return of(slices.MinFunc(all, func(x, y costs) int {
						if of(x) < of(y) {
							return -1
						}
						return 1
					}))
				}
				first, step := func(c costs) float64 { return c.First }, func(c costs) float64 { return c.Step }
				b.ReportMetric(least(hooked, first)-least(alone, first), "ms/first-step")
				b.ReportMetric(least(hooked, step)-least(alone, step), "µs/step")
				b.ReportMetric(least(alone, step), "µs/step-alone")
				b.ReportMetric(hooked[0].Calls, "calls/step")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
