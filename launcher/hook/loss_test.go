package hook

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// withTransformers runs a test with each interpreter that has transformers and other modules:
// the usual one, and those of GPURUN_TEST_TRANSFORMERS, a list as PATH is, which make
// transformers fills with one of each major version.
func withTransformers(t *testing.T, test func(t *testing.T, python string), modules ...string) {
	t.Helper()
	paths := filepath.SplitList(os.Getenv("GPURUN_TEST_TRANSFORMERS"))
	for _, path := range append(paths, testenv.Python(t)) {
		t.Run(strings.Trim(strings.ReplaceAll(path, "/", "-"), "-"), func(t *testing.T) {
			if !has(path, append([]string{"torch", "transformers", "accelerate"}, modules...)...) {
				t.Skip("it lacks transformers or another module; make transformers installs them")
			}
			test(t, path)
		})
	}
}

// A Trainer's process whose training step failed says whether its loss keeps its scale with another
// accumulation, which the gradients of the same rows confirm. The question leaves no trace, and a step that
// does not fail is called once.
func TestTransformersLossScale(t *testing.T) {
	type job struct {
		Job     string
		Apart   float64
		Loss    strategy.LossSeen
		Divided strategy.LossScale // what was said with 4 micro batches
		Left    string
		Same    bool // the question has changed nothing
	}
	withTransformers(t, func(t *testing.T, path string) {
		r := newTrial(t)
		r.orders.Script = testdata(t, "trainer_loss.py")
		jobs := func() (found []job) {
			for line := range strings.Lines(r.train(t, path, r.orders.Script, filepath.Join(r.dir, "rank0", processFile))) {
				var j job
				if json.Unmarshal([]byte(line), &j) == nil && j.Job != "" {
					found = append(found, j)
				}
			}
			return found
		}
		with := jobs()
		r.bare = true
		without := jobs()
		if len(with) < 13 || len(with) != len(without) {
			t.Fatalf("%d jobs with the probe, %d without", len(with), len(without))
		}
		for i, j := range with {
			t.Logf("%s: %+v, %.2g apart", j.Job, j.Loss, j.Apart)
			// Labels of several lengths keep the means of micro batches apart at the right scale.
			tokens := j.Job == "token classification" || j.Job == "seq2seq" || strings.HasPrefix(j.Job, "causal LM")
			kept := j.Loss.Scale == strategy.ScaleKept
			switch {
			case j.Loss.Scale == "" || j.Loss.Reason == "" || j.Divided != j.Loss.Scale:
				t.Errorf("%s: said %+v, and %q with 4 micro batches", j.Job, j.Loss, j.Divided)
			case kept && j.Apart > 1e-5 && (j.Loss.Weighted || !tokens || j.Apart > .5), !kept && j.Apart < 1e-3:
				t.Errorf("%s: said %+v, but the gradients are %.2g apart", j.Job, j.Loss, j.Apart)
			case kept && j.Apart <= 1e-5 && j.Loss.Rows == "no":
				t.Errorf("%s: samples are said to depend on each other: %s", j.Job, j.Loss.RowsReason)
			case !j.Same:
				t.Errorf("%s: the question has changed the model or the random numbers", j.Job)
			case j.Left != without[i].Left:
				t.Errorf("%s: left %s, without the probe %s", j.Job, j.Left, without[i].Left)
			}
		}
	})
}

// A loop of the job's own is said to keep the scale of its loss where what it backpropagates
// shows it for certain, and to lose it likewise.
func TestLoopLossScale(t *testing.T) {
	path := needs(t)
	kept, wrong, unknown := strategy.ScaleKept, strategy.ScaleWrong, strategy.LossScale("")
	for _, test := range []struct {
		kind         string
		accumulation string
		batch        bool // gpurun has changed the accumulation
		want         strategy.LossScale
	}{
		{"mean", "1", false, kept}, {"mean", "4", false, kept}, {"mean", "4", true, kept}, {"times", "4", true, kept}, {"mse", "1", false, kept},
		{"smoothed", "4", true, kept}, {"two", "4", true, kept}, {"sum", "1", false, wrong}, {"sum", "4", true, wrong},
		{"undivided sum", "1", false, kept}, {"undivided sum", "4", true, kept},
		{"undivided", "1", false, unknown}, {"undivided", "4", false, unknown}, {"undivided", "4", true, wrong},
		{"half", "4", true, unknown}, {"by hand", "1", false, kept}, {"by hand", "4", true, kept}, {"std", "4", true, unknown},
	} {
		t.Run(fmt.Sprint(test.kind, test.accumulation, test.batch), func(t *testing.T) {
			t.Parallel()
			r := newTrial(t)
			r.orders = Orders{Script: testdata(t, "loop_loss.py"), Batch: test.batch}
			cmd := r.job(t, path, r.orders.Script, test.kind, test.accumulation)
			if err := r.installed.Go(); err != nil {
				t.Fatal(err)
			}
			if out, errs, code := testenv.Warmed(t, cmd); code != 0 {
				t.Fatalf("exit code %d:\n%s%s", code, out, errs)
			}
			said, _ := r.told(t)
			if said == nil || said.Loss == nil || said.Loss.Scale != test.want || (test.want != "") != (said.Loss.Reason != "") {
				t.Errorf("told %+v, want %q", said.Loss, test.want)
			}
		})
	}
}

