package test

import (
	"bytes"
	"context"
	"encoding/json"
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
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// Jobs of real PyTorch without any description are relaunched after out of memory and trained, with the losses of the
// untouched job. The ceiling is between the job's memory before its first step and that of the step.
func TestJobsWithoutASetting(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	for _, test := range []struct {
		name    string
		flags   []string // of gpurun
		line    []string // words after the interpreter
		share   float64  // share of the first step's memory
		changed string
	}{
		{"constants in the code", nil, []string{"constants.py"}, .6, "checkpointing none→full"},
		{"two ranks", nil, []string{"-m", "torch.distributed.run", "--nproc-per-node", "2", "constants.py"}, .6, "checkpointing none→full"},
		{"arguments, which the process confirms", []string{"--never", "checkpointing", "--never", "split"}, []string{"arguments.py"}, .75, "micro batch 32→16, accumulation 1→2"},
		{"parts of the batch", []string{"--never", "checkpointing", "--never", "micro-batch"}, []string{"arguments.py"}, .75, "forward parts 1→2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "two ranks" || test.name == "constants in the code" { // the hook's own tests cover DDP and checkpointing
				lab(t)
			}
			t.Parallel()
			dir := copyOf(t, filepath.Join("testdata", "cpu"))
			untouched := runLine(t, dir, python, test.line[len(test.line)-1])
			var before, peak int
			if _, err := fmt.Sscanf(lastLine(untouched, "data "), "data %d %d", &before, &peak); err != nil {
				t.Fatalf("%v in %s", err, untouched)
			}
			ceiling := fmt.Sprintf("%dMiB", before+int(test.share*float64(peak-before)))
			words := append([]string{"--run-dir", "run", "--no-in-place", "--device-memory", ceiling}, test.flags...)
			rescued := runLine(t, dir, binary(t), append(append(words, python), test.line...)...)
			v := verdictOf(t, filepath.Join(dir, "run"))
			if len(v.Attempts) != 2 || v.Outcome != strategy.Trained || v.Attempts[0].Changed.String() != test.changed {
				t.Errorf("%s after %d attempts, under %s: %s", v.Outcome, len(v.Attempts), ceiling, v.Reason)
				for _, a := range v.Attempts {
					t.Logf("attempt %d: %s, changed %s", a.N, a.Cause, a.Changed)
				}
			}
			if strings.Contains(test.name, "ranks") {
				return // two ranks halve the gradients' noise, so that the losses differ
			}
			words[1] = "again" // the next run starts with the changes in the process or in the call
			again := runLine(t, dir, binary(t), append(append(words, python), test.line...)...)
			recalled := regexp.MustCompile(`\w+→`).ReplaceAllString(test.changed, "")
			if v := verdictOf(t, filepath.Join(dir, "again")); len(v.Attempts) != 1 || v.Recalled == nil || v.Recalled.Changed.String() != recalled {
				t.Errorf("the next night: %s after %d attempts, recalled %+v", v.Outcome, len(v.Attempts), v.Recalled)
			}
			if diff := cmp.Diff(losses(untouched), losses(rescued)); diff != "" {
				t.Errorf("losses (-untouched +rescued):\n%s", diff)
			}
			if diff := cmp.Diff(losses(untouched), losses(again)); diff != "" {
				t.Errorf("losses of the next night (-untouched +again):\n%s", diff)
			}
		})
	}
}

// verdictOf reads the verdict of a run.
func verdictOf(t *testing.T, run string) (v launcher.Verdict) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(run, "verdict.json"))
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	testenv.Check(t, err)
	return v
}

// onCPU are the variables that gpurun sets for a job under a ceiling on the CPU.
var onCPU = []string{"MALLOC_ARENA_MAX=1", "MALLOC_MMAP_THRESHOLD_=131072", "CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS=1"}

// runLine runs a command in a folder and returns what it writes to stdout. A script alone, without gpurun, is run in a fork
// of the warm interpreter.
func runLine(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	out, _ := runBoth(t, dir, program, args...)
	return out
}

// runBoth is runLine with what the program writes to stderr.
func runBoth(t *testing.T, dir, program string, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), onCPU...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if program == os.Getenv("GPURUN_TEST_PYTHON") && strings.HasSuffix(args[0], ".py") {
		stdout, stderr, code := testenv.Warmed(t, cmd)
		if code != 0 {
			t.Fatalf("%s %v: exit code %d\n%s", program, args, code, tail([]byte(stderr), 40))
		}
		return stdout, stderr
	}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, tail(errs.Bytes(), 40))
	}
	return out.String(), errs.String()
}

