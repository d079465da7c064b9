package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/commandline"
	interpreter "github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// A contest is a job of testdata/planner, in which the planner and the ladder are compared with the best of
// its plans.
type contest struct {
	name, folder string
	toml         string // empty: gpurun precedes the script, which has no settings
	gpus         int
	needs        []string      // Python packages
	written      strategy.Plan // the job as it is written
	settings     map[strategy.Knob]setting
	// kinds are the candidates without their micro batches, as differences from the plan as written. least is
	// the smallest micro batch among them, or that of the plan as written if it cannot be changed.
	kinds []strategy.Plan
	least int
}

// A setting is the place where the test itself writes a knob's value, after a pattern that must match once.
// In a script without settings it is a constant in the code.
type setting struct {
	file, behind string
	words        map[strategy.Value]string // nil: the value itself
}

var (
	trueFalse = map[strategy.Value]string{"none": "false", "full": "true"}
	onOff     = map[strategy.Value]string{"none": "off", "full": "on", "fp32": "off", "bf16": "on"}
	stages    = map[strategy.Value]string{"zero1": "1", "zero2": "2", "zero3": "3"}

	constant = setting{file: "train.py", behind: `(?m)^RECOMPUTE = `, words: map[strategy.Value]string{"none": "False", "full": "True"}}
	both     = []strategy.Plan{{strategy.ActivationCheckpointing: "none"}, {strategy.ActivationCheckpointing: "full"}}
)

// option is a setting that is an argument in a train.toml, as a word of a list or of a
// command.
func option(file, name string, words map[strategy.Value]string) setting {
	return setting{file: file, behind: regexp.QuoteMeta(name) + `(?:", "| )`, words: words}
}

// trainer returns the settings of Hugging Face's Trainer.
func trainer(file string) map[strategy.Knob]setting {
	return map[strategy.Knob]setting{
		strategy.MicroBatchSize:            option(file, "--per_device_train_batch_size", nil),
		strategy.GradientAccumulationSteps: option(file, "--gradient_accumulation_steps", nil),
		strategy.ActivationCheckpointing:   option(file, "--gradient_checkpointing", trueFalse),
	}
}

// deepspeed adds those of its configuration.
func deepspeed(file, configuration string) map[strategy.Knob]setting {
	settings := trainer(file)
	settings[strategy.Sharding] = setting{file: configuration, behind: `"stage": `, words: stages}
	settings[strategy.OffloadOptimizer] = setting{file: configuration, behind: `"offload_optimizer": \{ "device": "`}
	return settings
}

// ownLoop returns the settings of scripts with their own arguments.
func ownLoop(file string) map[strategy.Knob]setting {
	return map[strategy.Knob]setting{
		strategy.MicroBatchSize:            option(file, "--micro", nil),
		strategy.GradientAccumulationSteps: option(file, "--accum", nil),
		strategy.ActivationCheckpointing:   option(file, "--ckpt", onOff),
	}
}

// asWritten returns a plan without accumulation and checkpointing.
func asWritten(micro int, more strategy.Plan) strategy.Plan {
	return strategy.Plan{
		strategy.MicroBatchSize: strategy.Number(micro), strategy.GradientAccumulationSteps: "1", strategy.ActivationCheckpointing: "none",
	}.With(more)
}