// Batches of one shape without padding are reported as such, and others as soon as one is seen. The contents of
// masks and labels are read only where gpurun has changed the batch.
func TestUniformBatches(t *testing.T) {
	needs(t)
	for kind, want := range map[string]string{
		"mean": "yes", "words": "yes", "words, prompts": "yes", "words, mask": "yes", "last": "batches are of several shapes: 0 4×6, then 2×6",
		"words, ignored": "the batches are padded (the loss ignores labels of -100)", "words, ignored later": "the batches are padded (the loss ignores labels of -100)",
		"words, zeros": "the batches are padded (the loss ignores labels of 0)", "words, masked": "the batches are padded (attention_mask)",
		"words, masked later": "the batches are padded (attention_mask)", "words, lengths": "batches are of several shapes: 0 4×6, then 4×7",
	} {
		for _, changed := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, changed), func(t *testing.T) {
				t.Parallel()
				want := want
				if strings.HasPrefix(kind, "words") && !changed && !strings.HasPrefix(want, "batches are of several shapes") {
					want = "" // only the contents show it
				}
				r := newTrial(t)
				r.orders = Orders{Script: testdata(t, "loop_loss.py"), Batch: changed}
				cmd := r.job(t, needs(t), r.orders.Script, kind, "1", "8")
				if err := r.installed.Go(); err != nil {
					t.Fatal(err)
				}
				if out, errs, code := testenv.Warmed(t, cmd); code != 0 {
					t.Fatalf("exit code %d:\n%s%s", code, out, errs)
				}
				said, _ := r.told(t)
				if said == nil || said.Loss == nil {
					t.Fatal("the process reports no loss")
				}
				uniform := map[string]string{"yes": "yes", "": ""}
				got, known := uniform[want]
				if !known {
					got = "no"
				}
				if said.Loss.Uniform != got || got == "no" && said.Loss.Reason != want {
					t.Errorf("told %+v, want %s", said.Loss, want)
				}
			})
		}
	}
}

// A process that ends can say whether its latest batch is padded, which it does not read before.
func TestPaddingIsAskedAtTheEnd(t *testing.T) {
	needs(t)
	folder, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	r := newTrial(t)
	r.bare = true
	for line := range strings.Lines(r.warmed(t, testdata(t, "padding.py"), folder)) {
		var got struct {
			Batch, Want   string
			Before, After strategy.LossSeen
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got.Before.Uniform != "" || got.After.Uniform != got.Want {
			t.Errorf("%s: %+v, then %+v, want %s", got.Batch, got.Before, got.After, got.Want)
		}
	}
}

// Checkpointing under an adapter trains as without it: nothing before the blocks has gradients.
func TestTransformersAdapterWithCheckpointing(t *testing.T) {
	withTransformers(t, func(t *testing.T, path string) {
		var weights []string
		for _, args := range [][]string{nil, {"checkpoint"}, {"checkpoint", "inputs"}} {
			r := newTrial(t)
			r.orders = Orders{Script: testdata(t, "adapter.py"), Hooks: true}
			out := r.train(t, append([]string{path, r.orders.Script}, args...)...)
			r.told(t)
			if changed := strings.Contains(out, "gpurun: "); changed && len(args) != 1 {
				t.Errorf("%q: changed what works:\n%s", args, out)
			}
			weights = append(weights, lastLine(out))
		}
		if weights[0] == "" || weights[1] != weights[0] || weights[2] != weights[0] {
			t.Errorf("trained %q", weights)
		}
	}, "peft")
}

// A process that trains and makes no optimizer step can be told from one whose steps nothing
// counts: it names its optimizer, measured several calls, and does not say that it steps.
func TestTrainingWithoutStepsIsRecognised(t *testing.T) {
	needs(t)
	for kind, steps := range map[string]bool{"3": true, "100": false} { // micro batches a step, of 8
		r := newTrial(t)
		r.orders.Script = testdata(t, "loop_loss.py")
		r.warmed(t, r.orders.Script, "mean", kind)
		evidence := strategy.Evidence{Ranks: 1}
		stop, _ := Watch(r.dir, []int{0}, func(f strategy.Fact) { evidence.Add(f) }, nil)
		stop()
		if evidence.Unstepped() == steps {
			t.Errorf("%s micro batches a step: without a step is %v", kind, evidence.Unstepped())
		}
	}
}