func lastLine(text, prefix string) string {
	at := strings.LastIndex(text, prefix)
	if at < 0 {
		return ""
	}
	return text[at:]
}

var insideLoss = regexp.MustCompile(`(?m)^loss .*$`)

// losses returns the losses of the last attempt. A job without a checkpoint starts from the beginning.
func losses(out string) []string { return insideLoss.FindAllString(out, -1) }

// A job that ends with 0 after its batch was changed has not trained if its optimizer made no step.
func TestLoopThatNeverStepsHasNotTrained(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	dir := copyOf(t, filepath.Join("testdata", "cpu"))
	var before, peak int
	if _, err := fmt.Sscanf(lastLine(runLine(t, dir, python, "offsets.py"), "data "), "data %d %d", &before, &peak); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary(t), "--run-dir", "run", "--no-in-place", "--never", "checkpointing", "--never", "split", "--device-memory", fmt.Sprintf("%dMiB", before+(peak-before)*3/4), "offsets.toml")
	cmd.Dir, cmd.Env = dir, append(insideEnv(), append(onCPU, "PYTHON_EXEC="+python, "XDG_STATE_HOME="+t.TempDir())...)
	out, err := cmd.CombinedOutput()
	v := verdictOf(t, filepath.Join(dir, "run"))
	if cmd.ProcessState.ExitCode() != 1 || v.Outcome != strategy.Failed || len(v.Attempts) < 2 ||
		!strings.Contains(v.Reason, "its optimizer made no step with micro batch 32→") {
		t.Errorf("%v, %s after %d attempts: %s\n%s", err, v.Outcome, len(v.Attempts), v.Reason, out)
	}
}

// An inside is a training script in testdata/inside with constants in its code, without a train.toml or
// arguments. gpurun precedes its line.
type inside struct {
	name  string
	line  []string // words after the interpreter, or a launcher's whole line if torchrun is its first word
	env   []string
	needs []string
	gpus  int
	// share is the part of the untouched job's peak that it may use.
	share float64
	own   bool // the model has its own switch, which OWN=1 sets
	// batch: the remedy is a smaller micro batch.
	batch bool
}

var insides = []inside{
	{name: "gpt", line: []string{"gpt.py"}, share: .75},
	{name: "trainer", line: []string{"trainer.py"}, needs: []string{"transformers", "accelerate"}, share: .6, own: true},
	{name: "lightning", line: []string{"lit.py"}, needs: []string{"lightning"}, share: .6, batch: true},
	{name: "accelerate", line: []string{"loop.py"}, needs: []string{"transformers", "accelerate"}, share: .6, own: true},
	{name: "ddp", line: []string{"torchrun", "--standalone", "--nproc-per-node", "2", "ddp.py"}, gpus: 2, share: .75},
	// Rank 0 holds more than rank 1, on the same GPU.
	{name: "short-rank", line: []string{"torchrun", "--standalone", "--nproc-per-node", "2", "ddp.py"}, env: []string{"BACKEND=gloo", "HELD=8"}, share: .85},
	{name: "vit", line: []string{"vision.py", "vit_large_patch16_224", "64"}, needs: []string{"timm"}, share: .6, own: true},
	{name: "swin", line: []string{"vision.py", "swin_base_patch4_window7_224", "64"}, needs: []string{"timm"}, share: .85, own: true},
	{name: "resnet", line: []string{"vision.py", "tv_resnet152", "128"}, needs: []string{"torchvision"}, share: .75},
	{name: "unet", line: []string{"unet.py"}, needs: []string{"diffusers"}, share: .75, own: true},
	{name: "t5", line: []string{"t5.py"}, needs: []string{"transformers"}, share: .7, own: true},
	{name: "vlm", line: []string{"vlm.py"}, needs: []string{"transformers"}, share: .7, own: true},
	{name: "detection", line: []string{"detection.py"}, needs: []string{"torchvision"}, share: .85},
}

// outcome is a script's last line.
type outcome struct {
	Losses     []float64 `json:"losses"`
	Seconds    float64   `json:"seconds"` // of the fastest step
	Peak       float64   `json:"peak"`    // bytes
	Statistics float64   `json:"statistics"`
	Steps      int       `json:"steps"`
	Each       []float64 `json:"each"` // seconds of each step
}

