package test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/journal"
	interpreter "github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// A scene is a job as a user of a framework writes it, in testdata/rescue, whose
// first plan runs out of CUDA memory under its ceiling.
type scene struct {
	name    string
	folder  string
	toml    string
	gpus    int
	needs   []string // required Python packages
	prepare func(t *testing.T, job string)

	remedies []strategy.Remedy // remedies that must be among those taken
	final    strategy.Plan     // values that the last plan must have
	proofs   []proof
	losses   func(job, run string, last int) (curve, error)

	resumed *resumption // nil: the first plan fails before there is a checkpoint
}

// A proof is the framework's own record of a setting. In both texts {knob} is the last plan's value, and
// {last} the number of the last attempt.
type proof struct {
	file string // a glob below the job's folder
	says string // empty: it is enough that the file exists
}

// A resumption has the expected values of an attempt that continues from a checkpoint.
type resumption struct {
	checkpoint string // the newest when memory ran out
	option     string // the option that passes it to the job
	left       int    // points of the loss curve that the last attempt adds
	own        func(job, run string, last int) (curve, error)
}

const (
	lastOut = "run/attempt-{last}/rank0/stdout.log"
	lastErr = "run/attempt-{last}/rank0/stderr.log"
)

var hfDeepSpeed = []string{"torch", "transformers", "accelerate", "deepspeed"}

