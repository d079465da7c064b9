package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// A rank of real PyTorch that never reaches the collective is named with its stack, and the same plan runs
// again and trains.
func TestAStall(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	dir := copyOf(t, filepath.Join("testdata", "stall"))
	cmd := exec.CommandContext(t.Context(), binary(t), "--run-dir", "run", "train.toml")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+python, "CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(out, 60))
	}
	v := verdictOf(t, filepath.Join(dir, "run"))
	if v.Outcome != strategy.Trained || len(v.Attempts) != 2 || v.Attempts[0].Cause != cause.Hang || *v.Attempts[0].Rank != 1 {
		t.Fatalf("%s after %d attempts: %s\n%s", v.Outcome, len(v.Attempts), v.Reason, tail(out, 60))
	}
	const want = `^rank 1 at train\.py:13 in fetch; rank 0 waiting at train\.py:2\d in <module>, in \w+$`
	if got := v.Attempts[0].Error; !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("%q, want %s", got, want)
	}
	if !strings.Contains(string(out), "attempt 0: the job hung on rank 1 (rank 1 at train.py:13 in fetch; ") {
		t.Errorf("not said:\n%s", tail(out, 60))
	}
}

// Ranks of real PyTorch that use the numbers of Slurm's tasks are one training. If each trains by itself,
// gpurun reports that when it happens, and at the end.
func TestRanksByTaskNumbers(t *testing.T) {
	t.Parallel()
	python := testenv.Torch(t)
	const step = "SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1 SLURMD_NODENAME=n1 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n1 SLURM_STEP_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0"
	for _, test := range []struct {
		args  []string
		alone int
	}{{nil, 0}, {[]string{"alone"}, 2}} {
		dir := copyOf(t, filepath.Join("testdata", "tasks"))
		cmd := exec.Command(binary(t), append([]string{"--run-dir", "run", "--python", python, "--nproc-per-node", "2", "train.py"}, test.args...)...)
		cmd.Dir, cmd.Env = dir, append(cmd.Environ(), append(strings.Fields(step), "XDG_STATE_HOME="+dir)...)
		said, err := cmd.CombinedOutput()
		text := string(said)
		if err != nil || (test.alone == 0) != (strings.Contains(text, "rank 0 of 2\n") && strings.Contains(text, "rank 1 of 2\n")) {
			t.Errorf("%q: %v\n%s", test.args, err, text)
		}
		for _, warning := range []string{"warning: none of the 2 ranks has joined a process group", "warning: trained 2 times rather than once"} {
			if strings.Contains(text, warning) != (test.alone > 0) {
				t.Errorf("%q: %q in\n%s", test.args, warning, text)
			}
		}
		v := verdictOf(t, filepath.Join(dir, "run"))
		if last := v.Attempts[len(v.Attempts)-1]; last.Alone != test.alone {
			t.Errorf("%q: %+v", test.args, last)
		}
	}
}

// plan --start runs the job until its first batch has reached the model, ends it as Ctrl-C does, leaves no run directory,
// and shows what the process said. plan alone runs no code of the job.
func TestPlanStartsTheJobOnRequest(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	dir := t.TempDir()
	const script = `
import argparse, pathlib, time
import torch
pathlib.Path("imported").write_text("")
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--test-batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=.1)
data = torch.utils.data.TensorDataset(torch.randn(4000000, 4))
try:
    for x, in torch.utils.data.DataLoader(data, batch_size=args.batch_size * 2):
        net(x).mean().backward()
        optimizer.step()
        pathlib.Path("stepped").write_text("")
    pathlib.Path("trained").write_text("")
except KeyboardInterrupt:
    pathlib.Path("interrupted").write_text("")
    raise
`
	testenv.Check(t, os.WriteFile(filepath.Join(dir, "train.py"), []byte(script), 0o600))
	plan := func(words ...string) (text string, shown struct {
		Reported  strategy.Plan
		Confirmed strategy.Arguments
		Likely    map[strategy.Knob][]strategy.Likely
	}) {
		cmd := exec.CommandContext(t.Context(), binary(t), append(append([]string{"plan", "--json"}, words...), python, "train.py", "--batch-size", "16")...)
		cmd.Dir, cmd.Env = dir, append(insideEnv(), append(onCPU, "XDG_STATE_HOME="+filepath.Join(dir, "state"), "TMPDIR="+dir)...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &shown)
		}
		if err != nil {
			t.Fatalf("plan %q: %v\n%s%s", words, err, out, errs.String())
		}
		return errs.String(), shown
	}
	is := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	_, before := plan()
	if is("imported") || len(before.Confirmed) > 0 || len(before.Reported) > 0 || before.Likely[strategy.MicroBatchSize] == nil {
		t.Errorf("without --start: imported %t, %+v", is("imported"), before)
	}
	said, after := plan("--start")
	if !is("imported") || is("trained") || !is("interrupted") || is(".gpurun") {
		t.Errorf("imported %t, trained %t, interrupted %t, run directory %t", is("imported"), is("trained"), is("interrupted"), is(".gpurun"))
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "gpurun-start-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	// How many steps the job makes before its end differs, and so does what else is confirmed.
	if _, confirmed := after.Confirmed[strategy.MicroBatchSize]; after.Reported[strategy.MicroBatchSize] != "32" || confirmed || !strings.Contains(said, "the job starts") {
		t.Errorf("the loader has 32 samples, and --batch-size is 16: %+v\n%s", after, said)
	}
	text := strings.ReplaceAll(script, "args.batch_size * 2", "args.batch_size")
	testenv.Check(t, os.WriteFile(filepath.Join(dir, "train.py"), []byte(text), 0o600))
	if _, after := plan("--start"); after.Reported[strategy.MicroBatchSize] != "16" || after.Confirmed[strategy.MicroBatchSize].Name != "--batch-size" {
		t.Errorf("the loader has as many samples as --batch-size: %+v", after)
	}
}

