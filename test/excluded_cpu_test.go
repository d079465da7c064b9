package test

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

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
	cmd := osexec.CommandContext(t.Context(), binary(t), "--run-dir", "run", "--device-memory", ceiling, python, "states.py")
	cmd.Dir, cmd.Env = dir, append(insideEnv(), onCPU...)
	out, err := cmd.CombinedOutput()
	v := verdictOf(t, filepath.Join(dir, "run"))
	if v.Code != strategy.CodeExhausted || len(v.Attempts) != 1 || !strings.HasSuffix(v.Reason, "; no allowed plan fits") || len(v.Next) != 1 {
		t.Fatalf("%v after %d attempts under %s: %s, %v\n%s", err, len(v.Attempts), ceiling, v.Reason, v.Next, tail(out, 20))
	}
	raise := v.Next[0]
	const held = "which is predicted to be enough: held between steps: parameters 160 + gradients 160 + optimizer states 320 + PyTorch and data, before the model, "
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
	cmd := osexec.CommandContext(t.Context(), binary(t), "--run-dir", "run", "--no-in-place", "--never", bars, "--device-memory", ceiling, python, "noaccum.py", "-b", "1024")
	cmd.Dir, cmd.Env = dir, append(insideEnv(), onCPU...)
	said, _ := cmd.CombinedOutput() // exit code 12
	v := verdictOf(t, filepath.Join(dir, "run"))
	kinds := map[strategy.NextKind]int{}
	for _, step := range v.Next {
		kinds[step.Kind]++
		shell := osexec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(step.Command, "gpurun ", binary(t)+" "))
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
	if err != nil {
		t.Fatal(err)
	}
	follows := strings.ReplaceAll(string(text), "(64, 160", "(2 * args.batch_size, 160")
	if err := os.WriteFile(script, []byte(follows), 0o644); err != nil || strings.Count(follows, "2 * args.batch_size") != 2 {
		t.Fatal(err, follows)
	}
	var before, peak int
	if _, err := fmt.Sscanf(lastLine(runLine(t, dir, python, "arguments.py"), "data "), "data %d %d", &before, &peak); err != nil {
		t.Fatal(err)
	}
	cmd := osexec.CommandContext(t.Context(), binary(t), "--run-dir", "run", "--no-in-place", "--never", "checkpointing,split,loss-parts",
		"--device-memory", fmt.Sprintf("%dMiB", before+(peak-before)*3/4), python, "arguments.py")
	cmd.Dir, cmd.Env = dir, append(insideEnv(), onCPU...)
	said, _ := cmd.CombinedOutput() // exit code 12
	const why = "the number of samples follows from the micro batch: the data set has "
	v := verdictOf(t, filepath.Join(dir, "run"))
	if v.Outcome != strategy.Exhausted || len(v.Attempts) != 2 || !strings.Contains(v.Reason, why) || !strings.Contains(string(said), why) || strings.Contains(string(said), "\nloss ") {
		t.Errorf("%s after %d attempts: %s\n%s", v.Outcome, len(v.Attempts), v.Reason, said)
	}
}