var scenes = []scene{
	{
		name: "hf-trainer", folder: "hf-trainer", toml: "train.toml", gpus: 1, needs: []string{"torch", "transformers", "accelerate"},
		remedies: []strategy.Remedy{strategy.RemedyCheckpointing, strategy.RemedyMicroBatch},
		final:    strategy.Plan{strategy.ActivationCheckpointing: "full", strategy.Precision: "fp32"},
		proofs: []proof{
			{lastErr, "Instantaneous batch size per device = {micro_batch_size}\n"},
			{lastErr, "Gradient Accumulation steps = {gradient_accumulation_steps}\n"},
			{"out/trainer_state.json", `"train_batch_size": {micro_batch_size},`},
		},
		losses:  trainerState,
		resumed: &resumption{checkpoint: "out/checkpoint-10", option: "--resume_from_checkpoint", left: 10, own: lastPrinted(`'loss': '?([0-9.]+)`)},
	},
	{
		name: "nanogpt", folder: "nanogpt", toml: "train.toml", gpus: 1, needs: []string{"torch"},
		remedies: []strategy.Remedy{strategy.RemedyCheckpointing, strategy.RemedyMicroBatch},
		final:    strategy.Plan{strategy.ActivationCheckpointing: "full"},
		proofs:   []proof{{lastOut, "micro batch {micro_batch_size}, accumulation {gradient_accumulation_steps}, recompute on\n"}},
		losses:   allPrinted,
		resumed:  &resumption{checkpoint: "out/ckpt-12.pt", option: "--resume", left: 12, own: lastPrinted(`step \d+ loss ([0-9.]+)`)},
	},
	{
		name: "lightning", folder: "lightning", toml: "train.toml", gpus: 1, needs: []string{"torch", "pytorch-lightning"},
		remedies: []strategy.Remedy{strategy.RemedyMicroBatch},
		final:    strategy.Plan{strategy.Precision: "fp32"},
		proofs: []proof{
			{"out/lightning_logs/version_{last}/hparams.yaml", "batch_size: {micro_batch_size}\n"},
			{"out/lightning_logs/version_{last}/hparams.yaml", "accumulate_grad_batches: {gradient_accumulation_steps}\n"},
		},
		losses:  lightningMetrics("version_*"),
		resumed: &resumption{checkpoint: "out/lightning_logs/version_0/checkpoints/epoch=2-step=24.ckpt", option: "--ckpt_path", left: 3, own: lightningMetrics("version_{last}")},
	},
	{
		name: "accelerate", folder: "accelerate", toml: "train.toml", gpus: 1, needs: []string{"torch", "transformers", "accelerate"},
		remedies: []strategy.Remedy{strategy.RemedyMicroBatch},
		final:    strategy.Plan{strategy.Precision: "bf16"},
		proofs: []proof{
			{lastOut, "Mixed precision type: bf16\n"},
			{lastOut, "Instantaneous batch size per device = {micro_batch_size}\n"},
			{lastOut, "Gradient Accumulation steps = {gradient_accumulation_steps}\n"},
		},
		losses: allPrinted,
	},
	{
		name: "timm", folder: "timm", toml: "train.toml", gpus: 1, needs: []string{"torch", "torchvision", "timm"}, prepare: colours,
		remedies: []strategy.Remedy{strategy.RemedyCheckpointing},
		final:    strategy.Plan{strategy.ActivationCheckpointing: "full", strategy.Precision: "fp32"},
		proofs: []proof{
			{"out/colours/args.yaml", "\nbatch_size: {micro_batch_size}\n"},
			{"out/colours/args.yaml", "\ngrad_accum_steps: {gradient_accumulation_steps}\n"},
			{"out/colours/args.yaml", "\ngrad_checkpointing: true\n"},
		},
		losses: table("out/colours/summary.csv", "epoch", "train_loss"),
	},
	{
		name: "offload-optimizer", folder: "hf-deepspeed", toml: "offload-optimizer.toml", gpus: 1, needs: hfDeepSpeed,
		remedies: []strategy.Remedy{strategy.RemedyOffloadOptimizer},
		final:    strategy.Plan{strategy.Sharding: "zero2", strategy.OffloadOptimizer: "cpu", strategy.OffloadParam: "none"},
		proofs:   []proof{{lastOut, "DeepSpeed: stage 2, optimizer on cpu, parameters on none\n"}},
		losses:   trainerState,
	},
	{
		name: "offload-param", folder: "hf-deepspeed", toml: "offload-param.toml", gpus: 1, needs: hfDeepSpeed,
		remedies: []strategy.Remedy{strategy.RemedyOffloadOptimizer, strategy.RemedyOffloadParam},
		final:    strategy.Plan{strategy.Sharding: "zero3", strategy.OffloadOptimizer: "cpu", strategy.OffloadParam: "cpu"},
		proofs:   []proof{{lastOut, "DeepSpeed: stage 3, optimizer on cpu, parameters on cpu\n"}},
		losses:   trainerState,
	},
	{
		name: "nvme", folder: "hf-deepspeed", toml: "nvme.toml", gpus: 1, needs: hfDeepSpeed,
		remedies: []strategy.Remedy{strategy.RemedyNVMe},
		final:    strategy.Plan{strategy.Sharding: "zero3", strategy.OffloadOptimizer: "nvme", strategy.OffloadParam: "nvme"},
		proofs: []proof{
			{lastOut, "DeepSpeed: stage 3, optimizer on nvme, parameters on nvme\n"},
			{lastOut, "DeepSpeed: there are swap files\n"},
		},
		losses: trainerState,
	},
	{
		name: "zero2", folder: "hf-deepspeed", toml: "zero2.toml", gpus: 2, needs: hfDeepSpeed,
		remedies: []strategy.Remedy{strategy.RemedyShard},
		final:    strategy.Plan{strategy.Sharding: "zero2", strategy.OffloadOptimizer: "none"},
		proofs:   []proof{{lastOut, "DeepSpeed: stage 2, optimizer on none, parameters on none\n"}},
		losses:   trainerState,
	},
	{
		name: "zero3", folder: "hf-deepspeed", toml: "zero3.toml", gpus: 2, needs: hfDeepSpeed,
		remedies: []strategy.Remedy{strategy.RemedyShard},
		final:    strategy.Plan{strategy.Sharding: "zero3", strategy.OffloadOptimizer: "none"},
		proofs:   []proof{{lastOut, "DeepSpeed: stage 3, optimizer on none, parameters on none\n"}},
		losses:   trainerState,
	},
	{
		name: "ladder", folder: "hf-deepspeed", toml: "ladder.toml", gpus: 2, needs: hfDeepSpeed,
		remedies: []strategy.Remedy{strategy.RemedyShard, strategy.RemedyOffloadOptimizer, strategy.RemedyOffloadParam},
		final:    strategy.Plan{strategy.Sharding: "zero3", strategy.OffloadOptimizer: "cpu", strategy.OffloadParam: "cpu"},
		proofs:   []proof{{lastOut, "DeepSpeed: stage 3, optimizer on cpu, parameters on cpu\n"}},
		losses:   trainerState,
	},
	{
		name: "nvme-2", folder: "hf-deepspeed", toml: "nvme-2.toml", gpus: 2, needs: hfDeepSpeed,
		remedies: []strategy.Remedy{strategy.RemedyNVMe},
		final:    strategy.Plan{strategy.Sharding: "zero3", strategy.OffloadOptimizer: "nvme", strategy.OffloadParam: "nvme"},
		proofs: []proof{
			{lastOut, "DeepSpeed: stage 3, optimizer on nvme, parameters on nvme\n"},
			{lastOut, "DeepSpeed: there are swap files\n"},
		},
		losses: trainerState,
	},
}

