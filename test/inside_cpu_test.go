package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// onCPU are the variables that gpurun sets for a job under a ceiling on the CPU.
var onCPU = []string{"MALLOC_ARENA_MAX=1", "MALLOC_MMAP_THRESHOLD_=131072", "CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS=1"}

// runLine runs a command in a folder and returns what it writes to stdout.
func runLine(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	out, _ := runBoth(t, dir, program, args...)
	return out
}

// runBoth is runLine with what the program writes to stderr.
func runBoth(t *testing.T, dir, program string, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := osexec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), onCPU...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
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
	cmd := osexec.CommandContext(t.Context(), binary(t), "--run-dir", "run", "--no-in-place", "--never", "checkpointing", "--never", "split", "--device-memory", fmt.Sprintf("%dMiB", before+(peak-before)*3/4), "offsets.toml")
	cmd.Dir, cmd.Env = dir, append(insideEnv(), "PYTHON_EXEC="+python, "XDG_STATE_HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	v := verdictOf(t, filepath.Join(dir, "run"))
	if cmd.ProcessState.ExitCode() != 1 || v.Outcome != strategy.Failed || len(v.Attempts) < 2 ||
		!strings.Contains(v.Reason, "its optimizer made no step with micro batch 32→") {
		t.Errorf("%v, %s after %d attempts: %s\n%s", err, v.Outcome, len(v.Attempts), v.Reason, out)
	}
}
