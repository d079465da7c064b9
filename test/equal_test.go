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

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/probe"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// How gpurun may label a smaller micro batch of a job in testdata/equal.
type label int

const (
	provenExact label = iota // offered as exact: its loss is a mean that is divided
	toConfirm                // as exact, until a process shows that its batches differ
	toDeny                   // not offered as exact, or only until a process shows that it is not
	onAverage                // offered; as exact only where the gradients are found equal
	unproven                 // not offered, or offered as equal on average
	notOffered               // another training
)

// equalJobs are the jobs of testdata/equal, with the label that gpurun must give each before it runs. There
// are traps: a number of samples that differs between micro batches, a function of the whole batch, a sum,
// and state that is written for each micro batch.
var equalJobs = map[string]label{
	"attention":           provenExact,
	"class_centres":       provenExact,
	"clip_each_step":      provenExact,
	"cosine_pairs":        provenExact,
	"distillation":        provenExact,
	"einsum_attention":    provenExact,
	"ema_each_step":       provenExact,
	"endless_iterator":    provenExact,
	"factorization":       provenExact,
	"gaussian_nll":        provenExact,
	"given_triplets":      provenExact,
	"gram_within_sample":  provenExact,
	"graph":               provenExact,
	"label_smoothing":     provenExact,
	"loss_of_the_model":   provenExact,
	"mean":                provenExact,
	"mean_of_each_sample": provenExact,
	"no_sync":             provenExact,
	"none_then_mean":      provenExact,
	"preferences":         provenExact,
	"prototypes":          provenExact,
	"reshaped_targets":    provenExact,
	"segmentation":        provenExact,
	"slices":              provenExact,
	"sum_undivided":       provenExact,
	"total_batch":         provenExact,
	"trainer_class":       provenExact,
	"two_heads":           provenExact,

	"attention_over_the_batch":   toDeny,
	"broadcast_targets":          toDeny,
	"clipped_by_hand":            toDeny,
	"codebook_of_the_model":      toDeny,
	"convolution_over_the_batch": toDeny,
	"decay_of_the_batch":         toDeny,
	"first_micro_batch_more":     toDeny,
	"listed_scores":              toDeny,
	"mixed_styles":               toDeny,
	"number_of_an_object":        toDeny,
	"products_of_the_batch":      toDeny,
	"range_of_the_batch":         toDeny,
	"rate_each_micro_batch":      toDeny,
	"temperature_of_the_batch":   toDeny,

	"class_weights":       onAverage,
	"ctc":                 onAverage,
	"dice_of_each_sample": onAverage,
	"gradient_penalty":    onAverage,
	"ignore_index":        onAverage,
	"ignored_labels":      toConfirm,
	"last_batch_shorter":  toConfirm,
	"masked_mean":         onAverage,
	"padded_without_mask": toConfirm,
	"sample_weights":      onAverage,
	"tokens":              onAverage,
	"vae":                 onAverage,

	"advantages":                unproven,
	"correlation":               unproven,
	"dice_over_the_batch":       unproven,
	"entropy_of_the_mean":       unproven,
	"hard_examples":             unproven,
	"mixture_of_experts":        unproven,
	"mixup_of_neighbours":       unproven,
	"normalized_over_the_batch": unproven,
	"root_mean_square":          unproven,
	"rolled_negatives":          unproven,
	"sum_over_the_global_batch": unproven, // equal, but not recognised
	"weighted_by_its_share":     unproven, // as well
	"memory_map":                unproven, // which argument is the batch is not certain
	"worst_sample":              unproven,

	"barlow_twins":              notOffered,
	"batch_norm":                notOffered,
	"centre_loss":               notOffered,
	"clip":                      notOffered,
	"clip_each_micro_batch":     notOffered,
	"discrepancy":               notOffered,
	"divided_twice":             notOffered,
	"ema_each_micro_batch":      notOffered,
	"first_step_alone":          unproven,
	"gan":                       notOffered,
	"gathered":                  notOffered,
	"hardest_in_batch":          notOffered,
	"image_text":                notOffered,
	"mean_undivided":            notOffered,
	"moco":                      notOffered,
	"own_batch_norm":            unproven,
	"pairwise_ranking":          notOffered,
	"part_undivided":            notOffered,
	"regulariser_undivided":     notOffered,
	"running_statistics":        notOffered,
	"schedule_each_micro_batch": notOffered,
	"simclr":                    notOffered,
	"slices_by_offset":          notOffered,
	"sum_divided":               notOffered,
	"sum_of_a_method":           notOffered,
	"supervised_contrast":       notOffered,
	"sync_batch_norm":           notOffered, // needs a GPU: not measured
	"vicreg":                    notOffered,
	"zeroed_each_micro_batch":   notOffered,
}