// rescueBound is how long a scene may take, its control included.
const rescueBound = 7 * time.Minute

// TestRescue trains real models with real frameworks on real GPUs, from a plan that runs out of memory to one
// that trains. GPURUN_RESCUE selects scenes.
func TestRescue(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	var ready []*staged
	chosen := strings.Fields(os.Getenv("GPURUN_RESCUE"))
	for _, s := range scenes {
		if len(chosen) > 0 && !slices.Contains(chosen, s.name) {
			continue
		}
		if why := s.lacks(installed, len(devices)); why != "" {
			t.Run(s.name, func(t *testing.T) { t.Skip(why) })
			continue
		}
		ready = append(ready, s.stage(t, python))
	}
	together(t, python, devices, ready)
	for _, st := range ready {
		t.Run(st.scene.name, func(t *testing.T) { st.check(t) })
	}
}

// rescueMachine returns what the scenes need: an interpreter, its packages, and GPUs.
func rescueMachine(t *testing.T) (python string, installed map[string]string, devices []ranks.Device) {
	t.Helper()
	python = os.Getenv("GPURUN_TEST_PYTHON")
	nvml, err := ranks.OpenNVML()
	if err != nil || python == "" {
		t.Skipf("needs an NVIDIA GPU and GPURUN_TEST_PYTHON: %v", err)
	}
	defer nvml.Close()
	if devices, err = nvml.Devices(); err != nil || len(devices) == 0 {
		t.Skipf("needs an NVIDIA GPU: %v", err)
	}
	if python, err = exec.LookPath(python); err != nil {
		t.Fatal(err)
	}
	if installed, err = interpreter.At(python, "", commandline.ParseEnviron(os.Environ())).Packages(t.Context()); err != nil {
		t.Fatal(err)
	}
	return python, installed, devices
}

// lacks returns what the machine does not have, empty for nothing.
func (s scene) lacks(installed map[string]string, gpus int) string {
	if gpus < s.gpus {
		return fmt.Sprintf("needs %d GPUs, and there are %d", s.gpus, gpus)
	}
	for _, name := range s.needs {
		if installed[name] == "" {
			return "the interpreter has no " + name
		}
	}
	if s.name == "timm" && timmScript() == "" {
		return "timm's own train.py is in no package: check out pytorch-image-models in the folder that GPURUN_SOURCES names"
	}
	return ""
}

// staged is a scene in its own folder, with its results.
type staged struct {
	scene   scene
	python  string
	binary  string
	job     string
	control string // folder of the run that has the last plan from the start

	begun       chan struct{} // closed once attempt 0 was announced, or at the end
	done        chan struct{} // closed at the end
	err         error
	controlErr  error
	out, errs   bytes.Buffer
	controlText []byte
	seconds     float64
}

func (s scene) stage(t *testing.T, python string) *staged {
	t.Helper()
	from := filepath.Join("testdata", "rescue", s.folder)
	st := &staged{
		scene: s, python: python, binary: binary(t), job: copyOf(t, from), control: copyOf(t, from),
		begun: make(chan struct{}), done: make(chan struct{}),
	}
	if s.prepare != nil {
		s.prepare(t, st.job)
	}
	return st
}

// together runs all scenes at once. gpurun waits between attempts until a GPU's memory is back at the level
// before attempt 0. Scenes that share a GPU would wait for each other, so a part of its memory is held until
// all of them have begun.
func together(t *testing.T, python string, devices []ranks.Device, scenes []*staged) {
	t.Helper()
	if len(scenes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), rescueBound)
	t.Cleanup(cancel)
	release := func() {}
	if len(scenes) > 1 {
		release = ballast(t, python, devices)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	for _, st := range scenes {
		all.Go(func() { st.run(ctx) })
	}
	for _, st := range scenes {
		<-st.begun
	}
	release()
}

