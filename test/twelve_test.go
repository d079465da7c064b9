package test

import (
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
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

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
		if err := os.Symlink(python, filepath.Join(bin, "python")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(binary(t), filepath.Join(bin, "gpurun")); err != nil {
		t.Fatal(err)
	}
	folder = filepath.Join("testdata", "twelve", folder)
	command, err := os.ReadFile(filepath.Join(folder, "command"))
	if err != nil {
		t.Fatal(err)
	}
	return foreignJob{folder, strings.Fields(string(command)), append(insideEnv(), "CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS=1",
		"PATH="+strings.Join([]string{bin, path, os.Getenv("PATH")}, string(filepath.ListSeparator)))}
}

// pythonWith is an interpreter that has modules: the usual one, or one of GPURUN_TEST_TRANSFORMERS.
func pythonWith(t *testing.T, modules string) string {
	t.Helper()
	for _, path := range append([]string{testenv.Torch(t)}, filepath.SplitList(os.Getenv("GPURUN_TEST_TRANSFORMERS"))...) {
		cmd := osexec.CommandContext(t.Context(), path, append([]string{"-c", "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"}, strings.Fields(modules)...)...)
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
	if err := os.CopyFS(r.dir, os.DirFS(j.folder)); err != nil {
		t.Fatal(err)
	}
	r.run(t, append([]string{"gpurun", "--device-memory", ceiling}, j.words...)...)
	return r
}

// run runs a command line and reads the newest run.
func (r *foreignRun) run(t *testing.T, words ...string) {
	t.Helper()
	cmd := osexec.CommandContext(t.Context(), "/usr/bin/env", words...) // which finds the program in the new PATH
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