// contests returns the jobs. The planner's constants come from none of their models.
func contests() []contest {
	ownPrecision := ownLoop("fp32.toml")
	ownPrecision[strategy.Precision] = option("fp32.toml", "--amp", onOff)
	sixteen := asWritten(16, nil)
	return []contest{
		{name: "plain", folder: "plain", toml: "train.toml", gpus: 1, written: sixteen, settings: ownLoop("train.toml"), kinds: both, least: 1},
		{
			name: "plain-fp32", folder: "plain", toml: "fp32.toml", gpus: 1, settings: ownPrecision, least: 1,
			written: asWritten(16, strategy.Plan{strategy.Precision: "fp32"}),
			kinds: slices.Concat(both, []strategy.Plan{
				{strategy.Precision: "bf16", strategy.ActivationCheckpointing: "none"}, {strategy.Precision: "bf16", strategy.ActivationCheckpointing: "full"},
			}),
		},
		{name: "constants", folder: "constants", gpus: 1, written: sixteen, settings: map[strategy.Knob]setting{strategy.ActivationCheckpointing: constant}, kinds: both, least: 16},
		{name: "hf-trainer", folder: "hf-trainer", toml: "train.toml", gpus: 1, needs: []string{"transformers", "accelerate"}, written: sixteen, settings: trainer("train.toml"), kinds: both, least: 1},
		{name: "hf-gpt", folder: "hf-trainer", toml: "gpt.toml", gpus: 1, needs: []string{"transformers", "accelerate"}, written: sixteen, settings: trainer("gpt.toml"), kinds: both, least: 1},
		{name: "plain-small", folder: "plain", toml: "small.toml", gpus: 1, written: asWritten(64, nil), settings: ownLoop("small.toml"), kinds: both, least: 4},
		shape("vit", 128, both),
		shape("mae", 128, both),
		shape("unet", 32, both),
		shape("lstm", 128, nil),
		{
			name: "lightning", folder: "lightning", toml: "train.toml", gpus: 1, needs: []string{"lightning"}, written: sixteen, kinds: both, least: 1,
			settings: map[strategy.Knob]setting{
				strategy.MicroBatchSize:            option("train.toml", "--batch_size", nil),
				strategy.GradientAccumulationSteps: option("train.toml", "--accumulate_grad_batches", nil),
				strategy.ActivationCheckpointing:   constant,
			},
		},
		{name: "accelerate", folder: "accelerate", toml: "train.toml", gpus: 1, needs: []string{"transformers", "accelerate"}, written: sixteen, settings: trainer("train.toml"), kinds: both, least: 1},
		{name: "convnet", folder: "convnet", toml: "train.toml", gpus: 1, needs: []string{"timm"}, written: asWritten(128, nil), settings: ownLoop("train.toml"), kinds: both, least: 8},
		{name: "t5", folder: "t5", gpus: 1, needs: []string{"transformers"}, written: sixteen, settings: map[strategy.Knob]setting{strategy.ActivationCheckpointing: constant}, kinds: both, least: 16},
		{
			name: "deepspeed-1", folder: "deepspeed", toml: "one.toml", gpus: 1, needs: hfDeepSpeed[1:], settings: deepspeed("one.toml", "one.json"), least: 1,
			written: asWritten(16, strategy.Plan{strategy.Sharding: "zero2", strategy.OffloadOptimizer: "none"}),
			kinds: slices.Concat(both, []strategy.Plan{
				{strategy.OffloadOptimizer: "cpu", strategy.ActivationCheckpointing: "none"}, {strategy.OffloadOptimizer: "cpu", strategy.ActivationCheckpointing: "full"},
			}),
		},
		{
			name: "deepspeed-2", folder: "deepspeed", toml: "two.toml", gpus: 2, needs: hfDeepSpeed[1:], settings: deepspeed("two.toml", "two.json"), least: 1,
			written: asWritten(8, strategy.Plan{strategy.Sharding: "zero1", strategy.OffloadOptimizer: "none"}),
			kinds: slices.Concat(both, []strategy.Plan{
				{strategy.Sharding: "zero2", strategy.ActivationCheckpointing: "none"}, {strategy.Sharding: "zero2", strategy.ActivationCheckpointing: "full"},
				{strategy.Sharding: "zero3", strategy.ActivationCheckpointing: "none"}, {strategy.Sharding: "zero3", strategy.ActivationCheckpointing: "full"},
			}),
		},
	}
}

// shape is a job of testdata/planner/shapes. Without kinds it has no switch for recomputation.
func shape(name string, micro int, kinds []strategy.Plan) contest {
	c := contest{name: name, folder: "shapes", toml: name + ".toml", gpus: 1, needs: []string{"timm"}, written: asWritten(micro, nil), settings: ownLoop(name + ".toml"), kinds: kinds, least: 2}
	if kinds == nil {
		delete(c.settings, strategy.ActivationCheckpointing)
		delete(c.written, strategy.ActivationCheckpointing)
		c.kinds = []strategy.Plan{{}}
	}
	return c
}

// lacks returns what the machine does not have, empty for nothing.
func (c contest) lacks(installed map[string]string, gpus int) string {
	return scene{gpus: c.gpus, needs: append([]string{"torch"}, c.needs...)}.lacks(installed, gpus)
}