// ballast holds two fifths of each GPU, less than gpurun counts as another job, until it is released.
func ballast(t *testing.T, python string, devices []ranks.Device) (release func()) {
	t.Helper()
	cmd := exec.Command(python, "-c", `
import sys, torch
held = [torch.empty(int(torch.cuda.mem_get_info(k)[1] * 0.4), dtype=torch.uint8, device=f"cuda:{k}") for k in range(torch.cuda.device_count())]
print("held", flush=True)
sys.stdin.read()`)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	testenv.Check(t, err)
	out, err := cmd.StdoutPipe()
	testenv.Check(t, err)
	testenv.Check(t, cmd.Start())
	release = sync.OnceFunc(func() { in.Close(); _ = cmd.Wait() })
	t.Cleanup(release)
	if _, err := io.ReadFull(out, make([]byte, len("held\n"))); err != nil {
		t.Fatalf("hold memory of %d GPUs: %v", len(devices), err)
	}
	return release
}

// run rescues the job, and then trains it with the last plan from the start.
func (st *staged) run(ctx context.Context) {
	defer close(st.done)
	began := time.Now()
	seen := sync.OnceFunc(func() { close(st.begun) })
	defer seen()
	cmd := exec.CommandContext(ctx, st.binary, "--run-dir", filepath.Join(st.job, "run"), "--no-in-place", filepath.Join(st.job, st.scene.toml))
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+st.python, "PYTHONUNBUFFERED=1", "HF_HUB_OFFLINE=1", "TOKENIZERS_PARALLELISM=false")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Stdout, cmd.Stderr = &st.out, &listener{into: &st.errs, word: []byte("gpurun: attempt 0: "), heard: seen}
	st.err = cmd.Run()
	st.seconds = time.Since(began).Seconds()
	if st.err == nil && st.scene.resumed != nil {
		st.controlText, st.controlErr = st.runControl(ctx)
	}
}

// runControl runs plain Python with the last attempt's command, without the resume.
func (st *staged) runControl(ctx context.Context) ([]byte, error) {
	starts, err := starts(filepath.Join(st.job, "run"))
	if err != nil {
		return nil, err
	}
	last := starts[len(starts)-1]
	argv := slices.Clone(last.Command.Argv)
	option := st.scene.resumed.option
	if at := slices.Index(argv, option); at >= 0 {
		argv = slices.Delete(argv, at, at+2)
	}
	argv = slices.DeleteFunc(argv, func(word string) bool { return strings.HasPrefix(word, option+"=") })
	cmd := exec.CommandContext(ctx, st.python, argv...)
	cmd.Dir = st.control
	cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1", "HF_HUB_OFFLINE=1", "CUDA_VISIBLE_DEVICES=0") // without DataParallel over the other GPUs
	for name, value := range last.Command.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", argv, err, tail(errs.Bytes(), 30))
	}
	// Where a scene's losses are looked for.
	dir := filepath.Join(st.control, "run", "attempt-0", "rank0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return out.Bytes(), os.WriteFile(filepath.Join(dir, "stdout.log"), out.Bytes(), 0o644)
}

// A listener passes bytes on, and signals when a word was among them.
type listener struct {
	into  *bytes.Buffer
	word  []byte
	heard func()
}

func (l *listener) Write(p []byte) (int, error) {
	n, err := l.into.Write(p)
	if bytes.Contains(l.into.Bytes()[max(0, l.into.Len()-len(p)-len(l.word)):], l.word) {
		l.heard()
	}
	return n, err
}

// starts returns the attempts as they were started.
func starts(run string) ([]launcher.Started, error) {
	events, err := journal.Read(run)
	if err != nil {
		return nil, err
	}
	var all []launcher.Started
	for _, e := range events {
		if s, ok := e.(launcher.Started); ok {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the journal of %s has no attempt", run)
	}
	return all, nil
}

// check compares the results of the scene with the expected ones.
func (st *staged) check(t *testing.T) {
	<-st.done
	run := filepath.Join(st.job, "run")
	t.Logf("%.0f s\n%s", st.seconds, ownLines(st.errs.Bytes()))
	if slices.Contains(st.scene.remedies, strategy.RemedyNVMe) && !job.HasLibaio(st.python, commandline.ParseEnviron(os.Environ())) {
		st.checkNoLibaio(t, run)
		return
	}
	if st.err != nil {
		t.Fatalf("%v\n%s", st.err, tail(st.errs.Bytes(), 60))
	}
	if left, err := filepath.Glob(filepath.Join(st.job, "nvme", "*")); err != nil || len(left) > 0 {
		t.Errorf("what was offloaded to NVMe is still there: %v, %v", left, err)
	}
	last := st.checkAttempts(t, readVerdict(t, run))
	for _, p := range st.scene.proofs {
		if err := p.check(st.job, last); err != nil {
			t.Error(err)
		}
	}
	losses, err := st.scene.losses(st.job, run, last.N)
	testenv.Check(t, err)
	checkFalls(t, losses)
	if st.scene.resumed != nil {
		st.checkResumed(t, run, last.N, losses)
	}
}

func readVerdict(t *testing.T, run string) launcher.Verdict {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(run, "verdict.json"))
	testenv.Check(t, err)
	var v launcher.Verdict
	testenv.Check(t, json.Unmarshal(text, &v))
	return v
}

