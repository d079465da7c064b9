package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// TestQuickstart is the main job, end to end, with the real PyTorch, the real
// example and the real binary: out of memory, then trained by a plan that was predicted to
// fit.
func TestQuickstart(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	job := copyOf(t, filepath.Join("..", "examples", "quickstart"))
	before := contents(t, job)
	cmd := exec.Command("sh", "-c", binary(t)+strings.TrimPrefix(quickstartCommand(t), "gpurun"))
	cmd.Dir, cmd.Env = job, append(os.Environ(), "PYTHON_EXEC="+python)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	version, err := exec.Command(python, "-c", "import torch; print(torch.__version__)").Output()
	testenv.Check(t, err)
	if strings.HasPrefix(string(version), "1.13") { // others need more memory, and get another plan
		checkREADME(t, out.String())
	}
	runs, err := filepath.Glob(filepath.Join(job, ".gpurun", "*", "*"))
	if err != nil || len(runs) != 1 {
		t.Fatalf("runs %v, %v", runs, err)
	}
	run := runs[0]
	checkVerdict(t, run)
	checkAllocatorsOwnWords(t, run)
	checkLoss(t, out.String())
	for name, text := range contents(t, job) {
		if was, there := before[name]; there && was != text {
			t.Errorf("%s was changed", name)
		}
	}
}

