package test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// TestSecondNight is the quickstart, night after night, with the real PyTorch: first it is rescued, then it
// starts with the right plan, and it runs as written if the model has grown or the user requests that.
func TestSecondNight(t *testing.T) {
	python := testenv.Torch(t)
	lab(t) // TestJobsWithoutASetting also has a second night
	t.Parallel()
	n := nights{job: copyOf(t, filepath.Join("..", "examples", "quickstart")), program: binary(t), state: t.TempDir(), python: python}
	n.edit(t, "train.toml", `"--steps", "6", "--save-every", "3"`, `"--steps", "2", "--save-every", "2"`)

	first, said := n.run(t, "first", 0)
	if last := first.Attempts[len(first.Attempts)-1]; len(first.Attempts) < 2 || first.Recalled != nil || strings.Contains(said, "starting with the plan") {
		t.Fatalf("the first night: %d attempts, the last with %s\n%s", len(first.Attempts), last.Plan, said)
	}
	written, fitted := first.Attempts[0].Plan, first.Attempts[len(first.Attempts)-1].Plan

	second, said := n.run(t, "second", 0)
	if len(second.Attempts) != 1 || !maps.Equal(second.Attempts[0].Plan, fitted) || second.Recalled == nil || len(second.Recalled.Changed) == 0 ||
		!strings.Contains(said, "gpurun: starting with the plan that fitted on ") || !strings.Contains(said, "; --fresh for the job as written\n") {
		t.Errorf("the second night: %d attempts, the first with %s, want %s\n%s", len(second.Attempts), second.Attempts[0].Plan, fitted, said)
	}
	if samples(second.Attempts[0].Plan) != samples(written) {
		t.Error("the second night had another global batch")
	}

	fresh, said := n.run(t, "fresh", strategy.CodeExhausted, "--fresh", "--max-attempts", "1")
	if !maps.Equal(fresh.Attempts[0].Plan, written) || fresh.Recalled != nil {
		t.Errorf("with --fresh: %s\n%s", fresh.Attempts[0].Plan, said)
	}
	n.edit(t, "train.py", `add("--layers", type=int, default=6)`, `add("--layers", type=int, default=7)`)
	grown, said := n.run(t, "grown", strategy.CodeExhausted, "--max-attempts", "1")
	if !maps.Equal(grown.Attempts[0].Plan, written) || grown.Recalled != nil || !strings.Contains(said, "the job's code, arguments or configuration have changed since") {
		t.Errorf("with a larger model: %s\n%s", grown.Attempts[0].Plan, said)
	}
}

// nights are runs of one job, with shared remembered plans.
type nights struct{ job, program, state, python string }

// edit replaces a text in a file of the job.
func (n nights) edit(t *testing.T, file, old, by string) {
	t.Helper()
	path := filepath.Join(n.job, file)
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), old) {
		t.Fatalf("%s has no %s (%v)", file, old, err)
	}
	testenv.Check(t, os.WriteFile(path, []byte(strings.Replace(string(text), old, by, 1)), 0o644))
}

// run runs the job in a new run directory, and returns its verdict and gpurun's output.
func (n nights) run(t *testing.T, name string, code int, flags ...string) (v launcher.Verdict, said string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	cmd := exec.Command(n.program, append(flags, "--run-dir", dir, filepath.Join(n.job, "train.toml"))...)
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+n.python, "XDG_STATE_HOME="+n.state)
	var errs strings.Builder
	cmd.Stderr = &errs
	_ = cmd.Run() // the exit code is checked below
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("%s: %v, want exit code %d\n%s", name, cmd.ProcessState, code, errs.String())
	}
	text, err := os.ReadFile(filepath.Join(dir, "verdict.json"))
	testenv.Check(t, err)
	if err := json.Unmarshal(text, &v); err != nil || len(v.Attempts) == 0 {
		t.Fatalf("%s: %s, %v", name, text, err)
	}
	return v, errs.String()
}

// A night is one start of the same job, with the plans remembered from earlier starts.
type night struct {
	name   string
	share  float64 // of the written plan's peak, the ceiling
	layers string  // another number of layers, empty for the same
	flags  []string
	check  func(t *testing.T, first, v told)
}