// checkNoLibaio checks that a remedy with a missing part is not tried, and that the verdict names the part.
func (st *staged) checkNoLibaio(t *testing.T, run string) {
	t.Helper()
	v := readVerdict(t, run)
	last := v.Attempts[len(v.Attempts)-1]
	told := slices.ContainsFunc(last.Skipped, func(k strategy.Skip) bool {
		return k.Remedy == strategy.RemedyNVMe && strings.Contains(k.Reason, "libaio")
	})
	if v.Outcome != strategy.Exhausted || v.Code != 12 || !told {
		t.Errorf("outcome %s, code %d, skipped %+v", v.Outcome, v.Code, last.Skipped)
	}
}

// checkAttempts checks that CUDA ran out of memory, that the scene's remedies were taken, and that the last
// plan trained with the same number of samples per step.
func (st *staged) checkAttempts(t *testing.T, v launcher.Verdict) launcher.AttemptSummary {
	t.Helper()
	if v.Outcome != strategy.Trained || v.Code != 0 || len(v.Attempts) < 2 {
		t.Fatalf("outcome %s, code %d after %d attempts: %s", v.Outcome, v.Code, len(v.Attempts), v.Reason)
	}
	last := v.Attempts[len(v.Attempts)-1]
	taken := map[strategy.Remedy]bool{}
	for _, a := range v.Attempts[:len(v.Attempts)-1] {
		taken[a.Remedy] = true
		if a.Cause != cause.CUDAOOM || len(a.Changed) == 0 {
			t.Errorf("attempt %d ended with %s, changed %v: %s", a.N, a.Cause, a.Changed, a.Error)
		}
		if samples(a.Plan) != samples(last.Plan) {
			t.Errorf("attempt %d: %d samples a step and rank, at the end %d", a.N, samples(a.Plan), samples(last.Plan))
		}
	}
	for _, r := range st.scene.remedies {
		if !taken[r] {
			t.Errorf("the rung %s was not taken: %v", r, taken)
		}
	}
	for k, want := range st.scene.final {
		if last.Plan[k] != want {
			t.Errorf("the last plan has %s=%s, want %s", k, last.Plan[k], want)
		}
	}
	if last.Cause != cause.None {
		t.Errorf("the last attempt ended with %s", last.Cause)
	}
	return last
}

func (p proof) check(job string, last launcher.AttemptSummary) error {
	words := []string{"{last}", strconv.Itoa(last.N)}
	for k, v := range last.Plan {
		words = append(words, "{"+string(k)+"}", string(v))
	}
	fill := strings.NewReplacer(words...)
	files, err := filepath.Glob(filepath.Join(job, fill.Replace(p.file)))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("there is no %s (%v)", fill.Replace(p.file), err)
	}
	if p.says == "" {
		return nil
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return fmt.Errorf("read a proof: %w", err)
	}
	if !bytes.Contains(text, []byte(fill.Replace(p.says))) {
		return fmt.Errorf("%s does not say %q:\n%s", fill.Replace(p.file), fill.Replace(p.says), tail(text, 20))
	}
	return nil
}

// A curve is the loss by step or by epoch.
type curve map[int]float64

// sameLoss is the relative difference of the losses that is allowed between a resumed run and one that had
// the last plan from the start. Both see the same samples in the same order in fp32, so that only the order
// of summation differs, by some 1e-7 a step; AdamW, which divides small gradients by their own size, makes
// that some 1e-4 within the scenes' steps. A step that is lost or repeated moves the loss by a percent and
// more where the scenes resume.
const sameLoss = 0.005

