package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// An equalTrial is one of the jobs in testdata/equal.txtar, with the plan of half its micro batch and twice its accumulation,
// and the difference of the gradients. There are traps: a number of samples that differs between micro batches, a
// function of the whole batch, a sum, and state that is written for each micro batch.
type equalTrial struct {
	name  string
	offer strategy.Offer // of gpurun plan
	job   strategy.Job
	plan  strategy.Plan
	line  []string // arguments of the plan; nil if the job has no argument for the batch or the accumulation

	Differences []float64 // of the first steps' gradients, relative
	Error       string
}

// Whatever the source of a job looks like, its plan is exact after its processes' reports only if the gradients of the
// first steps equal those of the job as written. The test measures both.
func TestSmallerMicroBatchIsExactOnlyForEqualGradients(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	trials := slices.DeleteFunc(surveyed(t, python), func(e *equalTrial) bool { return e.line == nil })
	if least := 50; inLab() && len(trials) < least || len(trials) < least/8 {
		t.Fatalf("only %d jobs have arguments for the batch and the accumulation", len(trials))
	}
	measureGradients(t, python, trials)
	exact := 0
	for _, e := range trials {
		t.Run(e.name, func(t *testing.T) {
			if e.Error != "" || len(e.Differences) == 0 {
				t.Skipf("not measured: %s", e.Error)
			}
			seen := []strategy.LossSeen{e.asked(t), e.seen(t, nil), e.seen(t, e.line)}
			class, reason := e.after(seen...)
			t.Logf("%s: %s; gradients differ by %.1e", class, reason, e.Differences)
			if class == strategy.Exact {
				exact++
			}
			if differ := e.Differences[0] > 1e-5 || slices.Max(e.Differences) > 1e-3; class == strategy.Exact && differ {
				t.Errorf("%s, and the gradients differ by %.2g: %s; %+v", class, e.Differences, reason, seen)
			}
		})
	}
	// A loop of the job is not followed: what it does between two micro batches may be anything.
	t.Logf("%d of %d jobs are exact", exact, len(trials))
}

// unknownLoop begins the reason for the class of a plan for which nothing but the job's own loop is not known.
const unknownLoop = "what the job's own loop does"

// The process's reports on its batches and its loss decide what is said of a plan: the batches must have
// one shape and no padding, and samples must not depend on each other.
func TestProcessConfirmsThatBatchesAreAlike(t *testing.T) {
	t.Parallel()
	for name, alike := range map[string]bool{
		"mean":                true,
		"endless_iterator":    true,
		"einsum_attention":    false, // its batches are not looked at while nothing fails
		"ignored_labels":      false,
		"padded_without_mask": false,
		"last_batch_shorter":  false,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := surveyedOne(t, name)
			see := e.seen
			if name == "mean" || name == "ignored_labels" {
				see = e.seenUnder
			}
			seen := see(t, nil)
			if class, reason := e.after(e.asked(t), seen); class != strategy.Average || strings.HasPrefix(reason, unknownLoop) != alike {
				t.Errorf("%s: %s; the process said %+v", class, reason, seen)
			}
		})
	}
}

// equalJobs returns the folder with the jobs of testdata/equal.txtar.
func equalJobs(t *testing.T) string {
	t.Helper()
	dir, err := unpackedEqual()
	testenv.Check(t, err)
	return dir
}

var unpackedEqual = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(shared, "equal")
	archive, err := txtar.ParseFile(filepath.Join("testdata", "equal.txtar"))
	if err == nil {
		err = errors.Join(os.Mkdir(dir, 0o700), txtar.Write(archive, dir))
	}
	return dir, err
})

// surveyedOne reads one job.
func surveyedOne(t *testing.T, name string) *equalTrial {
	t.Helper()
	e := &equalTrial{name: name}
	e.survey(t, equalJobs(t), testenv.Torch(t), name+".py")
	return e
}

// seen runs a job with these arguments and gpurun's hook to its end, and returns its process's report on the
// loss.
func (e *equalTrial) seen(t *testing.T, line []string) strategy.LossSeen {
	t.Helper()
	return e.seenWith(t, hook.Orders{}, line)
}

