package test

import (
	"encoding/json"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

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
	if least := 50; inLab() && len(trials) < least || len(trials) < least/4 {
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "rank0"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(testenv.Torch(t), append([]string{script}, line...)...)
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	var trials []*equalTrial
	turns, all := make(chan struct{}, 2), sync.WaitGroup{}
	for i, file := range files {
		if !oneIn(4, i) {
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
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pairs.json")
	if err := os.WriteFile(file, input, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := osexec.CommandContext(t.Context(), python, append([]string{filepath.Join("testdata", "equal_gradients.py"), file}, modules...)...)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1")
	if err := json.Unmarshal(outputOf(t, cmd), &trials); err != nil {
		t.Fatal(err)
	}
}

// outputOf runs a script to its end, in a fork of the warm interpreter if its own is the same.
func outputOf(t *testing.T, cmd *osexec.Cmd) []byte {
	t.Helper()
	if cmd.Args[0] == testenv.Torch(t) {
		out, errs, code := testenv.Warmed(t, cmd)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		return []byte(out)
	}
	out, err := cmd.Output()
	var exit *osexec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