// An equalTrial is one of these jobs, with gpurun's offer and the difference of the gradients.
type equalTrial struct {
	name  string
	label label
	offer strategy.Offer
	job   strategy.Job
	line  []string // arguments of the offered plan; of twice the accumulation if none is offered

	Differences []float64 // of the first steps' gradients, relative
	Error       string
}

// A smaller micro batch is offered as exact if and only if the gradients of the first steps equal those of
// the job as written. The test measures both.
func TestSmallerMicroBatchIsExactOnlyForEqualGradients(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	trials := surveyed(t, python)
	measureGradients(t, python, trials)
	for _, e := range trials {
		t.Run(e.name, e.check)
	}
}

func (e *equalTrial) check(t *testing.T) {
	if e.Error != "" {
		t.Logf("not measured: %s", e.Error)
	}
	t.Logf("%s, %s: %v %v, gradients differ by %.1e", e.offer.Training, e.offer.Reason, e.offer.Available, e.offer.Changed, e.Differences)
	switch offered := e.offer.Available; {
	case offered && len(e.Differences) == 0:
		t.Errorf("the plan that is offered does not train: %s", e.Error)
	case e.label == toConfirm && (!offered || !strings.Contains(e.offer.Reason, "to be confirmed by the process")):
		t.Errorf("it needs to be confirmed: %s, %s", e.offer.Training, e.offer.Reason)
	case offered && e.label == toDeny && e.offer.Training == strategy.Exact && !strings.Contains(e.offer.Reason, "to be confirmed by the process"):
		t.Errorf("it needs to be confirmed: %s", e.offer.Reason)
	case offered && e.label != toConfirm && e.label != toDeny && e.offer.Training == strategy.Exact && (e.Differences[0] > 1e-5 || slices.Max(e.Differences) > 1e-3):
		t.Errorf("offered as exact, and the gradients differ by %.2g: %s", e.Differences, e.offer.Reason)
	case !offered && e.offer.Reason == "" || offered && e.offer.Training != strategy.Exact && e.offer.Reason == "":
		t.Error("there is no reason")
	case !offered && (e.label == provenExact || e.label == onAverage):
		t.Errorf("not offered: %s", e.offer.Reason)
	case e.label == provenExact && e.offer.Training != strategy.Exact:
		t.Errorf("offered as %s: %s", e.offer.Training, e.offer.Reason)
	case offered && e.label == unproven && e.offer.Training == strategy.Exact || e.label == notOffered && offered:
		t.Errorf("offered as %s: %s", e.offer.Training, e.offer.Reason)
	}
}

// The process's reports on its batches and its loss decide whether a plan stays exact: the batches must have
// one shape and no padding, and samples must not depend on each other.
func TestProcessConfirmsThatBatchesAreAlike(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]strategy.Training{
		"mean":                strategy.Exact,
		"endless_iterator":    strategy.Exact,
		"einsum_attention":    strategy.Exact,
		"ignored_labels":      strategy.Average,
		"padded_without_mask": strategy.Average,
		"last_batch_shorter":  strategy.Average,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := surveyedOne(t, name)
			see := e.seen
			if name == "mean" || name == "ignored_labels" {
				see = e.seenUnder
			}
			seen := see(t, nil)
			if class, reason := e.after(seen); class != want || e.offer.Training != strategy.Exact {
				t.Errorf("%s before the run, then %s: %s; the process said %+v", e.offer.Training, class, reason, seen)
			}
		})
	}
}

// If the source looks like a mean over samples and is none, the processes, of the job as written and of the
// smaller micro batch, report that before the first optimizer step. No job whose training changes stays
// exact, and all jobs that train the same do.
func TestProcessCorrectsTheSourcesMean(t *testing.T) {
	t.Parallel()
	want := map[string]strategy.Training{}
	for _, name := range []string{"attention", "class_centres", "ema_each_step", "given_triplets", "graph", "label_smoothing", "no_sync", "preferences"} {
		want[name] = strategy.Exact
	}
	for name, label := range equalJobs {
		if label == toDeny {
			want[name] = strategy.Average
		}
	}
	for name, class := range want {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := surveyedOne(t, name)
			if e.line == nil {
				if class == strategy.Exact {
					t.Errorf("not offered: %s", e.offer.Reason)
				}
				return
			}
			seen := []strategy.LossSeen{e.seen(t, nil), e.seen(t, e.line)}
			if got, reason := e.after(seen...); got != class {
				t.Errorf("%s before the run, then %s: %s; the processes said %+v", e.offer.Training, got, reason, seen)
			} else {
				t.Logf("%s: %s", got, reason)
			}
		})
	}
}