func checkFalls(t *testing.T, c curve) {
	t.Helper()
	steps := c.steps()
	if len(steps) < 3 {
		t.Fatalf("the job's own log has %d losses", len(steps))
	}
	for i, s := range steps {
		if math.IsNaN(c[s]) || math.IsInf(c[s], 0) {
			t.Errorf("step %d: loss %v", s, c[s])
		}
		if s != steps[0]+i {
			t.Fatalf("the log goes from %d to %d", steps[0]+i-1, s)
		}
	}
	first, last := c[steps[0]], c[steps[len(steps)-1]]
	t.Logf("loss %.4f at %d, %.4f at %d", first, steps[0], last, steps[len(steps)-1])
	if last >= first {
		t.Error("the loss does not fall")
	}
}

func (c curve) steps() []int {
	steps := make([]int, 0, len(c))
	for s := range c {
		steps = append(steps, s)
	}
	slices.Sort(steps)
	return steps
}

// checkResumed checks that every later attempt has the checkpoint on its command line, that the last attempt
// trains only the rest, and that its curve is that of the control.
func (st *staged) checkResumed(t *testing.T, run string, last int, losses curve) {
	t.Helper()
	r := st.scene.resumed
	all, err := starts(run)
	testenv.Check(t, err)
	for _, s := range all[1:] {
		named := slices.ContainsFunc(s.Command.Argv, func(word string) bool {
			return strings.Contains(word, filepath.Base(r.checkpoint))
		})
		if !strings.HasSuffix(s.Checkpoint, r.checkpoint) || !named {
			t.Errorf("attempt %d started from %q: %v", s.N, s.Checkpoint, s.Command.Argv)
		}
	}
	own, err := r.own(st.job, run, last)
	testenv.Check(t, err)
	if len(own) != r.left {
		t.Errorf("the last attempt logged %d losses, want %d", len(own), r.left)
	}
	if st.controlErr != nil {
		t.Fatalf("the control: %v", st.controlErr)
	}
	control, err := st.scene.losses(st.control, filepath.Join(st.control, "run"), 0)
	testenv.Check(t, err)
	compare(t, losses, control)
}

// compare shows both curves side by side.
func compare(t *testing.T, losses, control curve) {
	t.Helper()
	if !slices.Equal(losses.steps(), control.steps()) {
		t.Fatalf("steps %v, the control's %v", losses.steps(), control.steps())
	}
	worst := 0.0
	var shown strings.Builder
	for _, s := range control.steps() {
		apart := math.Abs(losses[s]-control[s]) / control[s]
		worst = max(worst, apart)
		fmt.Fprintf(&shown, "%4d  %.5f  %.5f  %.1e\n", s, losses[s], control[s], apart)
		if apart > sameLoss {
			t.Errorf("step %d: loss %.5f, the control's %.5f", s, losses[s], control[s])
		}
	}
	t.Logf("loss with the rescue, with the last plan from the start, apart (at most %.1e)\n%s", worst, shown.String())
}

// trainerState reads the log history of the Hugging Face Trainer.
func trainerState(job, _ string, _ int) (curve, error) {
	text, err := os.ReadFile(filepath.Join(job, "out", "trainer_state.json"))
	if err != nil {
		return nil, fmt.Errorf("read the losses: %w", err)
	}
	var state struct {
		History []struct {
			Step int
			Loss *float64
		} `json:"log_history"`
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return nil, fmt.Errorf("read the losses: %w", err)
	}
	c := curve{}
	for _, h := range state.History {
		if h.Loss == nil {
			continue // the summary
		}
		if _, twice := c[h.Step]; twice {
			return nil, fmt.Errorf("trainer_state.json has step %d twice", h.Step)
		}
		c[h.Step] = *h.Loss
	}
	return c, nil
}

// allPrinted reads "step N loss X" from all attempts; a later value counts.
func allPrinted(_, run string, last int) (curve, error) {
	c := curve{}
	for n := range last + 1 {
		text, err := os.ReadFile(filepath.Join(run, fmt.Sprintf("attempt-%d", n), "rank0", "stdout.log"))
		if err != nil {
			return nil, fmt.Errorf("read the losses: %w", err)
		}
		for _, m := range lossLine.FindAllSubmatch(text, -1) {
			step, _ := strconv.Atoi(string(m[1]))
			if c[step], err = strconv.ParseFloat(string(m[2]), 64); err != nil {
				return nil, fmt.Errorf("read the losses: %w", err)
			}
		}
	}
	return c, nil
}