// TestInside trains jobs without any setting from out of memory to trained, and compares them with the
// untouched job and the framework's own switch. GPURUN_INSIDE selects some of them.
func TestInside(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	chosen := strings.Fields(os.Getenv("GPURUN_INSIDE"))
	table := []string{"job | untouched GiB, s | own switch GiB, s, difference | gpurun GiB, s | attempts | largest difference of a loss (spread of three untouched runs) | what was turned"}
	for _, s := range insides {
		if len(chosen) > 0 && !slices.Contains(chosen, s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if why := (scene{gpus: max(s.gpus, 1), needs: append(s.needs, "torch")}).lacks(installed, len(devices)); why != "" {
				t.Skip(why)
			}
			table = append(table, s.play(t, python))
		})
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// play runs one job in all ways, and returns its line of the table.
func (s inside) play(t *testing.T, python string) string {
	dir := copyOf(t, filepath.Join("testdata", "inside"))
	line := append([]string{python}, s.line...)
	if s.line[0] == "torchrun" {
		line = append([]string{python, "-m", "torch.distributed.run"}, s.line[1:]...)
	}
	untouched := make([]outcome, 3)
	untouched[0] = s.script(t, dir, line)
	var both sync.WaitGroup
	for i := range untouched[1:] {
		both.Go(func() { untouched[1+i] = s.script(t, dir, line) })
	}
	both.Wait()
	own, bound := "–", 0.0
	if s.own {
		o := s.script(t, dir, line, "OWN=1")
		own = fmt.Sprintf("%.2f, %.3f, %.2g", gib(o.Peak), o.Seconds, apart(o, untouched[0]))
		bound = apart(o, untouched[0])
	}
	if t.Failed() {
		return s.name
	}
	ceiling := fmt.Sprintf("%.0fMiB", untouched[0].Peak*s.share/(1<<20)+600) // the context and the allocator's own
	rescued, verdict := s.rescue(t, dir, line, ceiling, "--no-in-place")
	if len(verdict.Attempts) < 2 {
		t.Error("nothing was rescued")
	}
	difference, spread := apart(rescued, untouched[0]), max(apart(untouched[0], untouched[1]), apart(untouched[0], untouched[2]), apart(untouched[1], untouched[2]))
	// The framework's own switch has the same rounding effects in bf16.
	if !s.batch && difference > max(2*spread, 1.5*bound)+1e-6 {
		t.Errorf("losses differ by %g, those of untouched runs by %g:\n%v\n%v", difference, spread, rescued.Losses, untouched[0].Losses)
	}
	if untouched[0].Statistics != 0 && math.Abs(rescued.Statistics-untouched[0].Statistics) > 1e-3*math.Abs(untouched[0].Statistics) {
		t.Errorf("BatchNorm's statistics are %g, untouched %g", rescued.Statistics, untouched[0].Statistics)
	}
	if rescued.Peak >= untouched[0].Peak {
		t.Errorf("the peak is %.2f GiB, untouched %.2f", gib(rescued.Peak), gib(untouched[0].Peak))
	}
	var turned []string
	for _, a := range verdict.Attempts {
		if len(a.Changed) > 0 {
			turned = append(turned, a.Changed.String())
		}
	}
	return fmt.Sprintf("%s | %.2f, %.3f | %s | %.2f, %.3f | %d | %.2g (%.2g) | %s", s.name, gib(untouched[0].Peak), untouched[0].Seconds, own,
		gib(rescued.Peak), rescued.Seconds, len(verdict.Attempts), difference, spread, strings.Join(turned, "; "))
}

// script is one run without gpurun.
func (s inside) script(t *testing.T, dir string, line []string, env ...string) outcome {
	cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
	cmd.Dir, cmd.Env = dir, slices.Concat(insideEnv(), s.env, env)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Errorf("%v: %v\n%s", line, err, tail(errs.Bytes(), 30))
	}
	return resultIn(t, out.Bytes())
}

// rescue runs the line under gpurun.
func (s inside) rescue(t *testing.T, dir string, line []string, ceiling string, flags ...string) (outcome, launcher.Verdict) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run := filepath.Join(t.TempDir(), "run")
	cmd := exec.CommandContext(ctx, binary(t), append([]string{"--run-dir", run, "--device-memory", ceiling}, append(flags, line...)...)...)
	cmd.Dir, cmd.Env = dir, append(insideEnv(), s.env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var v launcher.Verdict
	text, readErr := os.ReadFile(filepath.Join(run, "verdict.json"))
	if readErr == nil {
		readErr = json.Unmarshal(text, &v)
	}
	if err != nil || readErr != nil {
		t.Fatalf("%v under %s: %v, %v\n%s", line, ceiling, err, readErr, tail(errs.Bytes(), 60))
	}
	t.Logf("%s", tail(errs.Bytes(), 20))
	if v.Outcome != strategy.Trained {
		t.Errorf("%s after %d attempts", v.Outcome, len(v.Attempts))
	}
	return resultIn(t, out.Bytes()), v
}