// A job whose states alone are more than the ceiling ends after one attempt, with the arithmetic. It trains with the
// memory that the message says would do.
func TestJobThatCannotFitEndsAfterOneAttempt(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	dir := copyOf(t, filepath.Join("testdata", "cpu"))
	var before, peak int
	if _, err := fmt.Sscanf(lastLine(runLine(t, dir, python, "states.py"), "data "), "data %d %d", &before, &peak); err != nil {
		t.Fatal(err)
	}
	ceiling := fmt.Sprintf("%dMiB", before+(peak-before)/2)
	cmd := exec.CommandContext(t.Context(), binary(t), "--run-dir", "run", "--device-memory", ceiling, python, "states.py")
	cmd.Dir, cmd.Env = dir, append(insideEnv(), onCPU...)
	out, err := cmd.CombinedOutput()
	v := verdictOf(t, filepath.Join(dir, "run"))
	if v.Code != strategy.CodeExhausted || len(v.Attempts) != 1 || !strings.HasSuffix(v.Reason, "; no allowed plan fits") || len(v.Next) != 1 {
		t.Fatalf("%v after %d attempts under %s: %s, %v\n%s", err, len(v.Attempts), ceiling, v.Reason, v.Next, tail(out, 20))
	}
	raise := v.Next[0]
	const held = "which is predicted to be enough: held between steps: parameters 80 + gradients 80 + optimizer states 160 + PyTorch and data, before the model, "
	if !strings.Contains(raise.Reason, held) || strings.Contains(string(out[strings.Index(string(out), "gpurun: error: "):]), "batch") {
		t.Errorf("the step is %v\n%s", raise, tail(out, 20))
	}
	words := strings.Fields(raise.Command)
	if raise.Kind != strategy.NextPolicy || len(words) < 4 || words[0] != "gpurun" || words[1] != "--device-memory" {
		t.Fatalf("the first step is %v", raise)
	}
	runLine(t, dir, binary(t), append([]string{"--run-dir", "again", "--no-in-place"}, words[1:]...)...)
	if v := verdictOf(t, filepath.Join(dir, "again")); v.Outcome != strategy.Trained || len(v.Attempts) != 1 {
		t.Errorf("with %s: %s after %d attempts: %s", words[2], v.Outcome, len(v.Attempts), v.Reason)
	}
}

// A larger micro batch that is said to fit, fits: the job is run again with it, under the same ceiling.
func TestPrintedAdviceFits(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	dir := copyOf(t, filepath.Join("testdata", "cpu"))
	var before, peak int
	if _, err := fmt.Sscanf(lastLine(runLine(t, dir, python, "arguments.py"), "data "), "data %d %d", &before, &peak); err != nil {
		t.Fatal(err)
	}
	for i, share := range []float64{.75, 1.2} { // of the memory of a step with 32 samples
		if !oneIn(2, i) {
			continue
		}
		ceiling := fmt.Sprintf("%dMiB", before+int(share*float64(peak-before)))
		_, said := runBoth(t, dir, binary(t), "--run-dir", fmt.Sprint("run", i), "--device-memory", ceiling, python, "arguments.py", "--batch-size", "4", "--accum", "8")
		larger := regexp.MustCompile(`; micro batch (\d+) fits`).FindStringSubmatch(said)
		if larger == nil {
			t.Errorf("no larger micro batch is said to fit %s:\n%s", ceiling, said)
			continue
		}
		micro, _ := strconv.Atoi(larger[1])
		runLine(t, dir, binary(t), "--run-dir", fmt.Sprint("again", i), "--mode", "off", "--no-in-place", "--device-memory", ceiling,
			python, "arguments.py", "--batch-size", larger[1], "--accum", fmt.Sprint(32/micro))
		if v := verdictOf(t, filepath.Join(dir, fmt.Sprint("again", i))); v.Outcome != strategy.Trained || len(v.Attempts) != 1 {
			t.Errorf("micro batch %d under %s: %s: %s", micro, ceiling, v.Outcome, v.Reason)
		}
	}
}

