package test

import (
	"bytes"
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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// contextBytes is the memory that a process on a GPU needs in addition to PyTorch's allocations.
const contextBytes = 700 << 20

// onGPU runs a line under gpurun, with a ceiling that is a share of the untouched job's peak.
func (r result) onGPU(t *testing.T, dir, name string, share float64, flags, line []string) launched {
	t.Helper()
	ceiling := fmt.Sprintf("%dMiB", (contextBytes+int64(share*float64(r.Peak)))>>20)
	words := append([]string{"--fresh", "--run-dir", filepath.Join(dir, name), "--device-memory", ceiling, "--no-in-place"}, flags...)
	l := runUnder(t, dir, nil, words, line)
	t.Logf("%s under %s, peak %d MiB: %s after %d attempts: %s", name, ceiling, r.Peak>>20, l.verdict.Outcome, len(l.verdict.Attempts), l.verdict.Reason)
	for _, a := range l.verdict.Attempts {
		t.Logf("  attempt %d: %s in %s, %s, changed %s", a.N, a.Cause, a.Phase, a.Training, a.Changed)
	}
	return l
}

// TestEqualTrainingOfBERT rescues BERT's classification with the Trainer and SGD, with 128 samples per micro
// batch: its train_loss equals the untouched job's, within the job's own spread.
func TestEqualTrainingOfBERT(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	if why := (scene{gpus: 1, needs: []string{"torch", "transformers", "accelerate"}}).lacks(installed, len(devices)); why != "" {
		t.Skip(why)
	}
	dir := copyOf(t, filepath.Join("testdata", "equal_trainer"))
	line := func(seed int) []string {
		return append([]string{python}, trainerArguments("--width", "768", "--layers", "12", "--length", "128", "--samples", "2560", "--dropout", "0.1", "--max_steps", "20",
			"--per_device_train_batch_size", "128", "--learning_rate", "0.01", "--seed", strconv.Itoa(seed))...)
	}
	var untouched []result
	for seed := range 3 {
		l := runUnder(t, dir, nil, []string{"--fresh", "--run-dir", filepath.Join(dir, fmt.Sprint("untouched-", seed))}, line(seed))
		untouched = append(untouched, resultOf(t, l.out))
	}
	again := resultOf(t, runUnder(t, dir, nil, []string{"--fresh", "--run-dir", filepath.Join(dir, "again")}, line(0)).out)
	spread := math.Abs(again.TrainLoss - untouched[0].TrainLoss)
	losses := []float64{untouched[0].TrainLoss, untouched[1].TrainLoss, untouched[2].TrainLoss}
	t.Logf("train_loss of three seeds: %v; the first again: %v", losses, again.TrainLoss)
	for seed, r := range untouched {
		l := r.onGPU(t, dir, fmt.Sprint("rescued-", seed), .6, nil, line(seed))
		if l.verdict.Outcome != strategy.Trained || len(l.verdict.Attempts) < 2 {
			t.Errorf("%s: %s", l.verdict.Outcome, l.verdict.Reason)
			continue
		}
		got := resultOf(t, l.out)
		t.Logf("seed %d: train_loss %v, untouched %v", seed, got.TrainLoss, r.TrainLoss)
		if math.Abs(got.TrainLoss-r.TrainLoss) > max(3*spread, 1e-3*r.TrainLoss) {
			t.Errorf("seed %d: train_loss %v, untouched %v, whose spread is %v", seed, got.TrainLoss, r.TrainLoss, spread)
		}
	}
	l := untouched[0].onGPU(t, dir, "micro-batch", .6, []string{"--never", "checkpointing", "--never", "split", "--never", "precision"}, line(0))
	switch v := l.verdict; {
	case v.Outcome == strategy.Trained:
		got := resultOf(t, l.out) // different dropout, as with another seed
		if width := slices.Max(losses) - slices.Min(losses); math.Abs(got.TrainLoss-losses[0]) > max(2*width, .02*losses[0]) {
			t.Errorf("a smaller micro batch has train_loss %v, seeds have %v", got.TrainLoss, losses)
		}
	case !slices.ContainsFunc(v.Attempts[len(v.Attempts)-1].Skipped, func(s strategy.Skip) bool {
		return s.Remedy == strategy.RemedyMicroBatch && strings.Contains(s.Reason, "num_items_in_batch")
	}):
		t.Errorf("%s: %s; skipped: %v", v.Outcome, v.Reason, v.Attempts[len(v.Attempts)-1].Skipped)
	}
}

// TestEqualTrainingOfNanoGPT rescues a nanoGPT on one GPU out of its evaluation, and on two
// out of a step, where the accumulation is that of all ranks.
func TestEqualTrainingOfNanoGPT(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	for _, test := range []struct {
		name    string
		gpus    int
		line    []string
		share   float64
		phase   string
		changed string
	}{
		{"one GPU", 1, []string{"train.py", "--batch_size=64", "--gradient_accumulation_steps=1"}, .35, "eval", ""},
		{"two GPUs", 2, []string{"-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "train.py", "--batch_size=32", "--gradient_accumulation_steps=16"},
			.75, "", "micro batch 32→16, accumulation 16→32"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if why := (scene{gpus: test.gpus, needs: []string{"torch"}}).lacks(installed, len(devices)); why != "" {
				t.Skip(why)
			}
			dir := copyOf(t, filepath.Join("testdata", "equal_nanogpt"))
			line := append(append([]string{python}, test.line...), "--max_iters=6", "--n_layer=4", "--n_head=12", "--n_embd=768", "--vocab_size=50304", "--block_size=512")
			untouched := runUnder(t, dir, nil, []string{"--fresh", "--run-dir", filepath.Join(dir, "untouched")}, line)
			l := resultOf(t, untouched.out).onGPU(t, dir, "rescued", test.share, []string{"--never", "checkpointing", "--never", "split", "--never", "precision"}, line)
			if l.verdict.Outcome != strategy.Trained || len(l.verdict.Attempts) < 2 {
				t.Fatalf("%s after %d attempts: %s\n%s", l.verdict.Outcome, len(l.verdict.Attempts), l.verdict.Reason, tail([]byte(l.errs), 30))
			}
			if first := l.verdict.Attempts[0]; test.phase != "" && string(first.Phase) != test.phase || !strings.HasPrefix(first.Changed.String(), test.changed) {
				t.Errorf("attempt 0 ended in %s, changed %s", first.Phase, first.Changed)
			}
			want, got := iterationLosses(t, untouched.out, 6), iterationLosses(t, l.out, 6)
			t.Logf("losses: untouched %v, rescued %v", want, got)
			if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-3, 0)); diff != "" || len(want) != 6 {
				t.Errorf("losses (-untouched +rescued):\n%s", diff)
			}
			for _, one := range []launched{untouched, l} {
				if at := falseEffect.FindString(one.errs); at != "" {
					t.Errorf("gpurun says that the accumulation %s:\n%s", at, tail([]byte(one.errs), 30))
				}
			}
		})
	}
}

