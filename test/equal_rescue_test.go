package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// result is what the scripts of testdata/equal_trainer and equal_nanogpt print last.
type result struct {
	TrainLoss float64 `json:"train_loss"`
	Before    int64   `json:"before"` // bytes before the first forward
	Peak      int64   `json:"peak"`
}

// resultOf reads the last result that a job printed.
func resultOf(t *testing.T, out string) (r result) {
	t.Helper()
	line := strings.TrimPrefix(lastLine(out, "RESULT "), "RESULT ")
	if err := json.NewDecoder(strings.NewReader(line)).Decode(&r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return r
}

// ceiling returns a ceiling at which a share of the memory of the untouched job's step fits.
func (r result) ceiling(share float64) string {
	return fmt.Sprintf("%dMiB", (r.Before+int64(share*float64(r.Peak-r.Before)))>>20)
}

// transformersPythons returns the interpreters with transformers: the usual one, and those in
// GPURUN_TEST_TRANSFORMERS, which make transformers sets to one of each major version.
func transformersPythons(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, path := range append(filepath.SplitList(os.Getenv("GPURUN_TEST_TRANSFORMERS")), testenv.Torch(t)) {
		cmd := osexec.CommandContext(t.Context(), path, "-c", "import importlib.util as u, sys; sys.exit(not all(u.find_spec(m) for m in ('torch', 'transformers', 'accelerate')))")
		cmd.Dir = "/"
		if cmd.Run() == nil {
			found = append(found, path)
		}
	}
	if len(found) == 0 {
		t.Skip("no interpreter has transformers; make transformers installs them")
	}
	return found
}

// trainerArguments returns the arguments of a Trainer with SGD, whose steps scale with the gradients.
func trainerArguments(more ...string) []string {
	return append([]string{"heads.py", "--output_dir", "out", "--report_to", "none", "--optim", "sgd", "--max_grad_norm", "0",
		"--save_strategy", "no", "--disable_tqdm", "true"}, more...)
}

// BERT's classification has the loss of the untouched job once it is rescued, and its
// accumulation is raised only where transformers keeps the scale of the gradients.
func TestTransformersRescueKeepsTrainLoss(t *testing.T) {
	arguments := trainerArguments("--use_cpu", "--width", "128", "--layers", "6", "--length", "128", "--samples", "192", "--max_steps", "2",
		"--per_device_train_batch_size", "64", "--learning_rate", "0.05")
	for _, python := range transformersPythons(t) {
		t.Run(strings.ReplaceAll(python, "/", "-"), func(t *testing.T) {
			t.Parallel()
			dir := copyOf(t, filepath.Join("testdata", "equal_trainer"))
			untouched := resultOf(t, runLine(t, dir, python, arguments...))
			for _, flags := range [][]string{nil, {"--never", "checkpointing", "--never", "split", "--never", "precision"}} {
				words := append(append([]string{"--fresh", "--no-in-place", "--run-dir", filepath.Join(t.TempDir(), "run"), "--device-memory", untouched.ceiling(.7)}, flags...), python)
				l := runUnder(t, dir, onCPU, words, arguments)
				v := l.verdict
				if v.Outcome != strategy.Trained {
					refused := slices.ContainsFunc(v.Attempts[0].Skipped, func(s strategy.Skip) bool {
						return s.Remedy == strategy.RemedyMicroBatch && strings.Contains(s.Reason, "num_items_in_batch")
					})
					if flags == nil || !refused {
						t.Errorf("%s: %s", v.Outcome, v.Reason)
					}
					continue
				}
				if rescued := resultOf(t, l.out); math.Abs(rescued.TrainLoss-untouched.TrainLoss) > 1e-5*untouched.TrainLoss {
					t.Errorf("%s: train_loss %v, untouched %v", v.Attempts[0].Changed, rescued.TrainLoss, untouched.TrainLoss)
				}
				for _, a := range v.Attempts {
					if flags == nil && a.Training != strategy.Exact {
						t.Errorf("attempt %d is %s: %s", a.N, a.Training, a.Changed)
					}
				}
			}
		})
	}
}

// The models of transformers: if the accumulation changes the scale of the gradients, it is not offered once
// the process has reported that; if the plan is exact, the gradients are equal.
func TestTransformersScaleIsKeptOrNotOffered(t *testing.T) {
	for _, python := range transformersPythons(t) {
		t.Run(strings.ReplaceAll(python, "/", "-"), func(t *testing.T) {
			dir := copyOf(t, filepath.Join("testdata", "equal_trainer"))
			var trials []*equalTrial
			var pairs []gradientPair
			for _, of := range []string{"classification", "tokens --padded", "masked", "gpt2 --padded", "seq2seq", "seq2seq --padded"} {
				line := trainerArguments(append([]string{"--use_cpu", "--max_steps", "3", "--per_device_train_batch_size", "8", "--head"}, strings.Fields(of)...)...)
				e := &equalTrial{name: of}
				e.survey(t, dir, python, line...)
				smaller := append(slices.Clone(line[1:]), "--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2")
				trials, pairs = append(trials, e), append(pairs, gradientPair{filepath.Join(dir, line[0]), [][]string{line[1:], smaller}})
			}
			runBothWays(t, python, pairs, trials, "transformers.trainer", "accelerate")
			for i, e := range trials {
				run := filepath.Join(t.TempDir(), "run")
				runUnder(t, dir, append(onCPU, "XDG_STATE_HOME="+t.TempDir()), []string{"--run-dir", run, python}, append([]string{"heads.py"}, pairs[i].Lines[0]...))
				seen := lossSeenIn(t, run)
				class, reason := e.after(seen)
				t.Logf("%s: %s, gradients differ by %.1e; %+v", e.name, class, e.Differences, seen)
				switch far := len(e.Differences) == 0 || e.Differences[0] > 1e-5; {
				case e.Error != "" || !e.offer.Available:
					t.Errorf("%s: %s%s", e.name, e.Error, e.offer.Reason)
				case far && class == strategy.Exact, far && e.Differences[0] > .5 && class != strategy.Changed, !far && class == strategy.Changed:
					t.Errorf("%s: %s: %s, and the gradients differ by %.2g", e.name, class, reason, e.Differences)
				}
			}
		})
	}
}

// launched is a job that gpurun ran.
type launched struct {
	out, errs string
	verdict   launcher.Verdict
}

// falseEffect matches warnings that must not appear.
var falseEffect = regexp.MustCompile("did not take effect|gpurun reads accumulation")

// runUnder runs a job under gpurun, with any verdict.
func runUnder(t *testing.T, dir string, environ, words, line []string) (l launched) {
	t.Helper()
	cmd := osexec.CommandContext(t.Context(), binary(t), append(slices.Clone(words), line...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), environ...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	l.out, l.errs = out.String(), errs.String()
	defer func() {
		if t.Failed() {
			t.Log(l.errs)
		}
	}()
	l.verdict = verdictOf(t, words[slices.Index(words, "--run-dir")+1])
	return l
}

var iterationLoss = regexp.MustCompile(`(?m)^iter \d+: loss (\S+)$`)

// iterationLosses returns the losses that nanoGPT printed in the last attempt.
func iterationLosses(t *testing.T, out string, n int) []float64 {
	t.Helper()
	all := iterationLoss.FindAllStringSubmatch(out, -1)
	var found []float64
	for _, one := range all[max(0, len(all)-n):] {
		loss, err := strconv.ParseFloat(one[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, loss)
	}
	return found
}

// A nanoGPT that runs out of memory in the evaluation before its first step is rescued by a smaller batch,
// which the evaluation uses too: with one process, and with two, where its accumulation counts all ranks.
func TestNanoGPTIsRescuedOutOfItsEvaluation(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	for _, test := range []struct {
		name  string
		line  []string
		share float64
		phase string // empty: the other rank's error may come first
		batch int    // that of all ranks
	}{
		{"one process", []string{"train.py", "--batch_size=64", "--gradient_accumulation_steps=1"}, .45, "eval", 64},
		{"two ranks", []string{"-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "train.py", "--batch_size=32", "--gradient_accumulation_steps=16"},
			.8, "", 512},
	} {
		t.Run(test.name, func(t *testing.T) {
			lab(t)
			t.Parallel()
			dir := copyOf(t, filepath.Join("testdata", "equal_nanogpt"))
			line := append(test.line, "--max_iters=2", "--n_layer=2", "--n_embd=64", "--vocab_size=16384")
			if strings.Contains(test.name, "two") {
				line = append(line, "--block_size=32")
			}
			words := []string{"--run-dir", filepath.Join(dir, "untouched"), python}
			untouched := runUnder(t, dir, onCPU, words, line)
			words = []string{"--fresh", "--never", "checkpointing", "--never", "split", "--never", "precision", "--run-dir", filepath.Join(dir, "run"),
				"--no-in-place", "--device-memory", resultOf(t, untouched.out).ceiling(test.share), python}
			rescued := runUnder(t, dir, onCPU, words, line)
			v := rescued.verdict
			if v.Outcome != strategy.Trained || len(v.Attempts) < 2 {
				t.Fatalf("%s after %d attempts: %s", v.Outcome, len(v.Attempts), v.Reason)
			}
			for _, a := range v.Attempts {
				micro, _ := a.Plan.Number(strategy.MicroBatchSize)
				if accumulation, _ := a.Plan.Number(strategy.GradientAccumulationSteps); micro*accumulation != test.batch || a.N == 0 && test.phase != "" && string(a.Phase) != test.phase {
					t.Errorf("attempt %d of %v ended in %s", a.N, a.Plan, a.Phase)
				}
			}
			want, got := iterationLosses(t, untouched.out, 2), iterationLosses(t, rescued.out, 2)
			if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-5, 1e-4)); diff != "" || len(want) != 2 {
				t.Errorf("losses (-untouched +rescued):\n%s", diff)
			}
			for _, l := range []launched{untouched, rescued} {
				if at := falseEffect.FindString(l.errs); at != "" {
					t.Errorf("gpurun says that the accumulation %s:\n%s", at, l.errs)
				}
			}
		})
	}
}