// plans returns the candidates of one kind: micro batches from the written one down, at the same global
// batch.
func (c contest) plans(kind strategy.Plan) []strategy.Plan {
	micro, _ := c.written.Number(strategy.MicroBatchSize)
	accumulation, _ := c.written.Number(strategy.GradientAccumulationSteps)
	var all []strategy.Plan
	for m := micro; m >= c.least; m /= 2 {
		all = append(all, c.written.With(kind).With(strategy.Plan{
			strategy.MicroBatchSize: strategy.Number(m), strategy.GradientAccumulationSteps: strategy.Number(micro * accumulation / m),
		}))
	}
	return all
}

// folderWith copies the job and writes a plan into it.
func (c contest) folderWith(t *testing.T, plan strategy.Plan) string {
	t.Helper()
	dir := copyOf(t, filepath.Join("testdata", "planner", c.folder))
	for knob, pair := range c.written.Changed(plan) {
		s, there := c.settings[knob]
		if !there {
			t.Fatalf("%s has no place for %s", c.name, knob)
		}
		s.write(t, dir, pair[0], pair[1])
	}
	return dir
}

// write replaces a value, and fails if the old value is not there.
func (s setting) write(t *testing.T, dir string, old, value strategy.Value) {
	t.Helper()
	path := filepath.Join(dir, s.file)
	text, err := os.ReadFile(path)
	testenv.Check(t, err)
	place := regexp.MustCompile(s.behind+regexp.QuoteMeta(s.word(old))+`\b`).FindAllIndex(text, -1)
	if len(place) != 1 {
		t.Fatalf("%s is there %d times in %s, want once", s.behind+s.word(old), len(place), s.file)
	}
	at := place[0][1] - len(s.word(old))
	changed := slices.Concat(text[:at], []byte(s.word(value)), text[place[0][1]:])
	testenv.Check(t, os.WriteFile(path, changed, 0o644))
}

func (s setting) word(value strategy.Value) string {
	if w, there := s.words[value]; there {
		return w
	}
	return string(value)
}

// A told is the part of verdict.json that the contests need.
type told struct {
	Outcome  strategy.Outcome `json:"outcome"`
	Reason   string           `json:"reason"`
	Attempts []toldAttempt    `json:"attempts"`

	own ownFigures // the script's own figures, of the attempt that trained
}

type toldAttempt struct {
	Plan      strategy.Plan      `json:"plan"`
	Cause     string             `json:"cause"`
	Seconds   strategy.Seconds   `json:"seconds"`
	Peak      int64              `json:"peak_bytes"`
	Speed     float64            `json:"samples_per_second"`
	Predicted []int64            `json:"predicted_peak_bytes"`
	Changed   strategy.Changes   `json:"changed"`
	Untaken   strategy.Changes   `json:"untaken"`
	InPlace   []strategy.InPlace `json:"in_place"`
}

// ownFigures are the last line of a script.
type ownFigures struct {
	Peak  int64   `json:"peak"`
	Speed float64 `json:"samples_per_second"`
}

// last returns the attempt that ended the run. Peak and speed are the script's own figures if gpurun has
// none.
func (v told) last() toldAttempt {
	if len(v.Attempts) == 0 {
		return toldAttempt{}
	}
	a := v.Attempts[len(v.Attempts)-1]
	if a.Peak == 0 {
		a.Peak = v.own.Peak
	}
	if a.Speed == 0 {
		a.Speed = v.own.Speed
	}
	return a
}

// lost returns how long the attempts ran that did not train.
func (v told) lost() time.Duration {
	sum := time.Duration(0)
	for _, a := range v.Attempts[:max(0, len(v.Attempts)-1)] {
		sum += a.Seconds.Duration()
	}
	return sum
}

// A call is one start of gpurun for a job.
type call struct {
	python  string
	dir     string // the job's folder
	toml    string
	flags   []string
	state   string // the user's state directory, where fits are remembered
	env     []string
	visible string // CUDA_VISIBLE_DEVICES
}