// A scarce is a script in testdata/scarce that runs out of memory in its loss, in its optimizer's step, or
// nearly.
type scarce struct {
	name   string
	line   []string
	shares []float64 // ceilings, as shares of what it needs
	// phase is where memory is short, in the first attempt; empty: nothing fails.
	phase string
}

// TestScarceMemoryOnAGPU trains jobs that are short of memory beside the forward and the backward pass: large
// logits, an optimizer that steps all parameters at once, an allocator that retries.
func TestScarceMemoryOnAGPU(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	if why := (scene{gpus: 1, needs: []string{"torch"}}).lacks(installed, len(devices)); why != "" {
		t.Skip(why)
	}
	table := []string{"| job | ceiling (of the untouched peak) | attempts | done in place | step s: untouched, rescued | peak GiB: untouched, rescued | largest difference of a loss | memory pressure |\n|---|---|--:|---|---|---|---|---|"}
	for _, s := range []scarce{
		{"vocabulary", []string{"vocabulary.py"}, []float64{.75, .55}, "loss"},
		{"a loss of its own", []string{"env", "OWN=1", python, "vocabulary.py"}, []float64{.95}, ""},
		{"optimizer", []string{"optimizer.py"}, []float64{.9}, "optimizer"},
		{"pressure", []string{"pressure.py"}, []float64{1.02, .97}, ""},
	} {
		t.Run(s.name, func(t *testing.T) { table = append(table, s.play(t, python)...) })
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// play runs a job twice without gpurun, then under each ceiling, and returns its lines of the table.
func (s scarce) play(t *testing.T, python string) (lines []string) {
	dir := copyOf(t, filepath.Join("testdata", "scarce"))
	line := s.line
	if line[0] != "env" {
		line = append([]string{python}, line...)
	}
	var job inside
	untouched, other := job.script(t, dir, line), job.script(t, dir, line)
	if t.Failed() {
		return nil
	}
	for _, share := range s.shares {
		ceiling := untouched.Peak*share + 200<<20
		got, v := job.rescue(t, dir, line, fmt.Sprintf("%.0fMiB", ceiling/(1<<20)), "--fresh")
		difference, spread := apart(got, untouched), apart(untouched, other)
		if difference > 3*spread+1e-3 {
			t.Errorf("at %.2f losses differ by %g, those of untouched runs by %g", share, difference, spread)
		}
		first := v.Attempts[0]
		here := slices.ContainsFunc(first.InPlace, func(r strategy.InPlace) bool { return r.Phase == s.phase })
		if s.phase != "" && (len(v.Attempts) > 1 || !here) {
			t.Errorf("at %.2f: %d attempts; in place: %+v", share, len(v.Attempts), first.InPlace)
		}
		var words []string
		for _, a := range v.Attempts {
			words = append(words, inPlaceWords(a.InPlace)...)
		}
		lines = append(lines, fmt.Sprintf("| %s | %.2f | %d | %s | %.3f, %.3f | %.2f, %.2f | %.2g (%.2g) | %s |", s.name, share, len(v.Attempts), strings.Join(words, "; "),
			untouched.Seconds, got.Seconds, untouched.Peak/(1<<30), got.Peak/(1<<30), difference, spread, strings.Join(first.MemoryPressure, "; ")))
	}
	return lines
}

// Parts of the batch save memory on a GPU, and cost a forward: measured next to recomputed blocks,
// for a GPT, a contrastive pair of towers, and a net without repeated blocks. The losses are those
// of the job as written.
func TestPartsOfTheBatchOnAGPU(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	if why := (scene{gpus: 1, needs: []string{"torch"}}).lacks(installed, len(devices)); why != "" {
		t.Skip(why)
	}
	hook, err := filepath.Abs("../launcher/hook")
	testenv.Check(t, err)
	type row struct {
		Turn    map[string]any
		Refused map[string]string
		Failed  string
		Losses  []float64
		Seconds float64
		GiB     float64
	}
	table := []string{"job | changed | GiB | seconds a step | largest difference of a loss"}
	for _, job := range []string{"gpt", "towers", "convnet"} {
		out, err := exec.Command(python, "testdata/split/measure.py", hook, job).Output()
		if err != nil {
			t.Errorf("%s: %v", job, err)
		}
		var whole row
		for line := range bytes.Lines(out) {
			var r row
			if json.Unmarshal(line, &r) != nil {
				continue
			}
			if len(r.Turn) == 0 {
				whole = r
			}
			apart := 0.
			for i := range min(len(r.Losses), len(whole.Losses)) {
				apart = math.Max(apart, math.Abs(r.Losses[i]-whole.Losses[i]))
			}
			table = append(table, fmt.Sprintf("%s | %v %s | %.2f | %.4f | %.5f", job, r.Turn, r.Failed, r.GiB, r.Seconds, apart))
			parts, split := r.Turn["forward_parts"]
			switch {
			case !split:
			case r.Failed != "" || r.Refused["forward_parts"] != "":
				t.Errorf("%s in %v parts: %s%s", job, parts, r.Failed, r.Refused["forward_parts"])
			case whole.Failed == "" && r.GiB >= whole.GiB:
				t.Errorf("%s in %v parts needs %.2f GiB, and the whole %.2f", job, parts, r.GiB, whole.GiB)
			case apart > .01*math.Abs(whole.Losses[0]):
				t.Errorf("%s in %v parts: losses %v, and the whole %v", job, parts, r.Losses, whole.Losses)
			}
		}
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// TestSnapshotOnAGPU lets jobs fill a real GPU's memory in several ways, and checks the summary. It needs
// GPURUN_TEST_PYTHON, and at most 5 GiB of one GPU.
func TestSnapshotOnAGPU(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	if why := (scene{gpus: 1, needs: []string{"torch"}}).lacks(installed, len(devices)); why != "" {
		t.Skip(why)
	}
	for _, test := range []struct {
		way, mode string
		want      []string // expressions; NAME@ is the line of job.py that bears the name
		kept      bool
	}{
		{"ordinary", "oom", []string{
			`memory at the failure: [23]\.\d GiB of 4\.0 GiB held, \d+ MiB more requested; by line:`, `(GiB|MiB)  job\.py:(UP@|ACT@) forward`,
		}, true},
		{"logits", "oom", []string{`giant: logits 10×1024×50257 fp32, (2 times )?1\.9 GiB, at job\.py:\d+ .* → compute the loss in chunks`}, true},
		{"leak", "always", []string{`leak: 48 MiB stay with every step, by job\.py:LEAK@ main \([\d.]+ [MG]iB so far\)`, `job\.py:LEAK@ main`}, true},
		{"fragmented", "always", []string{`fragmented: 1\.\d GiB lie free within what is held, the largest piece \d+ MiB`, `job\.py:PIECE@ main`}, true},
		{"late", "oom", []string{`not known: .* GiB were allocated after step 3, .*launch\.snapshot = "always"`}, true},
		{"late", "off", nil, false},
		{"outlived", "oom", nil, false},
	} {
		t.Run(test.way+" "+test.mode, func(t *testing.T) {
			out, run := snapshotRun(t, python, test.way, test.mode)
			said := aboutMemory(out)
			t.Logf("\n%s", strings.Join(said, "\n"))
			all := strings.Join(said, "\n")
			for _, want := range test.want {
				if !regexp.MustCompile(lineNumbers(t, want)).MatchString(all) {
					t.Errorf("nothing of %s in\n%s", lineNumbers(t, want), tail(out, 60))
				}
			}
			if strings.Contains(all, "attention") {
				t.Error("the model has no attention")
			}
			if len(test.want) == 0 && len(said) > 0 || len(said) > 5 {
				t.Errorf("%d lines", len(said))
			}
			files, err := filepath.Glob(filepath.Join(run, "attempt-0", "rank0", "snapshot-*.pickle"))
			if err != nil || len(files) > 0 != test.kept {
				t.Errorf("files %q, %v", files, err)
			}
			opensInMemoryViz(t, python, files)
		})
	}
	t.Run("cost", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "snapshot", "job.py"), "cost", filepath.Join("..", "launcher", "hook", "inside", "base", "digest.py"))
		out, err := cmd.CombinedOutput()
		at := bytes.LastIndex(out, []byte("COST "))
		if err != nil || at < 0 {
			t.Fatalf("%v\n%s", err, tail(out, 30))
		}
		t.Logf("%s", out[at:])
	})
}

// snapshotRun runs one variant of the job, which nothing can rescue, and returns gpurun's output.
func snapshotRun(t *testing.T, python, way, mode string) (out []byte, run string) {
	t.Helper()
	dir := copyOf(t, filepath.Join("testdata", "snapshot"))
	text := fmt.Sprintf("[job]\nscript = \"job.py\"\nargs = [%q]\n[launch]\nsnapshot = %q\n[recovery]\nmode = \"off\"\n", way, mode)
	testenv.Check(t, os.WriteFile(filepath.Join(dir, "train.toml"), []byte(text), 0o644))
	run = filepath.Join(dir, "run")
	cmd := exec.CommandContext(t.Context(), binary(t), "--run-dir", run, filepath.Join(dir, "train.toml"))
	cmd.Env = append(insideEnv(), "PYTHON_EXEC="+python, "CUDA_VISIBLE_DEVICES=0")
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if trained := bytes.Contains(out, []byte("TRAINED")); (err == nil) != trained || trained != (way == "outlived") {
		t.Fatalf("%v\n%s", err, tail(out, 60))
	}
	return out, run
}

// aboutMemory returns gpurun's lines about what filled the memory.
func aboutMemory(out []byte) (said []string) {
	for line := range strings.Lines(string(out)) {
		words, its := strings.CutPrefix(strings.TrimRight(line, "\n"), "gpurun: ")
		switch {
		case its && strings.HasPrefix(words, "memory at the failure"):
			said = append(said, words)
		case its && len(said) > 0 && strings.HasPrefix(words, "  ") && !strings.HasPrefix(words, "  attempt"):
			said = append(said, words)
		}
	}
	return said
}

// lineNumbers replaces names of lines of job.py with their numbers.
func lineNumbers(t *testing.T, want string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "snapshot", "job.py"))
	testenv.Check(t, err)
	for i, line := range strings.Split(string(text), "\n") {
		if _, name, marked := strings.Cut(line, "  # "); marked && name == strings.ToUpper(name) {
			want = strings.ReplaceAll(want, name+"@", fmt.Sprint(i+1))
		}
	}
	return want
}

// opensInMemoryViz opens the files with PyTorch's own viewer as a script, which does not need to import
// PyTorch.
func opensInMemoryViz(t *testing.T, python string, files []string) {
	t.Helper()
	found, err := exec.Command(python, "-c", "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])").Output()
	testenv.Check(t, err)
	viewer := filepath.Join(strings.TrimSpace(string(found)), "cuda", "_memory_viz.py")
	for _, file := range files {
		for _, plot := range []string{"trace_plot", "segment_plot"} {
			cmd := exec.Command(python, viewer, plot, file, "-o", filepath.Join(t.TempDir(), "out.html"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("memory_viz %s: %v\n%s", plot, err, tail(out, 10))
			}
		}
	}
}