// insideEnv is the environment of the jobs, which import testdata/alone.
func insideEnv() []string {
	alone, err := filepath.Abs(filepath.Join("testdata", "alone"))
	if err != nil {
		panic(err) // the test's own directory is gone
	}
	return append(os.Environ(), "PYTHONPATH="+alone+string(os.PathListSeparator)+os.Getenv("PYTHONPATH"), "PYTHONUNBUFFERED=1", "HF_HUB_OFFLINE=1", "TOKENIZERS_PARALLELISM=false")
}

func resultIn(t *testing.T, out []byte) (o outcome) {
	at := bytes.LastIndex(out, []byte("RESULT "))
	if at < 0 {
		t.Errorf("the script says no result: %s", tail(out, 10))
		return o
	}
	if err := json.NewDecoder(bytes.NewReader(out[at+len("RESULT "):])).Decode(&o); err != nil {
		t.Errorf("read the script's result: %v", err)
	}
	return o
}

// apart returns the largest relative difference of two runs' losses.
func apart(a, b outcome) float64 {
	if len(a.Losses) != len(b.Losses) || len(a.Losses) == 0 {
		return math.Inf(1)
	}
	largest := 0.0
	for i := range a.Losses {
		largest = max(largest, math.Abs(a.Losses[i]-b.Losses[i])/math.Abs(b.Losses[i]))
	}
	return largest
}

func gib(bytes float64) float64 { return bytes / (1 << 30) }

// A job of real PyTorch that does not fit under its ceiling trains in one attempt, with the losses of the untouched
// job: the step that runs out of memory is done again in the process. The console, the journal and the verdict have it,
// explain makes the same decision, and the next run loses no step.
func TestStepIsDoneAgainInPlace(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	dir := copyOf(t, filepath.Join("testdata", "cpu"))
	untouched := runLine(t, dir, python, "constants.py")
	var before, peak int
	if _, err := fmt.Sscanf(lastLine(untouched, "data "), "data %d %d", &before, &peak); err != nil {
		t.Fatalf("%v in %s", err, untouched)
	}
	flags := []string{"--device-memory", fmt.Sprintf("%dMiB", before+int(.6*float64(peak-before)))}
	run := func(name string) (console string, _ launcher.AttemptSummary, journal []byte) {
		output, console := runBoth(t, dir, binary(t), append(append([]string{"--run-dir", name}, flags...), python, "constants.py")...)
		v := verdictOf(t, filepath.Join(dir, name))
		if v.Outcome != strategy.Trained || len(v.Attempts) != 1 {
			t.Fatalf("%s after %d attempts: %s", v.Outcome, len(v.Attempts), console)
		}
		if diff := cmp.Diff(losses(untouched), losses(output)); diff != "" {
			t.Errorf("losses of %s (-untouched +%s):\n%s", name, name, diff)
		}
		journal, err := os.ReadFile(filepath.Join(dir, name, "journal.jsonl"))
		testenv.Check(t, err)
		return console, v.Attempts[0], journal
	}
	console, attempt, journal := run("rescued")
	if all := attempt.InPlace; len(all) != 1 || all[0].Remedy != strategy.RemedyCheckpointing || all[0].Times < 1 || all[0].Seconds <= 0 || all[0].Elements <= 0 {
		t.Errorf("the verdict has %+v", all)
	}
	line := regexp.MustCompile(`(?m)^gpurun: rank 0: out of memory in (forward|backward) at step \d+ \(tried to allocate [^)]+\); step repeated with activation checkpointing \(\d+\.\d\d s\)$`)
	summary := regexp.MustCompile(`(?m)^gpurun:   \d+ steps? repeated in place with activation checkpointing \(\d+\.\d\d s\); large inputs now recompute activations`)
	if !line.MatchString(console) || !summary.MatchString(console) {
		t.Errorf("no line, or no summary: %s", console)
	}
	if n := bytes.Count(journal, []byte(`"kind":"in_place"`)); n < 1 {
		t.Errorf("the journal has %d events in place", n)
	}
	if said := runLine(t, dir, binary(t), "explain", "rescued"); !regexp.MustCompile(`(?m)^  in place: rank 0: out of memory`).MatchString(said) || bytes.Contains([]byte(said), []byte("then: ")) {
		t.Errorf("explain: %s", said)
	}
	_, attempt, journal = run("next")
	if len(attempt.InPlace) > 0 || !bytes.Contains(journal, []byte(`"armed":[{"rung":"checkpointing"`)) {
		t.Errorf("the next run did steps again: %+v", attempt.InPlace)
	}
}

