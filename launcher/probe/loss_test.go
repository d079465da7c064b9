package probe

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// withTransformers runs a test with each interpreter that has transformers and other modules:
// the usual one, and those of GPURUN_TEST_TRANSFORMERS, a list as PATH is, which make
// transformers fills with one of each major version.
func withTransformers(t *testing.T, test func(t *testing.T, python string), modules ...string) {
	t.Helper()
	paths := filepath.SplitList(os.Getenv("GPURUN_TEST_TRANSFORMERS"))
	for _, path := range append(paths, python(t)) {
		t.Run(strings.Trim(strings.ReplaceAll(path, "/", "-"), "-"), func(t *testing.T) {
			find := "import importlib.util as u, sys; sys.exit(not all(u.find_spec(m) for m in sys.argv[1:]))"
			cmd := exec.Command(path, append([]string{"-c", find, "torch", "transformers", "accelerate"}, modules...)...)
			cmd.Dir = "/" // this folder has files of such names
			if cmd.Run() != nil {
				t.Skip("it lacks transformers or another module; make transformers installs them")
			}
			test(t, path)
		})
	}
}

// Before the first forward a Trainer's process says whether its loss keeps its scale with
// another accumulation, which the gradients of the same rows confirm. It leaves no trace.
func TestTransformersLossScale(t *testing.T) {
	type job struct {
		Job     string
		Apart   float64
		Loss    strategy.LossSeen
		Divided strategy.LossScale // what was said with 4 micro batches
		Left    string
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
			case j.Left != without[i].Left:
				t.Errorf("%s: left %s, without the probe %s", j.Job, j.Left, without[i].Left)
			}
		}
	})
}