// asked returns what the process says of its model alone, as one that ran out of memory is asked, and one that is
// planned to run in parts of its batch.
func (e *equalTrial) asked(t *testing.T) strategy.LossSeen {
	t.Helper()
	seen := e.seenWith(t, hook.Orders{Hooks: true, Turn: strategy.Plan{strategy.ForwardParts: "2"}}, nil)
	return strategy.LossSeen{ModelRows: seen.ModelRows, ModelRowsReason: seen.ModelRowsReason}
}

// seenWith runs the job with orders, and returns the report of its hook.
func (e *equalTrial) seenWith(t *testing.T, orders hook.Orders, line []string) strategy.LossSeen {
	t.Helper()
	script, dir := filepath.Join(equalJobs(t), e.name+".py"), t.TempDir()
	orders.Script = script
	installed, err := hook.Install(dir, orders)
	testenv.Check(t, err)
	testenv.Check(t, os.Mkdir(filepath.Join(dir, "rank0"), 0o700))
	cmd := exec.Command(testenv.Torch(t), append([]string{script}, line...)...)
	cmd.Dir, cmd.Env = filepath.Dir(script), os.Environ()
	for name, value := range installed.Variables(0, cmd.Env) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	// A job that takes gradients of gradients ends where it is to run in parts, after its answer.
	if out, errs, code := testenv.Warmed(t, cmd); code != 0 && orders.Turn == nil {
		t.Fatalf("exit code %d:\n%s%s", code, out, errs)
	}
	evidence := strategy.Evidence{Ranks: 1}
	stop, _ := hook.Watch(dir, []int{0}, func(f strategy.Fact) { evidence.Add(f) }, nil)
	stop()
	return evidence.Loss()
}

// seenUnder runs the job under gpurun, and returns the report that gpurun keeps.
func (e *equalTrial) seenUnder(t *testing.T, line []string) strategy.LossSeen {
	t.Helper()
	run := filepath.Join(t.TempDir(), "run")
	words := []string{"--run-dir", run, testenv.Torch(t)}
	l := runUnder(t, equalJobs(t), append(onCPU, "PYTHONDONTWRITEBYTECODE=1", "XDG_STATE_HOME="+t.TempDir()), words, append([]string{e.name + ".py"}, line...))
	if l.verdict.Outcome != strategy.Trained {
		t.Fatalf("%s: %s", l.verdict.Outcome, l.verdict.Reason)
	}
	return lossSeenIn(t, run)
}

// lossSeenIn returns the reports on the loss from the processes of a run's first attempt.
func lossSeenIn(t *testing.T, run string) strategy.LossSeen {
	t.Helper()
	events, err := journal.Read(run)
	testenv.Check(t, err)
	for _, event := range events {
		if ended, is := event.(launcher.Ended); is {
			return ended.Evidence.Loss()
		}
	}
	t.Fatalf("no attempt of %s has ended", run)
	return strategy.LossSeen{}
}

// after returns the effect of the plan on the training, if the job then fails, given the reports of the processes.
func (e *equalTrial) after(seen ...strategy.LossSeen) (strategy.Training, string) {
	var history []strategy.Attempt
	for _, loss := range seen {
		history = append(history, strategy.Attempt{Plan: e.job.Written, Loss: loss, Diagnosis: strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true}})
	}
	return e.job.Training(e.plan, history)
}

// surveyed reads each job.
func surveyed(t *testing.T, python string) []*equalTrial {
	t.Helper()
	dir := equalJobs(t)
	files, err := filepath.Glob(filepath.Join(dir, "*.py"))
	testenv.Check(t, err)
	var trials []*equalTrial
	turns, all := make(chan struct{}, 2), sync.WaitGroup{}
	for i, file := range files {
		if !oneIn(8, i) {
			continue
		}
		e := &equalTrial{name: strings.TrimSuffix(filepath.Base(file), ".py")}
		trials = append(trials, e)
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			e.survey(t, dir, python, e.name+".py")
		})
	}
	all.Wait()
	return trials
}

