package test

import (
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

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// Jobs of different makes run out of memory, and nothing in place is allowed. Where the batch is an argument that its name
// suggests, the job is relaunched with half of it, once the process has confirmed it, and prints the losses of the
// untouched job. No job trains with an argument that does something else.
func TestBatchesOfDifferentMake(t *testing.T) {
	for _, test := range []struct {
		script, modules string
		lab             bool
		ranks           string
		by              string // the argument that changed the micro batch; empty: none
		attempts        int
		says            string
	}{
		{script: "argparse_", by: "--batch-size", attempts: 2, lab: true}, // TestJobsWithoutASetting has one
		{script: "config_file", modules: "yaml", by: "train.batch_size of conf.yaml", attempts: 2, lab: true},
		{script: "constants_", attempts: 1, lab: true},
		{script: "functions", by: "--per-gpu-batch", attempts: 2, lab: true},
		{script: "iterable", by: "--batch-size", attempts: 2, lab: true},
		{script: "two_names", by: "--batch-size", attempts: 3, says: "--train-batch-size does not set micro batch 16, the process uses 32: all ranks are stopped before their first step"},
		{script: "unused", attempts: 2, says: "--accum does not set accumulation 2, the process uses 1: all ranks are stopped before their first step", lab: true},
		{script: "undivided", attempts: 2, says: "the gradients would not have the scale that they had"},
		{script: "gan", by: "--batch-size", attempts: 2, lab: true},
		{script: "ddp", ranks: "2", by: "--batch-size", attempts: 2, lab: true},
		{script: "click_", modules: "click", by: "--batch-size", attempts: 2, lab: true},
		{script: "typer_", modules: "typer", by: "--bs", attempts: 2, lab: true},
		{script: "fire_", modules: "fire", by: "--batch_size", attempts: 2, lab: true},
		{script: "hydra_", modules: "hydra", by: "train.batch_size", attempts: 2, lab: true},
		{script: "accelerate_", modules: "accelerate", by: "--batch-size", attempts: 2, lab: true},
		{script: "lightning_", modules: "lightning", by: "--batch-size", attempts: 2, lab: true},
		{script: "trainer", modules: "transformers accelerate", by: "the recipe", attempts: 2, lab: true},
	} {
		t.Run(test.script, func(t *testing.T) {
			if test.lab {
				lab(t)
			}
			t.Parallel()
			python := pythonWith(t, "torch "+test.modules)
			dir := copyOf(t, filepath.Join("testdata", "makes"))
			line := []string{test.script + ".py"}
			if test.ranks != "" {
				line = append([]string{"-m", "torch.distributed.run", "--nproc-per-node", test.ranks}, line...)
			}
			untouched := runLine(t, dir, python, line...)
			var before, peak int
			if _, err := fmt.Sscanf(lastLine(untouched, "data "), "data %d %d", &before, &peak); err != nil {
				t.Fatalf("%v in %s", err, untouched)
			}
			words := []string{"--run-dir", "run", "--no-in-place", "--never", "checkpointing,split,loss-parts,offload-activations", "--device-memory", fmt.Sprintf("%dMiB", before+(peak-before)*3/4), python}
			cmd := exec.CommandContext(t.Context(), binary(t), append(words, line...)...)
			cmd.Dir, cmd.Env = dir, append(insideEnv(), append(onCPU, "XDG_STATE_HOME="+t.TempDir())...)
			said, _ := cmd.CombinedOutput() // those without an argument end with 12
			v := verdictOf(t, filepath.Join(dir, "run"))
			want := strategy.Exhausted
			if test.by != "" {
				want = strategy.Trained
			}
			if v.Outcome != want || len(v.Attempts) != test.attempts || !strings.Contains(string(said), test.says) {
				t.Fatalf("%s after %d attempts, want %s after %d: %s\n%s", v.Outcome, len(v.Attempts), want, test.attempts, v.Reason, tail(said, 30))
			}
			if test.by == "" {
				if got := losses(string(said)); len(got) > 0 {
					t.Errorf("it has trained: %q", got)
				}
				return
			}
			plain, again := losses(untouched), losses(string(said))
			slices.Sort(plain) // of several ranks
			slices.Sort(again)
			if diff := cmp.Diff(plain, again); diff != "" || v.Attempts[0].Changed[strategy.MicroBatchSize][1] == "" {
				t.Errorf("changed %s; losses (-untouched +relaunched):\n%s", v.Attempts[0].Changed, diff)
			}
			if journal, err := os.ReadFile(filepath.Join(dir, "run", "journal.jsonl")); err != nil || test.by != "the recipe" && !strings.Contains(string(journal), fmt.Sprintf(`"micro_batch_size":{"name":%q`, test.by)) {
				t.Errorf("%s did not change it: %v", test.by, err)
			}
		})
	}
}

// An answer is how a job came to train.
type answer string

const (
	inPlace    answer = "in place"
	relaunched answer = "relaunched"
	notRescued answer = "no"
)

// answers are those at each of leftShares.
type answers [len(leftShares)]answer

// leftShares are the parts of a step's memory that the ceilings of TestScriptsOfDifferentMake leave.
var leftShares = [2]float64{.85, .6}

// scriptsOfDifferentMake are the folders of testdata/twelve, which were written without knowledge of gpurun. The
// table of docs/rescues.md shows the same.
var scriptsOfDifferentMake = []struct {
	folder  string
	modules string // that the interpreter must have
	want    answers
}{
	{"01-resnet-constants", "torch", answers{inPlace, notRescued}},
	{"02-mixer-argparse", "torch", answers{inPlace, inPlace}},
	{"03-bert-hf-trainer", "torch transformers accelerate", answers{inPlace, inPlace}},
	{"04-unet-lightning19", "torch pytorch_lightning", answers{inPlace, inPlace}},
	{"05-vit-lightning2", "torch lightning timm", answers{inPlace, inPlace}},
	{"06-gpt-accelerate", "torch transformers accelerate", answers{inPlace, inPlace}},
	{"07-lstm-hydra", "torch hydra", answers{inPlace, notRescued}},
	{"08-audio-ddp", "torch", answers{inPlace, inPlace}},
	{"09-dcgan", "torch", answers{relaunched, notRescued}},
	{"10-towers-slices", "torch", answers{inPlace, inPlace}},
	{"11-vae-notebook", "torch", answers{inPlace, inPlace}},
	{"12-varlen-transformer", "torch", answers{inPlace, inPlace}},
}

// Scripts of different make that do not fit under a ceiling train after one command,
// with the losses of the untouched job. This fails if one does not train that docs/rescues.md shows as rescued.
func TestScriptsOfDifferentMake(t *testing.T) {
	lab(t)
	for _, test := range scriptsOfDifferentMake {
		t.Run(test.folder, func(t *testing.T) {
			t.Parallel()
			j := newForeignJob(t, test.folder, test.modules)
			untouched := j.start(t, "untouched", "12GiB")
			for i, share := range leftShares {
				ceiling := untouched.ceiling(t, share)
				rescued := j.start(t, fmt.Sprint(share), ceiling)
				t.Logf("| %s | %s | %s |", test.folder, ceiling, rescued)
				if test.want[i] != notRescued {
					rescued.check(t, test.want[i], untouched)
				}
			}
		})
	}
}

// A foreignJob is a job of testdata/twelve.
type foreignJob struct {
	folder  string
	words   []string // its command
	environ []string
}

// newForeignJob finds an interpreter for a job.
func newForeignJob(t *testing.T, folder, modules string) foreignJob {
	t.Helper()
	bin := t.TempDir()
	python := pythonWith(t, modules)
	path := filepath.Dir(python)
	if _, err := os.Stat(filepath.Join(path, "python")); err != nil {
		path = bin
		testenv.Check(t, os.Symlink(python, filepath.Join(bin, "python")))
	}
	testenv.Check(t, os.Symlink(binary(t), filepath.Join(bin, "gpurun")))
	folder = filepath.Join("testdata", "twelve", folder)
	command, err := os.ReadFile(filepath.Join(folder, "command"))
	testenv.Check(t, err)
	return foreignJob{folder, strings.Fields(string(command)), append(insideEnv(), "CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS=1",
		"PATH="+strings.Join([]string{bin, path, os.Getenv("PATH")}, string(filepath.ListSeparator)))}
}

// pythonWith is an interpreter that has modules: the usual one, or one of GPURUN_TEST_TRANSFORMERS.
func pythonWith(t *testing.T, modules string) string {
	t.Helper()
	for _, path := range append([]string{testenv.Torch(t)}, filepath.SplitList(os.Getenv("GPURUN_TEST_TRANSFORMERS"))...) {
		cmd := exec.CommandContext(t.Context(), path, append([]string{"-c", "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"}, strings.Fields(modules)...)...)
		cmd.Dir = "/"
		if cmd.Run() == nil {
			return path
		}
	}
	t.Skipf("no interpreter of GPURUN_TEST_PYTHON and GPURUN_TEST_TRANSFORMERS has %s", modules)
	return ""
}

// A foreignRun is one run of a job.
type foreignRun struct {
	foreignJob
	dir     string // its copy of the job
	out     string
	verdict launcher.Verdict
	journal []byte
}

// start runs the job under gpurun, with nothing configured but a ceiling.
func (j foreignJob) start(t *testing.T, name, ceiling string) *foreignRun {
	t.Helper()
	r := &foreignRun{foreignJob: j, dir: filepath.Join(t.TempDir(), name)}
	r.environ = append(slices.Clone(j.environ), "XDG_STATE_HOME="+t.TempDir())
	testenv.Check(t, os.CopyFS(r.dir, os.DirFS(j.folder)))
	r.run(t, append([]string{"gpurun", "--device-memory", ceiling}, j.words...)...)
	return r
}

// run runs a command line and reads the newest run.
func (r *foreignRun) run(t *testing.T, words ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/usr/bin/env", words...) // which finds the program in the new PATH
	cmd.Dir, cmd.Env = r.dir, r.environ
	out, err := cmd.Output()
	var newest string
	var last int64
	runs, _ := filepath.Glob(filepath.Join(r.dir, ".gpurun", "*", "*", "verdict.json"))
	for _, file := range runs {
		if info, err := os.Stat(file); err == nil && info.ModTime().UnixNano() > last {
			newest, last = filepath.Dir(file), info.ModTime().UnixNano()
		}
	}
	if newest == "" {
		t.Fatalf("%q: %v, and no run: %s", words, err, out)
	}
	r.out, r.verdict = string(out), verdictOf(t, newest)
	if r.journal, err = os.ReadFile(filepath.Join(newest, "journal.jsonl")); err != nil {
		t.Fatal(err)
	}
}

var startBytes = regexp.MustCompile(`"start_bytes":(\d+)`)

// ceiling is a ceiling that leaves a share of the step's memory, on top of what the process holds before it.
func (r *foreignRun) ceiling(t *testing.T, share float64) string {
	t.Helper()
	found := startBytes.FindSubmatch(r.journal)
	if r.verdict.Outcome != strategy.Trained || len(found) == 0 || len(r.verdict.Attempts) != 1 {
		t.Fatalf("the untouched job: %s", r.verdict.Reason)
	}
	before, _ := strconv.ParseInt(string(found[1]), 10, 64)
	return fmt.Sprintf("%dMiB", (before+int64(share*float64(r.verdict.Attempts[0].Peak-before)))>>20)
}

// String is the row of the run in the table.
func (r *foreignRun) String() string {
	repeats, lost := 0, 0.
	for i, a := range r.verdict.Attempts {
		for _, again := range a.InPlace {
			repeats, lost = repeats+again.Times, lost+time.Duration(again.Seconds).Seconds()
		}
		if i < len(r.verdict.Attempts)-1 {
			lost += time.Duration(a.Seconds).Seconds()
		}
	}
	return fmt.Sprintf("%s | %d attempts | %d steps again | %.1f s lost | %s", r.verdict.Outcome, len(r.verdict.Attempts), repeats, lost, r.verdict.Reason)
}

// check checks that the job was rescued in a way, with the losses of the untouched job.
func (r *foreignRun) check(t *testing.T, want answer, untouched *foreignRun) {
	t.Helper()
	attempts := len(r.verdict.Attempts)
	if r.verdict.Outcome != strategy.Trained || want == inPlace && (attempts != 1 || len(r.verdict.Attempts[0].InPlace) == 0) || want == relaunched && attempts < 2 {
		t.Errorf("not rescued %s: %s", want, r)
		return
	}
	written, rescued := r.losses(untouched.out), r.losses(r.out)
	if len(written) == 0 || len(rescued) < len(written) {
		t.Errorf("%d losses, untouched %d", len(rescued), len(written))
		return
	}
	apart := 1e-4
	if inParts := func(a launcher.AttemptSummary) bool {
		return slices.ContainsFunc(a.InPlace, func(again strategy.InPlace) bool { return again.Remedy == strategy.RemedySplit })
	}; want == relaunched || slices.ContainsFunc(r.verdict.Attempts, inParts) {
		apart = 5e-3 // the parts of a batch have other random draws
	}
	for i, loss := range rescued[len(rescued)-len(written):] {
		if math.Abs(loss-written[i]) > apart*math.Max(1, math.Abs(written[i])) {
			t.Errorf("loss %d is %v, untouched %v", i, loss, written[i])
			return
		}
	}
}

var anyLoss = regexp.MustCompile(`(?i)loss(?:_[dg]|['"])?[:\s=]+'?(\d+\.\d+)`)

// losses are the losses that a job printed.
func (r *foreignRun) losses(out string) (all []float64) {
	for _, m := range anyLoss.FindAllStringSubmatch(out, -1) {
		loss, _ := strconv.ParseFloat(m[1], 64)
		all = append(all, loss)
	}
	return all
}

// A healthy job prints and leaves under gpurun what it does alone, in every mode. Without the hook, gpurun puts nothing
// into the job. launcher/hook tries all habits with the hook alone; GPURUN_HABITS=all does so here.
func TestHealthyJobIsUntouched(t *testing.T) {
	python := testenv.Torch(t)
	script, err := filepath.Abs(filepath.Join(testenv.Root(t), "launcher", "hook", "testdata", "habits", "run.py"))
	testenv.Check(t, err)
	habits := []string{"counters.Closure", "tensors.ActNormByAFlag", "effects.functions_of_torch_are_as_they_were"}
	if wanted := os.Getenv("GPURUN_HABITS"); wanted != "" {
		var all []struct{ Name string }
		testenv.Check(t, json.Unmarshal([]byte(runLine(t, t.TempDir(), python, script)), &all))
		habits = nil
		for _, h := range all {
			if wanted == "all" || strings.Contains(h.Name, wanted) {
				habits = append(habits, h.Name)
			}
		}
	}
	for i, habit := range habits {
		t.Run(habit, func(t *testing.T) {
			t.Parallel()
			want := runLine(t, t.TempDir(), python, script, habit)
			for _, mode := range []string{"defaults", "--mode off", "--no-in-place", "launch.hooks = false"} {
				if mode != "defaults" && i > 0 && os.Getenv("GPURUN_HABITS") == "" {
					continue
				}
				dir, run := t.TempDir(), filepath.Join(t.TempDir(), "run")
				words := []string{"--run-dir", run}
				switch mode {
				case "defaults":
				case "launch.hooks = false":
					words = append(words, filepath.Join(t.TempDir(), "train.toml"))
					text := fmt.Sprintf("[job]\nprogram = [%q, \"-B\", %q, %q]\nworkdir = %q\n[launch]\nhooks = false\n", python, script, habit, dir)
					testenv.Check(t, os.WriteFile(words[2], []byte(text), 0o600))
				default:
					words = append(words, strings.Fields(mode)...)
				}
				if mode != "launch.hooks = false" {
					words = append(words, python, "-B", script, habit)
				}
				got := runLine(t, dir, binary(t), words...)
				if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
					t.Errorf("with %s (-alone +under gpurun):\n%s", mode, diff)
				}
				loaded, err := filepath.Glob(filepath.Join(run, "attempt-0", "probe-*"))
				testenv.Check(t, err)
				if off := mode == "--mode off" || mode == "launch.hooks = false"; off && len(loaded) > 0 {
					t.Errorf("with %s the hook is installed: %q", mode, loaded)
				}
			}
		})
	}
}