// inPlaceHead has the columns of TestInPlaceOnAGPU's table.
const inPlaceHead = "| job | ceiling GiB (of the untouched peak) | attempts | done again: remedy, phase, step, times, seconds | s lost; longer than the untouched step: s, in ordinary steps | step s: untouched, rescued | peak GiB | largest difference of a loss (of two untouched runs) |\n|---|---|--:|---|--:|---|--:|---|"

// inPlaceShares are the ceilings of TestInPlaceOnAGPU as shares of what the untouched job needs.
func inPlaceShares(t *testing.T) []float64 {
	if os.Getenv("GPURUN_PLANNER_SHARES") == "" {
		return []float64{.85, .6}
	}
	return shares(t)
}

// TestInPlaceOnAGPU trains the jobs of TestInside and TestPlanner under ceilings, with steps done again in
// place. GPURUN_INSIDE and GPURUN_PLANNER select jobs ("-": none), GPURUN_PLANNER_SHARES the ceilings.
func TestInPlaceOnAGPU(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	chosen, table := strings.Fields(os.Getenv("GPURUN_INSIDE")), []string{inPlaceHead}
	rescued, failures := 0, 0
	count := func(attempts int) {
		failures++
		if attempts == 1 {
			rescued++
		}
	}
	for _, s := range insides {
		if len(chosen) > 0 && !slices.Contains(chosen, s.name) || s.batch {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if why := (scene{gpus: max(s.gpus, 1), needs: append(s.needs, "torch")}).lacks(installed, len(devices)); why != "" {
				t.Skip(why)
			}
			table = append(table, s.again(t, python, count)...)
		})
	}
	m := comparison{python: python, fresh: freshFlag(t), cards: newCards(devices)}
	m.deadline, _ = t.Deadline()
	chosen = strings.Fields(os.Getenv("GPURUN_PLANNER"))
	for _, c := range contests() {
		if len(chosen) > 0 && !slices.Contains(chosen, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if why := c.lacks(installed, len(devices)); why != "" {
				t.Skip(why)
			}
			visible, release := m.cards.take(c.gpus)
			defer release()
			table = append(table, (&match{contest: c, comparison: &m, visible: visible}).again(t, count)...)
		})
	}
	t.Logf("%d of %d failures were rescued in the first attempt\n%s", rescued, failures, strings.Join(table, "\n"))
	if rescued*10 < failures*8 {
		t.Errorf("%d of %d failures were rescued in the first attempt, fewer than 80 %%", rescued, failures)
	}
}