// Each next step of a run that the policy ended, pasted as it is printed, trains.
func TestPrintedStepsTrain(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	dir := copyOf(t, filepath.Join("testdata", "cpu"))
	var before, peak int
	if _, err := fmt.Sscanf(lastLine(runLine(t, dir, python, "noaccum.py"), "data "), "data %d %d", &before, &peak); err != nil {
		t.Fatal(err)
	}
	ceiling := fmt.Sprintf("%dMiB", before+(peak-before)*19/20)
	const bars = "checkpointing,split,loss-parts"
	cmd := exec.CommandContext(t.Context(), binary(t), "--run-dir", "run", "--no-in-place", "--never", bars, "--device-memory", ceiling, python, "noaccum.py", "-b", "1024")
	cmd.Dir, cmd.Env = dir, append(insideEnv(), onCPU...)
	said, _ := cmd.CombinedOutput() // exit code 12
	v := verdictOf(t, filepath.Join(dir, "run"))
	kinds := map[strategy.NextKind]int{}
	for _, step := range v.Next {
		kinds[step.Kind]++
		shell := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(step.Command, "gpurun ", binary(t)+" "))
		shell.Dir, shell.Env = dir, append(insideEnv(), onCPU...)
		if out, err := shell.CombinedOutput(); err != nil || len(step.Peak) != 2 {
			t.Errorf("%s, predicted %v: %v\n%s", step.Command, step.Peak, err, tail(out, 20))
		}
	}
	// The run step changes -b, which only its name suggested, and whose value the process used.
	if kinds[strategy.NextPolicy] == 0 || kinds[strategy.NextRun] == 0 || strings.Count(string(said), "gpurun: next: ") != min(len(v.Next), 2) {
		t.Errorf("%v\n%s", kinds, said)
	}
}

// A job whose number of samples follows from its micro batch would make fewer steps with a smaller one. Such an
// attempt is stopped before its first step.
func TestSamplesThatFollowFromTheBatch(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	dir := copyOf(t, filepath.Join("testdata", "cpu"))
	script := filepath.Join(dir, "arguments.py")
	text, err := os.ReadFile(script)
	testenv.Check(t, err)
	follows := strings.ReplaceAll(string(text), "(64, 80", "(2 * args.batch_size, 80")
	if err := os.WriteFile(script, []byte(follows), 0o644); err != nil || strings.Count(follows, "2 * args.batch_size") != 2 {
		t.Fatal(err, follows)
	}
	var before, peak int
	if _, err := fmt.Sscanf(lastLine(runLine(t, dir, python, "arguments.py"), "data "), "data %d %d", &before, &peak); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary(t), "--run-dir", "run", "--no-in-place", "--never", "checkpointing,split,loss-parts",
		"--device-memory", fmt.Sprintf("%dMiB", before+(peak-before)*3/4), python, "arguments.py")
	cmd.Dir, cmd.Env = dir, append(insideEnv(), onCPU...)
	said, _ := cmd.CombinedOutput() // exit code 12
	const why = "the number of samples follows from the micro batch: the data set has "
	v := verdictOf(t, filepath.Join(dir, "run"))
	if v.Outcome != strategy.Exhausted || len(v.Attempts) != 2 || !strings.Contains(v.Reason, why) || !strings.Contains(string(said), why) || strings.Contains(string(said), "\nloss ") {
		t.Errorf("%s after %d attempts: %s\n%s", v.Outcome, len(v.Attempts), v.Reason, said)
	}
}

var digestOfRun = regexp.MustCompile(`"digest":"[^"]*"`)

// A run that an older gpurun began continues with its plan, and all verbs read it. Keys that came later are absent
// from its files, and one key there is unknown.
func TestOlderRunsContinue(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "older_run.txtar"))
	testenv.Check(t, err)
	dir := t.TempDir()
	testenv.Check(t, txtar.Write(archive, dir))
	gpurun := func(env string, words ...string) string {
		cmd := exec.Command(binary(t), words...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(dir, "state"), env)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("gpurun %s: %v\n%s", strings.Join(words, " "), err, out)
		}
		return string(out)
	}
	// The digest of a job has its folder, which is another one than that of the recorded run.
	gpurun("FITS=8", "--run-dir", "fresh", "train.toml")
	fresh, err := os.ReadFile(filepath.Join(dir, "fresh", "journal.jsonl"))
	testenv.Check(t, err)
	journal := filepath.Join(dir, "run", "journal.jsonl")
	text, err := os.ReadFile(journal)
	testenv.Check(t, err)
	testenv.Check(t, os.WriteFile(journal, digestOfRun.ReplaceAll(text, digestOfRun.Find(fresh)), 0o600))

	for verb, want := range map[string]string{"explain": "micro batch 8→4", "logs": "rank 0 trains with 4 x 2", "report": "report.html"} {
		if out := gpurun("", verb, "run"); !strings.Contains(out, want) {
			t.Errorf("%s: %s", verb, out)
		}
	}
	out := gpurun("", "--run-dir", "run", "train.toml")
	if v := readVerdict(t, filepath.Join(dir, "run")); !strings.Contains(out, "resuming the run: attempt 1 was interrupted") || v.Code != 0 || len(v.Attempts) != 3 || v.Attempts[2].Plan[strategy.MicroBatchSize] != "4" {
		t.Errorf("%+v\n%s", v, out)
	}
}