// TestQuickstartLosses runs the command of the example's page as printed, and with another division of the global
// batch. Both print the losses that the page shows.
func TestQuickstartLosses(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	blocks, err := testenv.Blocks(testenv.Page(t, "examples/quickstart/README.md"))
	testenv.Check(t, err)
	at := slices.IndexFunc(blocks, func(b testenv.Block) bool { return b.Lang == "console" })
	command, shown, _ := strings.Cut(blocks[max(at, 0)].Text, "\n")
	whole := "--micro-batch-size 8 --accumulation 1"
	if !strings.HasPrefix(command, "$ gpurun ") || !strings.Contains(command, whole) {
		t.Fatalf("the page shows %q", command)
	}
	for _, division := range []string{whole, "--micro-batch-size 4 --accumulation 2 --checkpointing full"} {
		line := binary(t) + strings.TrimPrefix(strings.Replace(command, whole, division, 1), "$ gpurun")
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir, cmd.Env = copyOf(t, filepath.Join("..", "examples", "quickstart")), append(os.Environ(), "PYTHON_EXEC="+python, "CUDA_VISIBLE_DEVICES=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		if err := testenv.Shown(shown, string(out), false); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// quickstartCommand returns the command that the pages show for the quickstart: make quickstart runs the same, and each
// page that says that this test runs a command has one of the two.
func quickstartCommand(t *testing.T) string {
	t.Helper()
	const command, target = "gpurun train.toml", "make quickstart"
	for _, page := range []string{"docs/quickstart.md", "examples/quickstart/README.md"} {
		blocks, err := testenv.Blocks(testenv.Page(t, page))
		testenv.Check(t, err)
		for _, b := range blocks {
			text := strings.TrimSpace(b.Text)
			if by, _ := b.Mark("run by"); by == "TestQuickstart" && text != command && text != target {
				t.Errorf("%s: %s", page, text)
			}
		}
	}
	dry := exec.Command("sh", "-c", target+" --dry-run")
	dry.Dir = testenv.Root(t)
	out, err := dry.CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "PYTHON_EXEC=$python bin/gpurun examples/quickstart/train.toml") {
		t.Errorf("%s: %v\n%s", target, err, out)
	}
	return command
}

// checkREADME checks that README.md begins with the quickstart's output.
func checkREADME(t *testing.T, out string) {
	t.Helper()
	blocks, err := testenv.Blocks(testenv.Page(t, "README.md"))
	testenv.Check(t, err)
	command, shown, _ := strings.Cut(blocks[0].Text, "\n")
	if command != "$ gpurun train.toml" {
		t.Errorf("README.md begins with %q", command)
	}
	if err := testenv.Shown(shown, out, true); err != nil {
		t.Errorf("README.md: %v", err)
	}
}

// checkVerdict checks that attempts ran out of memory, the first followed by a predicted plan, and that one
// trained with about its predicted peak.
func checkVerdict(t *testing.T, run string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(run, "verdict.json"))
	testenv.Check(t, err)
	var v launcher.Verdict
	testenv.Check(t, json.Unmarshal(text, &v))
	if v.Outcome != strategy.Trained || v.Code != 0 || len(v.Attempts) < 2 {
		t.Fatalf("outcome %s, code %d after %d attempts", v.Outcome, v.Code, len(v.Attempts))
	}
	for i, a := range v.Attempts[:len(v.Attempts)-1] {
		if a.N != i || a.Cause != cause.HostOOM || a.Rank == nil || a.Seconds <= 0 || len(a.Changed) == 0 {
			t.Errorf("attempt %d: %+v", i, a)
		}
		if a.Phase != cause.Forward && a.Phase != cause.Backward {
			t.Errorf("attempt %d: phase %s", i, a.Phase)
		}
	}
	if d := v.Attempts[0]; d.Peak <= 0 || len(d.Remedies) == 0 || len(d.Outvoted) == 0 {
		t.Errorf("the first decision: peak %d, rungs %v, outvoted %v", d.Peak, d.Remedies, d.Outvoted)
	}
	const off = 1.25 // on a CPU the process's memory is measured
	if end := v.Attempts[len(v.Attempts)-1]; len(end.Predicted) != 2 || float64(end.Peak) > off*float64(end.Predicted[1]) || float64(end.Peak)*off < float64(end.Predicted[0]) {
		t.Errorf("predicted %v, measured %d", end.Predicted, end.Peak)
	}
	first, last := v.Attempts[0].Plan, v.Attempts[len(v.Attempts)-1].Plan
	if a, b := samples(first), samples(last); a != b {
		t.Errorf("samples a step and rank: %d, then %d", a, b)
	}
	if end := v.Attempts[len(v.Attempts)-1]; end.Cause != cause.None {
		t.Errorf("the last attempt ended with %s", end.Cause)
	}
}

func samples(p strategy.Plan) int {
	micro, _ := p.Number(strategy.MicroBatchSize)
	accumulation, _ := p.Number(strategy.GradientAccumulationSteps)
	return micro * accumulation
}

// checkAllocatorsOwnWords checks that the allocator's own error is reported: nothing is simulated.
func checkAllocatorsOwnWords(t *testing.T, run string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(run, "attempt-0", "rank*", "stderr.log"))
	if err != nil || len(logs) != 2 {
		t.Fatalf("logs %v, %v", logs, err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		testenv.Check(t, err)
		if bytes.Contains(text, []byte("DefaultCPUAllocator: can't allocate memory: you tried to allocate")) {
			return
		}
	}
	t.Error("no rank's log of attempt 0 has the allocator's message")
}

var lossLine = regexp.MustCompile(`step (\d+) loss ([0-9.]+)`)

func checkLoss(t *testing.T, out string) {
	t.Helper()
	lines := lossLine.FindAllStringSubmatch(out, -1)
	if len(lines) < 2 {
		t.Fatalf("no losses in %q", out)
	}
	first, err := strconv.ParseFloat(lines[0][2], 64)
	last, err2 := strconv.ParseFloat(lines[len(lines)-1][2], 64)
	if err != nil || err2 != nil || last >= first {
		t.Errorf("loss %v → %v (%v, %v)", first, last, err, err2)
	}
}

// build makes the binary that users have: the test's own is slowed by -race.
func build(t *testing.T) string {
	t.Helper()
	path, err := built()
	testenv.Check(t, err)
	return path
}

// built is one gpurun for all tests, in the folder that TestMain removes.
var built = sync.OnceValues(func() (string, error) {
	path := filepath.Join(shared, "bin", "gpurun")
	if out, err := exec.Command("go", "build", "-o", path, "../cmd/gpurun").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// copyOf copies a folder's files, so that a test leaves nothing in the tree.
func copyOf(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	for name, text := range contents(t, from) {
		testenv.Check(t, os.WriteFile(filepath.Join(to, name), []byte(text), 0o644))
	}
	return to
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	testenv.Check(t, err)
	files := map[string]string{}
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		testenv.Check(t, err)
		files[e.Name()] = string(text)
	}
	return files
}