// survey reads a job as plan does.
func (e *equalTrial) survey(t *testing.T, dir, python string, line ...string) {
	environ := []string{"PATH=" + os.Getenv("PATH"), "CUDA_VISIBLE_DEVICES=", "PYTHON_EXEC=" + python}
	j, _, err := job.Open(t.Context(), append([]string{python}, line...), environ, dir)
	if err != nil {
		t.Error(e.name, err)
		return
	}
	p, err := job.Prepare(t.Context(), j, job.Surroundings{Environ: environ})
	if err != nil {
		t.Error(e.name, err)
		return
	}
	e.job = p.StrategyJob()
	for _, offer := range strategy.Survey(p.Policy(), e.job, p.Plan(), strategy.Inventory{Accelerator: "cpu"}) {
		if offer.Remedy == strategy.RemedyMicroBatch {
			e.offer = offer
		}
	}
	e.line = e.argv(t, p, line[0])
}

// argv returns the script's arguments for half the micro batch and twice the accumulation; nil if it has none.
func (e *equalTrial) argv(t *testing.T, p *job.Prepared, script string) []string {
	used := strategy.Plan{}
	for _, k := range []strategy.Knob{strategy.MicroBatchSize, strategy.GradientAccumulationSteps} {
		if v := p.Plan()[k]; v != "" {
			used[k] = v
		} else if likely := e.job.Knobs[k].Likely; len(likely) > 0 {
			used[k] = likely[0].Value
		}
	}
	micro, known := used.Number(strategy.MicroBatchSize)
	accumulation, also := used.Number(strategy.GradientAccumulationSteps)
	if !known || !also || micro%2 != 0 {
		return nil
	}
	e.plan = p.Plan().With(strategy.Plan{strategy.MicroBatchSize: strategy.Number(micro / 2), strategy.GradientAccumulationSteps: strategy.Number(2 * accumulation)})
	by := e.job.Arguments(e.plan, []strategy.Attempt{{Plan: e.job.Written, Observed: used}})
	c, err := p.Apply(e.plan, by, "", "")
	at := slices.Index(c.Argv, script)
	if err != nil || at < 0 || len(c.Files) > 0 {
		t.Logf("%s: no arguments in %q, and %d files, %v", e.name, c.Argv, len(c.Files), err)
		return nil
	}
	return c.Argv[at+1:]
}

// A gradientPair is a script with the arguments of two runs.
type gradientPair struct {
	Script string     `json:"script"`
	Lines  [][]string `json:"lines"`
}

// measureGradients runs each job as written, and with the offered plan.
func measureGradients(t *testing.T, python string, trials []*equalTrial) {
	t.Helper()
	var pairs []gradientPair
	for _, e := range trials {
		pairs = append(pairs, gradientPair{filepath.Join(equalJobs(t), e.name+".py"), [][]string{{}, e.line}})
	}
	runBothWays(t, python, pairs, trials)
}

// runBothWays fills trials with the differences of the gradients; modules are imported once.
func runBothWays(t *testing.T, python string, pairs []gradientPair, trials []*equalTrial, modules ...string) {
	t.Helper()
	input, err := json.Marshal(pairs)
	testenv.Check(t, err)
	file := filepath.Join(t.TempDir(), "pairs.json")
	testenv.Check(t, os.WriteFile(file, input, 0o600))
	cmd := exec.CommandContext(t.Context(), python, append([]string{filepath.Join("testdata", "equal_gradients.py"), file}, modules...)...)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1")
	testenv.Check(t, json.Unmarshal(outputOf(t, cmd), &trials))
}

// outputOf runs a script to its end, in a fork of the warm interpreter if its own is the same.
func outputOf(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	if cmd.Args[0] == testenv.Torch(t) {
		out, errs, code := testenv.Warmed(t, cmd)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		return []byte(out)
	}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, exit.Stderr)
	}
	testenv.Check(t, err)
	return out
}

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
		cmd := exec.CommandContext(t.Context(), path, "-c", "import importlib.util as u, sys; sys.exit(not all(u.find_spec(m) for m in ('torch', 'transformers', 'accelerate')))")
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
	cmd := exec.CommandContext(t.Context(), binary(t), append(slices.Clone(words), line...)...)
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
		testenv.Check(t, err)
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