// surveyedOne returns gpurun's offer for one job.
func surveyedOne(t *testing.T, name string) *equalTrial {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("testdata", "equal"))
	if err != nil {
		t.Fatal(err)
	}
	e := &equalTrial{name: name}
	e.survey(t, dir, testenv.Torch(t), name+".py")
	return e
}

// seen runs a job with these arguments and gpurun's hook to its end, and returns its process's report on the
// loss.
func (e *equalTrial) seen(t *testing.T, line []string) strategy.LossSeen {
	t.Helper()
	script, err := filepath.Abs(filepath.Join("testdata", "equal", e.name+".py"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	installed, err := probe.Install(dir, probe.Orders{Script: script})
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
	if out, errs, code := testenv.Warmed(t, cmd); code != 0 {
		t.Fatalf("exit code %d:\n%s%s", code, out, errs)
	}
	evidence := strategy.Evidence{Ranks: 1}
	stop, _ := probe.Watch(dir, []int{0}, func(f strategy.Fact) { evidence.Add(f) }, nil)
	stop()
	return evidence.Loss()
}

// seenUnder runs the job under gpurun, and returns the report that gpurun keeps.
func (e *equalTrial) seenUnder(t *testing.T, line []string) strategy.LossSeen {
	t.Helper()
	run := filepath.Join(t.TempDir(), "run")
	words := []string{"--run-dir", run, testenv.Torch(t)}
	l := runUnder(t, filepath.Join("testdata", "equal"), append(onCPU, "PYTHONDONTWRITEBYTECODE=1", "XDG_STATE_HOME="+t.TempDir()), words, append([]string{e.name + ".py"}, line...))
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

// after returns the effect of the offered plan on the training, given the reports of the processes.
func (e *equalTrial) after(seen ...strategy.LossSeen) (strategy.Training, string) {
	plan := e.job.Written
	for k, pair := range e.offer.Changed {
		plan = plan.With(strategy.Plan{k: pair[1]})
	}
	var history []strategy.Attempt
	for _, loss := range seen {
		history = append(history, strategy.Attempt{Plan: e.job.Written, Loss: loss})
	}
	return e.job.Training(plan, history)
}

// surveyed returns gpurun's offer for each job.
func surveyed(t *testing.T, python string) []*equalTrial {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("testdata", "equal"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.py"))
	if err != nil || len(files) != len(equalJobs) {
		t.Fatalf("%d scripts and %d labels, %v", len(files), len(equalJobs), err)
	}
	var trials []*equalTrial
	turns, all := make(chan struct{}, 2), sync.WaitGroup{}
	for _, file := range files {
		e := &equalTrial{name: strings.TrimSuffix(filepath.Base(file), ".py")}
		label, labelled := equalJobs[e.name]
		if !labelled {
			t.Errorf("%s has no label", e.name)
		}
		e.label = label
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
		if offer.Rung == strategy.RungMicroBatch {
			e.offer = offer
		}
	}
	if e.offer.Available {
		e.line = e.argv(t, p, line[0])
	}
}

// argv returns the script's arguments for the offered plan.
func (e *equalTrial) argv(t *testing.T, p *job.Prepared, script string) []string {
	plan := p.Plan()
	for k, pair := range e.offer.Changed {
		plan = plan.With(strategy.Plan{k: pair[1]})
	}
	c, err := p.Apply(plan, "", "")
	if err != nil {
		t.Error(e.name, err)
		return nil
	}
	at := slices.Index(c.Argv, script)
	if at < 0 || len(c.Files) > 0 {
		t.Errorf("%s: no arguments in %q, and %d files", e.name, c.Argv, len(c.Files))
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
		if e.line == nil {
			e.line = []string{}
		}
		script, err := filepath.Abs(filepath.Join("testdata", "equal", e.name+".py"))
		if err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, gradientPair{script, [][]string{{}, e.line}})
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