// lastPrinted numbers the losses that the last attempt printed.
func lastPrinted(pattern string) func(job, run string, last int) (curve, error) {
	line := regexp.MustCompile(pattern)
	return func(_, run string, last int) (curve, error) {
		text, err := os.ReadFile(filepath.Join(run, fmt.Sprintf("attempt-%d", last), "rank0", "stdout.log"))
		if err != nil {
			return nil, fmt.Errorf("read the losses: %w", err)
		}
		c := curve{}
		for i, m := range line.FindAllSubmatch(text, -1) {
			if c[i], err = strconv.ParseFloat(string(m[1]), 64); err != nil {
				return nil, fmt.Errorf("read the losses: %w", err)
			}
		}
		return c, nil
	}
}

// lightningMetrics reads the values of each epoch from Lightning's CSVLogger.
func lightningMetrics(version string) func(job, run string, last int) (curve, error) {
	return func(job, run string, last int) (curve, error) {
		glob := filepath.Join("out", "lightning_logs", strings.ReplaceAll(version, "{last}", strconv.Itoa(last)), "metrics.csv")
		return table(glob, "epoch", "train_loss")(job, run, last)
	}
}

// table reads two columns of the CSV files that match a glob, in order.
func table(glob, step, loss string) func(job, run string, last int) (curve, error) {
	return func(job, _ string, _ int) (curve, error) {
		files, err := filepath.Glob(filepath.Join(job, glob))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("read the losses: there is no %s (%v)", glob, err)
		}
		c := curve{}
		for _, name := range files {
			if err := c.addTable(name, step, loss); err != nil {
				return nil, fmt.Errorf("read the losses: %s: %w", name, err)
			}
		}
		return c, nil
	}
}

func (c curve) addTable(name, step, loss string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return nil
	}
	at, value := slices.Index(rows[0], step), slices.Index(rows[0], loss)
	if at < 0 || value < 0 {
		return fmt.Errorf("no columns %s and %s in %v", step, loss, rows[0])
	}
	for _, row := range rows[1:] {
		if row[value] == "" {
			continue
		}
		n, err := strconv.Atoi(row[at])
		if err != nil {
			return err
		}
		if c[n], err = strconv.ParseFloat(row[value], 64); err != nil {
			return err
		}
	}
	return nil
}

// timmScript returns the path of timm's train.py, which is in no package; empty if it is not available.
func timmScript() string {
	root := os.Getenv("GPURUN_SOURCES")
	if root == "" {
		root = filepath.Join("..", ".cache", "conformance", "sources")
	}
	path := filepath.Join(root, "pytorch-image-models", "train.py")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// colours copies timm's script into the job's folder, and makes a folder of images: four classes, each with
// its colour.
func colours(t *testing.T, job string) {
	t.Helper()
	script, err := os.ReadFile(timmScript())
	testenv.Check(t, err)
	testenv.Check(t, os.WriteFile(filepath.Join(job, "train.py"), script, 0o644))
	for split, count := range map[string]int{"train": 128, "val": 16} {
		for class, base := range []color.RGBA{{200, 60, 60, 255}, {60, 200, 60, 255}, {60, 60, 200, 255}, {180, 180, 60, 255}} {
			dir := filepath.Join(job, "data", split, fmt.Sprintf("class-%d", class))
			testenv.Check(t, os.MkdirAll(dir, 0o755))
			for n := range count {
				writePNG(t, filepath.Join(dir, fmt.Sprintf("%d.png", n)), base, n)
			}
		}
	}
}

func writePNG(t *testing.T, path string, base color.RGBA, n int) {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 48, 48))
	for i := range img.Bounds().Dx() * img.Bounds().Dy() {
		shade := uint8((i*31 + n*17) % 50)
		img.SetRGBA(i%48, i/48, color.RGBA{base.R + shade, base.G + shade, base.B + shade, 255})
	}
	var text bytes.Buffer
	testenv.Check(t, png.Encode(&text, img))
	testenv.Check(t, os.WriteFile(path, text.Bytes(), 0o644))
}

// ownLines returns gpurun's own lines.
func ownLines(text []byte) string {
	var own strings.Builder
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("gpurun: ")) {
			own.Write(line)
		}
	}
	return own.String()
}

// tail returns the last lines of a text.
func tail(text []byte, lines int) string {
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