// TestCostOnAGPU trains 300 steps without gpurun and with it, three times in turn, while nothing fails.
func TestCostOnAGPU(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	if why := (scene{gpus: 1, needs: []string{"torch"}}).lacks(installed, len(devices)); why != "" {
		t.Skip(why)
	}
	job := inside{name: "gpt", env: []string{"LONG=1"}}
	dir, line := copyOf(t, filepath.Join("testdata", "inside")), []string{python, "gpt.py"}
	table := []string{"| median step, ms: untouched | with gpurun | ratio | largest difference of a loss |\n|--:|--:|--:|--:|"}
	for range 3 {
		untouched := job.script(t, dir, line)
		watched, v := job.rescue(t, dir, line, "70GiB", "--fresh")
		if t.Failed() || len(v.Attempts) != 1 || len(v.Attempts[0].InPlace) > 0 {
			t.Fatalf("%+v", v.Attempts)
		}
		before, with := 1e3*median(untouched.Each[20:]), 1e3*median(watched.Each[20:])
		table = append(table, fmt.Sprintf("| %.3f | %.3f | %.4f | %.2g |", before, with, with/before, apart(watched, untouched)))
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// again runs a job of TestInside twice without gpurun, then under each ceiling. It returns its lines of the table.
func (s inside) again(t *testing.T, python string, count func(attempts int)) (lines []string) {
	dir := copyOf(t, filepath.Join("testdata", "inside"))
	line := append([]string{python}, s.line...)
	if s.line[0] == "torchrun" {
		line = append([]string{python, "-m", "torch.distributed.run"}, s.line[1:]...)
	}
	untouched, other := s.script(t, dir, line), s.script(t, dir, line)
	if t.Failed() {
		return nil
	}
	for _, share := range inPlaceShares(t) {
		ceiling := untouched.Peak*share + 600<<20 // the context, and what the allocator keeps
		o, v := s.rescue(t, dir, line, fmt.Sprintf("%.0fMiB", ceiling/(1<<20)), "--fresh")
		count(len(v.Attempts))
		difference, spread := apart(o, untouched), apart(untouched, other)
		if difference > 3*spread+1e-3 {
			t.Errorf("at %.2f losses differ by %g, those of untouched runs by %g", share, difference, spread)
		}
		lines = append(lines, fmt.Sprintf("| %s | %.1f (%.2f) | %d%s | %s | %.2f; %s | %.3f, %.3f | %.2f | %.2g (%.2g) |", s.name, ceiling/(1<<30), share,
			len(v.Attempts), unlessTrained(v.Outcome), doneAgain(v), lostSeconds(v), longer(v, o, untouched), untouched.Seconds, o.Seconds, gib(o.Peak), difference, spread))
	}
	return lines
}

// again runs a job of TestPlanner without a ceiling, then under each.
func (m *match) again(t *testing.T, count func(attempts int)) (lines []string) {
	written, ok := m.try(t, m.written)
	if !ok {
		t.Fatal("the job as it is written does not train")
	}
	for _, share := range inPlaceShares(t) {
		ceiling := share*float64(written.peak) + 600<<20
		c := call{dir: m.folderWith(t, m.written), flags: append([]string{"--device-memory", strconv.Itoa(int(ceiling)>>20) + "MiB"}, m.fresh...)}
		v, said, err := m.timed(t, c)
		t.Logf("at %.2f:\n%s", share, said)
		if err != nil || len(v.Attempts) == 0 {
			t.Errorf("at %.2f: %s after %d attempts, %v", share, v.Outcome, len(v.Attempts), err)
			continue
		}
		count(len(v.Attempts))
		var again []string
		lost := v.lost().Seconds()
		for _, a := range v.Attempts {
			again = append(again, inPlaceWords(a.InPlace)...)
			lost += inPlaceSeconds(a.InPlace)
		}
		lines = append(lines, fmt.Sprintf("| %s | %.1f (%.2f) | %d%s | %s | %.2f | %.1f, %.1f samples/s | %.2f | |", m.name, ceiling/(1<<30), share,
			len(v.Attempts), unlessTrained(v.Outcome), strings.Join(again, "; "), lost, written.speed, v.own.Speed, gib(float64(v.last().Peak))))
	}
	return lines
}

func unlessTrained(o strategy.Outcome) string {
	if o == strategy.Trained {
		return ""
	}
	return ", " + string(o)
}

func doneAgain(v launcher.Verdict) string {
	var all []string
	for _, a := range v.Attempts {
		all = append(all, inPlaceWords(a.InPlace)...)
	}
	return strings.Join(all, "; ")
}

func inPlaceWords(all []strategy.InPlace) (words []string) {
	for _, e := range all {
		words = append(words, fmt.Sprintf("%s, %s, %d, %d, %.2f", e.Remedy, e.Phase, e.Step, e.Times, e.Seconds.Duration().Seconds()))
	}
	return words
}

func inPlaceSeconds(all []strategy.InPlace) (sum float64) {
	for _, e := range all {
		sum += e.Seconds.Duration().Seconds()
	}
	return sum
}

// longer is by how much the steps that were done again took longer than the same steps of the untouched job. In
// both a first step compiles kernels.
func longer(v launcher.Verdict, o, untouched outcome) string {
	if len(v.Attempts) != 1 {
		return "–"
	}
	sum, counted := 0.0, map[int]bool{}
	for _, e := range v.Attempts[0].InPlace {
		if !counted[e.Step] && e.Step < min(len(o.Each), len(untouched.Each)) {
			counted[e.Step] = true
			sum += o.Each[e.Step] - untouched.Each[e.Step]
		}
	}
	return fmt.Sprintf("%.2f, %.1f", sum, sum/untouched.Seconds)
}

// lostSeconds adds up the attempts that did not train, and the steps that were done again.
func lostSeconds(v launcher.Verdict) (sum float64) {
	for i, a := range v.Attempts {
		if i < len(v.Attempts)-1 {
			sum += a.Seconds.Duration().Seconds()
		}
		sum += inPlaceSeconds(a.InPlace)
	}
	return sum
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