// run starts it and reads its verdict. The output is that of gpurun and of the script.
func (c call) run(ctx context.Context, t *testing.T) (told, string, error) {
	t.Helper()
	runs, err := os.MkdirTemp(c.dir, "run-")
	if err != nil {
		return told{}, "", err
	}
	words := append([]string{"--run-dir", filepath.Join(runs, "run")}, c.flags...)
	if c.toml != "" {
		words = append(words, c.toml)
	} else {
		words = append(words, c.python, "train.py")
	}
	cmd := exec.CommandContext(ctx, binary(t), words...)
	cmd.Dir = c.dir
	cmd.Env = slices.Concat(insideEnv(), []string{"PYTHON_EXEC=" + c.python, "XDG_STATE_HOME=" + c.state, "XDG_CONFIG_HOME=" + fastest(t), "CUDA_VISIBLE_DEVICES=" + c.visible}, c.env)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	ended := cmd.Run()
	said := tail(errs.Bytes(), 40)
	text, err := os.ReadFile(filepath.Join(runs, "run", "verdict.json"))
	if err != nil {
		return told{}, said, fmt.Errorf("%v: %w, %w", words, ended, err)
	}
	var v told
	if err := json.Unmarshal(text, &v); err != nil {
		return told{}, said, fmt.Errorf("read the verdict: %w", err)
	}
	if at := bytes.LastIndex(out.Bytes(), []byte("RESULT ")); at >= 0 {
		err = json.NewDecoder(bytes.NewReader(out.Bytes()[at+len("RESULT "):])).Decode(&v.own)
	}
	return v, said, err
}

// fastest returns a user's configuration that prefers the fastest plan.
func fastest(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	testenv.Check(t, os.MkdirAll(filepath.Join(dir, "gpurun"), 0o700))
	if err := os.WriteFile(filepath.Join(dir, "gpurun", "config.toml"), []byte("[recovery]\nprefer = \"speed\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPlannerJobs starts each job of the contests once on the CPU, in small, with its
// smallest plan, so that no mistake in a script costs time on a GPU.
func TestPlannerJobs(t *testing.T) {
	python := testenv.Torch(t)
	installed, err := interpreter.At(python, "", commandline.ParseEnviron(os.Environ())).Packages(t.Context())
	testenv.Check(t, err)
	if strings.HasPrefix(installed["torch"], "1.") {
		t.Skip("the jobs use what PyTorch has since 2.0")
	}
	for _, c := range contests() {
		t.Run(c.name, func(t *testing.T) {
			plans := c.plans(c.kinds[len(c.kinds)-1])
			small := plans[len(plans)-1]
			dir := c.folderWith(t, small)
			if slices.Contains(c.needs, "deepspeed") {
				t.Skip("DeepSpeed's part needs a GPU")
			}
			if why := c.lacks(installed, c.gpus); why != "" {
				t.Skip(why)
			}
			env := []string{"TINY=1", "OMP_NUM_THREADS=1", "ACCELERATE_USE_CPU=true", "PATH=" + filepath.Dir(python) + ":" + os.Getenv("PATH")}
			v, said, err := call{python: python, dir: dir, toml: c.toml, flags: []string{"--mode", "off"}, state: t.TempDir(), env: env}.run(t.Context(), t)
			if err != nil || v.Outcome != strategy.Trained || v.own.Speed <= 0 {
				t.Fatalf("%s: %v, %+v\n%s", v.Outcome, err, v.own, said)
			}
			c.sees(t, v, small)
		})
	}
}

// sees checks that gpurun reads the plan that the test has written, if it reads one.
func (c contest) sees(t *testing.T, v told, plan strategy.Plan) {
	t.Helper()
	for _, knob := range slices.Sorted(maps.Keys(c.settings)) {
		if seen, known := v.Attempts[0].Plan[knob]; known && seen != plan[knob] && c.settings[knob].file != "train.py" {
			t.Errorf("%s is %s, and gpurun reads %s", knob, plan[knob], seen)
		}
	}
}

// Every folder of testdata/planner is used, and every candidate can be written.
func TestPlannerCandidates(t *testing.T) {
	used := map[string]bool{}
	for _, c := range contests() {
		used[c.folder] = true
		for _, kind := range c.kinds {
			for _, plan := range c.plans(kind) {
				c.folderWith(t, plan)
			}
		}
	}
	folders, err := fs.ReadDir(os.DirFS(filepath.Join("testdata", "planner")), ".")
	testenv.Check(t, err)
	for _, f := range folders {
		if !used[f.Name()] {
			t.Errorf("testdata/planner/%s is in no contest", f.Name())
		}
	}
	if names := strings.Fields(os.Getenv("GPURUN_PLANNER")); slices.ContainsFunc(names, func(n string) bool {
		return !slices.ContainsFunc(contests(), func(c contest) bool { return c.name == n })
	}) {
		t.Errorf("GPURUN_PLANNER names %v, not all of which there are", names)
	}
}
