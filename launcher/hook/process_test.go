package hook

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// needs skips a test whose Python lacks a module, and gives that Python.
func needs(t testing.TB, modules ...string) string {
	t.Helper()
	path := testenv.Python(t)
	for _, m := range append([]string{"torch"}, modules...) {
		if !has(path, m) {
			t.Skipf("%s has no %s", path, m)
		}
	}
	return path
}

// has reports whether an interpreter can import modules.
func has(interpreter string, modules ...string) bool {
	question := strings.Join(append([]string{interpreter}, modules...), " ")
	answer, known := hasModules.Load(question)
	if !known {
		cmd := exec.Command(interpreter, append([]string{"-c", "import importlib.util as u, sys; sys.exit(not all(u.find_spec(m) for m in sys.argv[1:]))"}, modules...)...)
		cmd.Dir = "/" // this folder has files of such names
		answer = cmd.Run() == nil
		hasModules.Store(question, answer)
	}
	return answer.(bool)
}

// hasModules are the answers of has.
var hasModules sync.Map

// testdata gives the absolute path of a script.
func testdata(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// job gives a command as rank 0 of an attempt, with the orders of the trial.
func (r *trial) job(t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = r.home
	cmd.Env = []string{"PATH=" + filepath.Dir(testenv.Python(t)) + ":" + os.Getenv("PATH"), "HOME=" + r.home, "PYTHONPATH=" + r.modules}
	cmd.Env = append(cmd.Env, r.env...)
	if !r.bare {
		installed, err := Install(r.dir, r.orders)
		if err != nil {
			t.Fatal(err)
		}
		r.installed = installed
		replaceParts(t, installed, r.parts)
		if err := os.MkdirAll(filepath.Join(r.dir, "rank0"), 0o755); err != nil {
			t.Fatal(err)
		}
		for k, v := range installed.Variables(0, cmd.Env) {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// replaceParts gives some parts another text.
func replaceParts(t testing.TB, installed *Installed, texts map[string]string) {
	t.Helper()
	if len(texts) == 0 {
		return
	}
	path := filepath.Join(installed.folder, partsFile)
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	index, rest, _ := bytes.Cut(all, []byte("\n"))
	index = slices.Clone(index)
	for name, text := range texts { // at the end, where the later one of two entries leads to
		index = fmt.Appendf(bytes.TrimSuffix(index, []byte("}")), "%q: (%d, %d), }", name, len(rest), len(text))
		rest = append(rest, text...)
	}
	if err := os.WriteFile(path, slices.Concat(index, []byte("\n"), rest), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(installed.folder, "__pycache__")) // the compiled parts are those of other tests, too
}

// train runs a command to its end, which has to be a good one, and gives its output.
func (r *trial) train(t testing.TB, argv ...string) string {
	t.Helper()
	cmd := r.job(t, argv...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return string(out)
}

// warmed runs a script as train does, but for how its interpreter starts.
func (r *trial) warmed(t testing.TB, script string, args ...string) string {
	t.Helper()
	out, errs, code := testenv.Warmed(t, r.job(t, append([]string{testenv.Python(t), script}, args...)...))
	if code != 0 {
		t.Fatalf("exit code %d:\n%s%s", code, out, errs)
	}
	return out + errs
}

// told returns the report of the rank, and that of each process that it started.
func (r *trial) told(t testing.TB) (rank *strategy.ProcessReport, own []strategy.ProcessReport) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.dir, "rank0"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if plain, _ := unnumbered(e.Name()); plain != processFile {
			continue
		}
		text, err := os.ReadFile(filepath.Join(r.dir, "rank0", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		said, problems, ok := parseSaid(text)
		if !ok {
			t.Fatalf("%s holds %s", e.Name(), text)
		}
		if len(problems) > 0 && !r.troubled {
			t.Errorf("the probe failed: %q", problems)
		}
		if e.Name() == processFile {
			rank = &said
		} else {
			own = append(own, said)
		}
	}
	return rank, own
}

// steps gives the last step of the rank's own process.
func (r *trial) steps(t testing.TB) OptimizerStep {
	t.Helper()
	s, ok := readStep(filepath.Join(r.dir, "rank0", stepsFile))
	if !ok {
		t.Error("no steps were told")
	}
	return s
}

// Plain PyTorch loops: only the rank reports the settings with which it runs.
func TestPlainLoopIsReported(t *testing.T) {
	path := needs(t)
	for _, test := range []struct {
		name  string
		args  []string
		want  strategy.Plan
		steps int
		cold  bool // PyTorch is imported after the hook
	}{
		{"plain", nil, strategy.Plan{"gradient_accumulation_steps": "1", "dataloader_workers": "0", "optimizer": "adamw"}, 16, true},
		{"accumulation", []string{"--accumulate=2", "--optimizer=SGD"}, strategy.Plan{"gradient_accumulation_steps": "2", "dataloader_workers": "0", "optimizer": "sgd"}, 8, false},
		{"a call to try it", []string{"--try-first"}, strategy.Plan{"gradient_accumulation_steps": "1", "dataloader_workers": "0", "optimizer": "adamw"}, 16, false},
		{"forked workers", []string{"--workers=2", "--optimizer=Adam"}, strategy.Plan{"gradient_accumulation_steps": "1", "dataloader_workers": "2", "optimizer": "adam"}, 16, false},
		{"spawned workers", []string{"--workers=1", "--start=spawn"}, strategy.Plan{"gradient_accumulation_steps": "1", "dataloader_workers": "1", "optimizer": "adamw"}, 16, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newTrial(t)
			script := testdata(t, "plain.py")
			r.orders.Script = script
			if test.cold {
				r.train(t, append([]string{path, script}, test.args...)...)
			} else {
				r.warmed(t, script, test.args...)
			}
			said, own := r.told(t)
			if said == nil || len(own) > 0 {
				t.Fatalf("told %+v and %d others", said, len(own))
			}
			want := test.want.With(strategy.Plan{"micro_batch_size": "8", "precision": "fp32", "sharding": "none", "activation_checkpointing": "none"})
			if diff := cmp.Diff(want, said.Settings); diff != "" {
				t.Error(diff)
			}
			if m := said.Model; m == nil || m.Class != "Net" || m.Parameters != 8529 || m.Compiled {
				t.Errorf("model %+v", m)
			}
			s := r.steps(t)
			if s.N != test.steps || time.Since(s.At) > time.Hour {
				t.Errorf("steps %+v, want %d", s, test.steps)
			}
			if h := s.Held; h.Device != -1 || h.Allocated < 16<<20 || h.Peak < h.Allocated || h.Reserved != 0 {
				t.Errorf("the process holds %+v", h)
			}
		})
	}
}

// A script that calls its model with something made up before it trains is told by what it
// trains with, also where no loader makes the batches.
func TestCallBeforeTrainingDoesNotCount(t *testing.T) {
	needs(t)
	r := newTrial(t)
	script := testdata(t, "plain.py")
	r.orders.Script = script
	r.warmed(t, script, "--try-first", "--no-loader", "--accumulate=2")
	said, _ := r.told(t)
	if said == nil || said.Settings["micro_batch_size"] != "8" || said.Settings["gradient_accumulation_steps"] != "2" {
		t.Errorf("told %+v", said)
	}
}

// Ranks that the job starts itself report, however they are started, and the
// job does not see how.
func TestRanksThatTheJobStarts(t *testing.T) {
	needs(t)
	for _, test := range []struct {
		way  string
		rank bool // whether the first process trains
		own  int
	}{
		{"spawn", false, 2}, {"fork", false, 2}, {"forkserver", false, 2}, {"os.fork", false, 1},
		{"popen", true, 1}, {"exec", true, 0}, {"execvp", true, 0}, {"posix_spawn", false, 1},
	} {
		t.Run(test.way, func(t *testing.T) {
			t.Parallel()
			r := newTrial(t)
			r.orders.Script = testdata(t, "ranks.py")
			if test.way == "popen" { // subprocess is imported after the hook
				r.train(t, testenv.Python(t), r.orders.Script, test.way)
			} else {
				r.warmed(t, r.orders.Script, test.way)
			}
			rank, own := r.told(t)
			if (rank != nil) != test.rank || len(own) != test.own {
				t.Fatalf("the rank told %+v, and %d others did", rank, len(own))
			}
			if rank != nil {
				own = append(own, *rank)
			}
			for _, said := range own {
				if said.Settings["micro_batch_size"] != "4" || said.Model == nil || said.Model.Class != "Net" {
					t.Errorf("told %+v", said)
				}
				if want := len(own); want > 1 && said.World != want {
					t.Errorf("%d ranks", said.World)
				}
			}
		})
	}
}

// A rank that replaces itself by another program still reports its end.
func TestEndIsReportedAfterExec(t *testing.T) {
	path := needs(t)
	r := newTrial(t)
	r.orders.Script = testdata(t, "ranks.py")
	if err := r.job(t, path, r.orders.Script, "last words").Run(); err == nil {
		t.Fatal("ended well")
	}
	if told := r.report(t); told == nil || told.Type != "ZeroDivisionError" {
		t.Errorf("told %+v", told)
	}
}

// launcherScript is a wrapper that is Python itself, as conda run and poetry run are: it
// starts what follows, with its own environment, and ends with an exception if it may.
const launcherScript = `import os, subprocess, sys
assert os.environ["GPURUN_PROBE_FILE"], "the wrapper would hand on nothing"
assert not [p for p in sys.path if "probe-" in p], sys.path
assert "probe-" not in getattr(sys.modules.get("sitecustomize"), "__file__", "")
code = subprocess.call(sys.argv[1:])
if code: sys.exit(code)
raise RuntimeError("the wrapper fails")
`

// The rank is the process that runs the script or the module, behind whatever stands
// before it, and nothing else is.
func TestTheRankIsFound(t *testing.T) {
	path := testenv.Python(t)
	for _, test := range []struct {
		name string
		argv []string // PYTHON, SCRIPT
	}{
		{"plain", []string{"PYTHON", "SCRIPT"}},
		{"options", []string{"PYTHON", "-u", "-W", "ignore", "-Xdev", "SCRIPT"}},
		{"relative", []string{"sh", "-c", "cd $(dirname SCRIPT) && exec PYTHON train.py"}},
		{"module", []string{"PYTHON", "-m", "train"}},
		{"module, joined", []string{"PYTHON", "-Bmtrain"}},
		{"bash", []string{"bash", "-c", "PYTHON -c 'import sys' && PYTHON SCRIPT; exit $?"}},
		{"env", []string{"env", "A=1", "PYTHON", "SCRIPT"}},
		{"nohup", []string{"nohup", "PYTHON", "SCRIPT"}},
		{"nice", []string{"nice", "-n", "1", "PYTHON", "SCRIPT"}},
		{"timeout", []string{"timeout", "300", "PYTHON", "SCRIPT"}},
		{"stdbuf", []string{"stdbuf", "-oL", "PYTHON", "SCRIPT"}},
		{"time", []string{"bash", "-c", "time PYTHON SCRIPT"}},
		{"setsid", []string{"setsid", "-w", "PYTHON", "SCRIPT"}},
		{"numactl", []string{"numactl", "--localalloc", "PYTHON", "SCRIPT"}},
		{"Python", []string{"PYTHON", "LAUNCHER", "PYTHON", "SCRIPT"}},
		{"Python and a shell", []string{"PYTHON", "LAUNCHER", "sh", "-c", "PYTHON SCRIPT; exit $?"}},
		{"Python twice", []string{"PYTHON", "LAUNCHER", "PYTHON", "LAUNCHER", "env", "PYTHON", "SCRIPT"}},
		{"the same before", []string{"bash", "-c", "PYTHON SCRIPT --help; PYTHON SCRIPT"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newTrial(t)
			script := r.module(t, "train", "import os\nassert not [k for k in os.environ if k.startswith('GPURUN')]\n1/0\n")
			r.orders.Script, r.orders.Module = script, "train"
			r.module(t, "launcher", launcherScript)
			argv := slices.Clone(test.argv)
			if _, err := exec.LookPath(argv[0]); err != nil && argv[0] != "PYTHON" {
				t.Skip(err)
			}
			for i := range argv {
				argv[i] = strings.NewReplacer("PYTHON", path, "SCRIPT", script, "LAUNCHER", filepath.Join(r.modules, "launcher.py")).Replace(argv[i])
			}
			out, _ := r.job(t, argv...).CombinedOutput()
			if told := r.report(t); told == nil || told.Type != "ZeroDivisionError" || !strings.Contains(told.Traceback, "train.py") {
				t.Errorf("told of its end %+v; output:\n%s", told, out)
			}
		})
	}
}

// What gpurun cannot name is followed until it trains: the first process that does is the
// rank, and the programs before and around it are not.
func TestFirstProcessThatTrainsIsTheRank(t *testing.T) {
	path := needs(t)
	r := newTrial(t)
	other := r.module(t, "prepare", "import sys, torch\nimport os\nassert 'GPURUN_PROBE_FILE' in os.environ\ntorch.nn.Linear(2, 2).eval()(torch.zeros(2))\n")
	run := filepath.Join(r.modules, "run.sh")
	text := path + " " + other + "; " + path + " -c '1/0'; " + path + " " + testdata(t, "plain.py") + "; " + path + " -c 'import torch; 1/0'\nexit 0\n"
	if err := os.WriteFile(run, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	r.train(t, "sh", run)
	said, own := r.told(t)
	if said == nil || len(own) > 0 || said.Settings["micro_batch_size"] != "8" || r.steps(t).N != 16 {
		t.Errorf("told %+v, and %d others did", said, len(own))
	}
	if told := r.report(t); told == nil || told.Type != "" || !told.Masked || !told.Trained {
		t.Errorf("the rank ended well below a shell, and reported %+v", told)
	}
}

// A wrapper that is Python itself hands on what the rank needs, and trains nothing.
func TestRankBelowAWrapperIsReported(t *testing.T) {
	path := needs(t)
	r := newTrial(t)
	r.orders.Script = testdata(t, "plain.py")
	launcher := r.module(t, "launcher", strings.Replace(launcherScript, "raise", "#", 1))
	r.train(t, "nice", "bash", "-c", path+" "+launcher+" timeout 300 "+path+" "+r.orders.Script+"; exit $?")
	said, own := r.told(t)
	if said == nil || len(own) > 0 || said.Settings["micro_batch_size"] != "8" || r.steps(t).N != 16 {
		t.Errorf("told %+v, and %d others did", said, len(own))
	}
}

// A program that gpurun cannot name, and that becomes Python, reports its end as before.
func TestEndOfAProgramIsReported(t *testing.T) {
	r := newTrial(t)
	if err := r.job(t, "sh", "-c", "exec "+testenv.Python(t)+" -c 1/0").Run(); err == nil {
		t.Fatal("ended well")
	}
	if told := r.report(t); told == nil || told.Type != "ZeroDivisionError" {
		t.Errorf("told %+v", told)
	}
}

// torchrun runs the script several times: each is a rank, and it is none.
func TestUnderTorchrun(t *testing.T) {
	path := needs(t)
	r := newTrial(t)
	r.orders.Script = testdata(t, "plain.py")
	out, err := r.job(t, path, "-m", "torch.distributed.run", "--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", r.orders.Script).CombinedOutput()
	if strings.Contains(string(out), "'NoneType' object has no attribute 'get'") {
		t.Skip("this PyTorch's torchrun does not work with this Python")
	}
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	said, own := r.told(t)
	if said == nil || len(own) != 1 || own[0].Settings["micro_batch_size"] != "8" {
		t.Errorf("told %+v, and %+v", said, own)
	}
}

// Whatever fails in the hooks, the job continues, and gpurun gets a report.
func TestFailingHookLeavesTheJobAlone(t *testing.T) {
	needs(t)
	for _, part := range []string{"rungs", "loaders", "steps", "precision", "gate", "blocks", "snapshot"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			r := newTrial(t)
			r.orders.Script, r.troubled = testdata(t, "ranks.py"), true
			r.parts = map[string]string{part: "raise RuntimeError('no such luck')\n"}
			r.warmed(t, r.orders.Script, "alone")
			text, err := os.ReadFile(filepath.Join(r.dir, "rank0", processFile))
			if _, problems, ok := parseSaid(text); !ok || len(problems) == 0 || !strings.Contains(problems[0], "no such luck") {
				t.Errorf("%v; told %s", err, text)
			}
		})
	}
}

// Where nothing can be written, the job trains as it would.
func TestTrainingWithNowhereToWrite(t *testing.T) {
	path := needs(t)
	r := newTrial(t)
	r.orders.Script = testdata(t, "plain.py")
	cmd := r.job(t, path, r.orders.Script)
	folder := filepath.Join(r.dir, "rank0")
	if err := errors.Join(os.Remove(folder), os.WriteFile(folder, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// The remedies of the order are turned at the root's first call; without hooks a process
// reports only which could be.
func TestRemediesAreApplied(t *testing.T) {
	needs(t)
	for _, hooks := range []bool{true, false} {
		r := newTrial(t)
		r.orders = Orders{Script: testdata(t, "plain.py"), Hooks: hooks, Turn: strategy.Plan{strategy.ActivationCheckpointing: "full"}}
		out := r.warmed(t, r.orders.Script)
		said, _ := r.told(t)
		if said.Refused[strategy.OffloadActivations] == "" || said.Refused[strategy.ActivationCheckpointing] != "" { // on the CPU
			t.Errorf("refused: %v", said.Refused)
		}
		if diff := cmp.Diff([]strategy.Blocks{{Path: "blocks", Class: "Block", Count: 4}}, said.Model.Blocks); diff != "" {
			t.Error(diff)
		}
		var applied strategy.Changes
		value, line := strategy.Value("none"), ""
		if hooks {
			applied, value = strategy.Changes{strategy.ActivationCheckpointing: {"none", "full"}}, "full"
			line = "gpurun: checkpointing none→full (4 Block)\n"
		}
		if diff := cmp.Diff(applied, said.Applied); diff != "" || said.Settings[strategy.ActivationCheckpointing] != value || out != line {
			t.Errorf("%s; told %+v, wrote %q", diff, said, out)
		}
	}
}

// A rank whose batch gpurun has changed waits before its first step until it may go on.
func TestRanksWaitForEachOther(t *testing.T) {
	path := needs(t)
	r := newTrial(t)
	r.orders = Orders{Script: testdata(t, "plain.py"), Hooks: true, Batch: true, Calls: []strategy.Call{
		{Name: "torch.utils.data.DataLoader", Keyword: "batch_size", Knob: strategy.MicroBatchSize, From: 8, To: 4},
		{Name: "lightning.pytorch.Trainer", Keyword: "accumulate_grad_batches", Knob: strategy.GradientAccumulationSteps, From: 1, To: 2},
	}}
	cmd := r.job(t, path, r.orders.Script)
	facts := make(chan strategy.Fact, 100)
	steps := make(chan OptimizerStep, 100)
	stop, _ := Watch(r.dir, []int{0}, func(f strategy.Fact) { facts <- f }, func(_ int, s OptimizerStep) { steps <- s })
	t.Cleanup(stop)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said *strategy.ProcessReport
	for said == nil || !said.Waiting {
		f := next(t, facts)
		if f.Source != "probe" || strategy.As[*strategy.ProcessReport](f) == nil && f.Memory() == nil {
			t.Fatalf("fact %+v", f)
		}
		if strategy.As[*strategy.ProcessReport](f) != nil {
			said = strategy.As[*strategy.ProcessReport](f)
		}
	}
	// Only the loader could be changed: gpurun gets a report, and would stop the ranks now.
	if said.Settings[strategy.MicroBatchSize] != "4" || said.Failed[strategy.GradientAccumulationSteps] == "" || said.Failed[strategy.MicroBatchSize] == "" {
		t.Errorf("told %+v", said)
	}
	if len(steps) > 0 {
		t.Errorf("went on: %+v", <-steps)
	}
	if err := errors.Join(r.installed.Go(), r.installed.Go(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	stop()
	var last OptimizerStep
	for len(steps) > 0 {
		last = <-steps
	}
	if last.N != 32 {
		t.Errorf("the last step was %+v", last)
	}
	if said, _ := r.told(t); said.Waiting {
		t.Error("still waits")
	}
}

// A call that passes something else than gpurun takes it for is left alone.
func TestUnexpectedCallIsLeftAlone(t *testing.T) {
	needs(t)
	r := newTrial(t)
	r.orders = Orders{Script: testdata(t, "plain.py"), Hooks: true, Calls: []strategy.Call{
		{Name: "torch.utils.data.DataLoader", Keyword: "batch_size", Knob: strategy.MicroBatchSize, Where: map[string]any{"shuffle": true}, From: 64, To: 4},
		{Name: "torch.utils.data.DataLoader", Keyword: "num_workers", Knob: strategy.DataloaderWorkers, Where: map[string]any{"shuffle": 7}, From: 0, To: 1},
	}}
	out := r.warmed(t, r.orders.Script)
	said, _ := r.told(t)
	if said.Settings[strategy.DataloaderWorkers] != "0" || said.Failed[strategy.DataloaderWorkers] == "" {
		t.Errorf("told %+v", said)
	}
	if said.Settings[strategy.MicroBatchSize] != "8" || !strings.Contains(said.Failed[strategy.MicroBatchSize], "batch_size=") || len(said.Applied) > 0 || out != "" {
		t.Errorf("told %+v, wrote %q", said, out)
	}
}

// torch.compile makes the same of a job, and remedies are not tried on what it compiles.
func TestCompiledModelsAreLeftAlone(t *testing.T) {
	path := needs(t)
	if exec.Command(path, "-c", "import torch; torch.nn.Module.compile").Run() != nil {
		t.Skip("this PyTorch has no torch.compile for models")
	}
	for what, model := range map[string]bool{"model": true, "in place": true, "step": false, "optimizer": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newTrial(t)
			r.orders = Orders{Script: testdata(t, "compiled.py"), Hooks: true, Turn: strategy.Plan{strategy.ActivationCheckpointing: "full"}}
			r.parts = map[string]string{"rungs": "def survey(root): return {}\ndef apply(root, turn, tell, count): return {'refused': {k: 'compiled' for k in turn}}\n"}
			with := r.train(t, path, r.orders.Script, what)
			said, _ := r.told(t)
			r.bare = true
			if without := r.train(t, path, r.orders.Script, what); lastLine(without) != lastLine(with) {
				t.Errorf("without the probe: %swith it: %s", without, with)
			}
			if (said.Model != nil) != model || model && said.Model.Compiled != (what != "optimizer") {
				t.Errorf("told %+v", said)
			}
			if why := said.Failed[strategy.ActivationCheckpointing]; (why == "") != model {
				t.Errorf("failed: %q", why)
			}
		})
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndex(s, "\n")+1:]
}

// A Trainer's settings in the code are reported, and changed together.
func TestTrainingArguments(t *testing.T) {
	path := needs(t, "transformers", "accelerate")
	batch := func(size, accumulation int) []strategy.Call {
		return []strategy.Call{
			{Name: "transformers.TrainingArguments", Keyword: "per_device_train_batch_size", Knob: strategy.MicroBatchSize, From: size, To: 8},
			{Name: "transformers.TrainingArguments", Keyword: "gradient_accumulation_steps", Knob: strategy.GradientAccumulationSteps, From: accumulation, To: 2},
			{Name: "transformers.TrainingArguments", Keyword: "optim", Knob: strategy.Optimizer, From: "adamw_torch", To: "adafactor"},
		}
	}
	both := strategy.Changes{strategy.MicroBatchSize: {"16", "8"}, strategy.GradientAccumulationSteps: {"1", "2"}, strategy.Optimizer: {"adamw", "adafactor"}}
	for _, test := range []struct {
		name    string
		calls   []strategy.Call
		batch   [2]string
		line    string
		applied strategy.Changes
	}{
		{"as they are", nil, [2]string{"16", "1"}, "", nil},
		{"changed", batch(16, 1), [2]string{"8", "2"}, "gpurun: TrainingArguments: per_device_train_batch_size 16→8, gradient_accumulation_steps 1→2, optim ", both},
		{"subclass", batch(16, 1), [2]string{"8", "2"}, "gpurun: Arguments: per_device_train_batch_size 16→8, gradient_accumulation_steps 1→2, optim ", both},
		{"another accumulation", batch(16, 4), [2]string{"16", "1"}, "gpurun: TrainingArguments: optim ", strategy.Changes{strategy.Optimizer: {"adamw", "adafactor"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newTrial(t)
			r.orders = Orders{Script: testdata(t, "trainer.py"), Hooks: true, Calls: test.calls}
			out := r.train(t, path, r.orders.Script, test.name)
			said, _ := r.told(t)
			want := "batch " + test.batch[0] + " accumulation " + test.batch[1] + " steps 8"
			if lastLine(out) != want || !strings.Contains(out, test.line) || strings.Count(out, "gpurun: ") != min(len(test.calls), 1) {
				t.Errorf("output:\n%s", out)
			}
			plan := strategy.Plan{
				"micro_batch_size": strategy.Value(test.batch[0]), "gradient_accumulation_steps": strategy.Value(test.batch[1]), "eval_batch_size": "4",
				"activation_checkpointing": "none", "optimizer": "adamw", "dataloader_workers": "0", "precision": "fp32", "sharding": "none",
			}
			if test.calls != nil {
				plan["optimizer"] = "adafactor"
			}
			if diff := cmp.Diff(plan, said.Settings); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.applied, said.Applied); diff != "" || said.TotalSteps != 8 {
				t.Errorf("%s; %d steps in all", diff, said.TotalSteps)
			}
			if failed := said.Failed[strategy.MicroBatchSize]; (failed != "") != (test.name == "another accumulation") {
				t.Errorf("failed: %q", failed)
			}
			if s := r.steps(t); s.N != 8 || s.Total != 8 || !(s.Loss > 0) {
				t.Errorf("steps %+v", s)
			}
		})
	}
}

// Lightning's two halves of a batch, its Trainer and its loader, are changed together.
// A model without a method for checkpointing trains without it, and gpurun gets a report.
func TestTrainingArgumentsThatTheModelCannotFollow(t *testing.T) {
	path := needs(t, "transformers", "accelerate")
	r := newTrial(t)
	r.orders = Orders{Script: testdata(t, "trainer.py"), Hooks: true, Calls: []strategy.Call{
		{Name: "transformers.TrainingArguments", Keyword: "gradient_checkpointing", Knob: strategy.ActivationCheckpointing, To: true},
	}}
	out := r.train(t, path, r.orders.Script)
	said, _ := r.told(t)
	if lastLine(out) != "batch 16 accumulation 1 steps 8" || said.Failed[strategy.ActivationCheckpointing] != "Net has no gradient_checkpointing_enable" || said.Applied != nil {
		t.Errorf("told %+v, output:\n%s", said, out)
	}
}

func TestLightning(t *testing.T) {
	for _, pkg := range []string{"lightning", "pytorch_lightning"} {
		t.Run(pkg, func(t *testing.T) {
			path := needs(t, pkg)
			r := newTrial(t)
			script := testdata(t, "lightning_.py")
			r.orders = Orders{Script: script, Hooks: true, Batch: true, Calls: []strategy.Call{
				{Name: "torch.utils.data.DataLoader", Keyword: "batch_size", Knob: strategy.MicroBatchSize, Where: map[string]any{"shuffle": true}, From: 8, To: 4},
				{Name: "lightning.pytorch.Trainer", Keyword: "accumulate_grad_batches", Knob: strategy.GradientAccumulationSteps, From: 1, To: 2},
			}}
			cmd := r.job(t, path, script, pkg)
			if err := r.installed.Go(); err != nil {
				t.Fatal(err)
			}
			out, err := cmd.CombinedOutput()
			if err != nil || lastLine(string(out)) != "batch 4 accumulation 2 steps 16" {
				t.Fatalf("%v:\n%s", err, out)
			}
			said, _ := r.told(t)
			plan := strategy.Plan{
				"micro_batch_size": "4", "gradient_accumulation_steps": "2", "dataloader_workers": "0",
				"precision": "bf16", "sharding": "none", "optimizer": "sgd", "activation_checkpointing": "none",
			}
			if diff := cmp.Diff(plan, said.Settings); diff != "" || said.TotalSteps != 16 || len(said.Failed) > 0 {
				t.Errorf("%s; told %+v", diff, said)
			}
			if s := r.steps(t); s.N != 16 || s.Total != 16 {
				t.Errorf("steps %+v", s)
			}
			if said.Loss == nil || said.Loss.Scale != strategy.ScaleKept {
				t.Errorf("told %+v of a loss that Lightning divides", said.Loss)
			}
			text, err := os.ReadFile(filepath.Join(r.dir, "rank0", memoryFile))
			if m, ok := parseMeasured(text); err != nil || !ok || !m.Linger {
				t.Errorf("%v: not told that gradients are held through the next forward: %s", err, text)
			}
		})
	}
}

// The checkpoint from which a job continues is an argument of a call, too; such an order has no knob.
func TestCheckpointInTheCodeIsChanged(t *testing.T) {
	for _, test := range []struct{ modules, script, call, keyword, line string }{
		{"lightning", "lightning_.py", "lightning.pytorch.Trainer.fit", "ckpt_path", "gpurun: Trainer.fit: ckpt_path None→"},
		{"transformers", "trainer.py", "transformers.Trainer.train", "resume_from_checkpoint", "gpurun: Trainer.train: resume_from_checkpoint None→"},
	} {
		t.Run(test.modules, func(t *testing.T) {
			path := needs(t, test.modules)
			r := newTrial(t)
			missing := filepath.Join(r.home, "checkpoint-7")
			r.orders = Orders{Script: testdata(t, test.script), Hooks: true, Calls: []strategy.Call{{Name: test.call, Keyword: test.keyword, To: missing}}}
			out, err := r.job(t, path, r.orders.Script, test.modules).CombinedOutput()
			if err == nil || !strings.Contains(string(out), test.line+missing+"\n") {
				t.Errorf("%v:\n%s", err, out)
			}
			if told := r.report(t); told == nil || !strings.Contains(told.Message, missing) {
				t.Errorf("ended by %+v", told)
			}
		})
	}
}

// Accelerate's settings in the code are reported, and changed.
func TestAccelerate(t *testing.T) {
	path := needs(t, "accelerate")
	r := newTrial(t)
	r.orders = Orders{Script: testdata(t, "accelerate_.py"), Hooks: true, Calls: []strategy.Call{
		{Name: "accelerate.Accelerator", Keyword: "mixed_precision", Knob: strategy.Precision, From: "bf16", To: "no"},
		{Name: "accelerate.Accelerator", Keyword: "gradient_accumulation_steps", Knob: strategy.GradientAccumulationSteps, From: 2, To: 4},
	}}
	out := r.train(t, path, r.orders.Script)
	said, _ := r.told(t)
	plan := strategy.Plan{
		"micro_batch_size": "8", "gradient_accumulation_steps": "4", "dataloader_workers": "0",
		"precision": "fp32", "sharding": "none", "optimizer": "adamw", "activation_checkpointing": "none",
	}
	if diff := cmp.Diff(plan, said.Settings); diff != "" || !strings.Contains(out, "gpurun: Accelerator: mixed_precision bf16→no, gradient_accumulation_steps 2→4\n") || r.steps(t).N != 2 {
		t.Errorf("%s; output:\n%s", diff, out)
	}
	if said.Loss == nil || said.Loss.Scale != strategy.ScaleKept {
		t.Errorf("told %+v of a loss that Accelerate divides", said.Loss)
	}
}

// Blocks that the model itself recomputes are seen, in either of PyTorch's ways.
func TestCheckpointingIsSeen(t *testing.T) {
	needs(t)
	for way, want := range map[string]strategy.Value{"": "none", "plain": "full", "reentrant": "full"} {
		r := newTrial(t)
		r.orders.Script = testdata(t, "ranks.py")
		r.env = []string{"RECOMPUTE=" + way}
		r.warmed(t, r.orders.Script, "alone")
		if said, _ := r.told(t); said.Settings[strategy.ActivationCheckpointing] != want {
			t.Errorf("%q: told %+v", way, said)
		}
	}
}

// byValue pickles a script's own classes and functions with what they refer to, as cloudpickle
// does, and so MLflow, Ray and submitit.
const byValue = `import importlib, marshal, pickle, sys, types
def function(code, names, defaults, cells, more):
    made = types.FunctionType(marshal.loads(code), dict(names, __builtins__=__builtins__), None, defaults, tuple(types.CellType(c) for c in cells))
    made.__dict__.update(more)
    return made
def found(f):
    at = sys.modules.get(f.__module__)
    for name in f.__qualname__.split("."):
        at = getattr(at, name, None)
    return at is f
class Pickler(pickle.Pickler):
    def reducer_override(self, it):
        if isinstance(it, types.FunctionType) and (it.__module__ == "__main__" or not found(it)):
            names = {name: it.__globals__[name] for name in it.__code__.co_names if name in it.__globals__}
            return function, (marshal.dumps(it.__code__), names, it.__defaults__, [c.cell_contents for c in it.__closure__ or ()], it.__dict__)
        if isinstance(it, type) and it.__module__ == "__main__":
            return type, (it.__name__, it.__bases__, {k: v for k, v in it.__dict__.items() if k not in ("__dict__", "__weakref__")})
        if isinstance(it, types.ModuleType):
            return importlib.import_module, (it.__name__,)
        return NotImplemented
`

const pickled = `import os, subprocess, sys, torch
import byvalue
os.environ["WORLD_SIZE"] = "2"
class Net(torch.nn.Module):
    def __init__(self):
        torch.nn.Module.__init__(self)
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.layer(x)
class Descent(torch.optim.SGD):
    def step(self, closure=None):
        return torch.optim.SGD.step(self, closure)
model = Net()
optimizer = Descent(model.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.ones(20, 4), batch_size=4):
    model(x).sum().backward()
    optimizer.step()
with open("model", "wb") as file:
    byvalue.Pickler(file).dump((model, Descent, torch.save))
print(*(type(model).__dict__.keys() & {"__call__"}))
`

const unpickled = `import pickle, torch
with open("model", "rb") as file:
    model, kind, save = pickle.load(file)
optimizer = kind(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
print("it trains")
`

// What a script pickles by value has nothing of gpurun in it, and works where there is none.
func TestPickledByValue(t *testing.T) {
	path := needs(t)
	r := newTrial(t)
	r.module(t, "byvalue", byValue)
	r.orders.Script = r.module(t, "pickled", pickled)
	if out := r.warmed(t, r.orders.Script); out != "__call__\n" {
		t.Errorf("the model's class is not what this test is about: %q", out)
	}
	r.bare = true
	if out := r.train(t, path, "-c", unpickled); out != "it trains\n" {
		t.Errorf("%s", out)
	}
}