// TestSecondNightOnGPUs starts a job again and again with the same remembered plans: unchanged, with a larger
// and a smaller model, and under other ceilings. A ceiling simulates another card, except for its name.
func TestSecondNightOnGPUs(t *testing.T) {
	python, _, devices := rescueMachine(t)
	if freshFlag(t) == nil {
		t.Skip("this gpurun remembers nothing")
	}
	m := &match{contest: contests()[0], comparison: &comparison{python: python, cards: newCards(devices)}, visible: "0"}
	m.deadline, _ = t.Deadline()
	state := t.TempDir()
	written, ok := m.try(t, m.written) // with separate remembered plans
	if !ok {
		t.Fatal("the job as it is written does not train")
	}
	dir := m.folderWith(t, m.written)
	var first told
	for _, n := range gpuNights {
		t.Run(n.name, func(t *testing.T) {
			if n.layers != "" {
				layers := option(m.toml, "--layers", nil)
				layers.write(t, dir, "20", strategy.Value(n.layers))
				defer layers.write(t, dir, strategy.Value(n.layers), "20")
			}
			ceiling := strconv.FormatInt(int64(n.share*float64(written.peak))>>20, 10) + "MiB"
			v, said, err := m.timed(t, call{dir: dir, state: state, flags: append([]string{"--mode", "predict", "--no-in-place", "--device-memory", ceiling}, n.flags...)})
			if err != nil || v.Outcome != strategy.Trained {
				t.Fatalf("%s, %v\n%s", v.Outcome, err, said)
			}
			t.Logf("%d attempts under %s, %.1f s lost: %s then %s, %.2f GiB\n%s", len(v.Attempts), ceiling, v.lost().Seconds(), short(v.Attempts[0].Plan), short(v.last().Plan), gib(float64(v.last().Peak)), ownLines([]byte(said)))
			if len(first.Attempts) == 0 {
				first = v
			}
			n.check(t, first, v)
		})
	}
}

var gpuNights = []night{
	{name: "first", share: .5, check: func(t *testing.T, _, v told) {
		if len(v.Attempts) < 2 {
			t.Error("nothing ran out of memory")
		}
	}},
	{name: "second", share: .5, check: func(t *testing.T, first, v told) {
		if len(v.Attempts) != 1 || len(first.last().Plan.Changed(v.last().Plan)) > 0 {
			t.Errorf("%d attempts with %s, the first night ended with %s", len(v.Attempts), v.last().Plan, first.last().Plan)
		}
	}},
	{name: "fresh", share: .5, flags: []string{"--fresh"}, check: func(t *testing.T, first, v told) {
		if diff := first.Attempts[0].Plan.Changed(v.Attempts[0].Plan); len(diff) > 0 || len(v.Attempts) < 2 {
			t.Errorf("%d attempts, the first with %s: not the job as written (%s)", len(v.Attempts), v.Attempts[0].Plan, diff)
		}
	}},
	{name: "larger model", share: .5, layers: "26", check: func(t *testing.T, _, v told) { atMostTwo(t, v) }},
	{name: "smaller model", share: .5, layers: "4", check: untouched},
	{name: "smaller card", share: .38, check: func(t *testing.T, _, v told) { atMostTwo(t, v) }},
	{name: "larger card", share: 1.3, check: untouched},
}

// atMostTwo checks that plans remembered from another model or card mislead at most once.
func atMostTwo(t *testing.T, v told) {
	if len(v.Attempts) > 2 {
		t.Errorf("%d attempts", len(v.Attempts))
	}
}

// untouched checks that the job runs as written if there is enough memory.
func untouched(t *testing.T, first, v told) {
	for _, knob := range []strategy.Knob{strategy.MicroBatchSize, strategy.ActivationCheckpointing} {
		if len(v.Attempts) != 1 || v.last().Plan[knob] != first.Attempts[0].Plan[knob] {
			t.Errorf("%d attempts, %s is %s, and the job as it is written, which fits, has %s", len(v.Attempts), knob, v.last().Plan[knob], first.Attempts[0].Plan[knob])
		}
	}
}
