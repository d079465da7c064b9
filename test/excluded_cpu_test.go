package test

import (
	"fmt"
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
	if v.Code != strategy.CodeExhausted || len(v.Attempts) != 1 || !strings.Contains(v.Reason, "no allowed plan fits: held between steps: parameters 160 + gradients 160 + optimizer states 320 + before the model ") {
		t.Fatalf("%v after %d attempts under %s: %s\n%s", err, len(v.Attempts), ceiling, v.Reason, tail(out, 20))
	}
	enough := regexp.MustCompile(`; ([\d.]+) (MiB|GiB) for each rank would do`).FindStringSubmatch(v.Reason)
	if enough == nil {
		t.Fatalf("nothing is said to do: %s", v.Reason)
	}
	size, _ := strconv.ParseFloat(enough[1], 64)
	if enough[2] == "GiB" {
		size *= 1024
	}
	runLine(t, dir, binary(t), "--run-dir", "again", "--no-in-place", "--device-memory", fmt.Sprintf("%.0fMiB", size), python, "states.py")
	if v := verdictOf(t, filepath.Join(dir, "again")); v.Outcome != strategy.Trained || len(v.Attempts) != 1 {
		t.Errorf("with %s: %s after %d attempts: %s", enough[0], v.Outcome, len(v.Attempts), v.Reason)
	}
}
