package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// TestSlurm runs gpurun as the batch jobs of a real Slurm. GPURUN_SLURM_LAB names a program that accesses a
// Slurm: "x COMMAND" runs a shell command line where sbatch works, in a folder that all nodes share, and
// whose path here is GPURUN_SLURM_SHARE; "cut NODE" and "heal NODE" disconnect a node from the network and
// reconnect it. GPURUN_SLURM_BINARY replaces the gpurun that is built here. The test takes some five minutes.
func TestSlurm(t *testing.T) {
	lab, share := os.Getenv("GPURUN_SLURM_LAB"), os.Getenv("GPURUN_SLURM_SHARE")
	if lab == "" || share == "" {
		t.Skip("no Slurm: GPURUN_SLURM_LAB and GPURUN_SLURM_SHARE name none")
	}
	s := &slurm{lab: lab, here: filepath.Join(share, "gpurun-test")}
	testenv.Check(t, os.RemoveAll(s.here))
	s.there = strings.TrimSpace(s.x(t, "pwd")) + "/gpurun-test"
	testenv.Check(t, os.MkdirAll(s.here, 0o777))
	build := exec.Command("go", "build", "-o", filepath.Join(s.here, "gpurun"), ".")
	if ready := os.Getenv("GPURUN_SLURM_BINARY"); ready != "" {
		build = exec.Command("cp", ready, filepath.Join(s.here, "gpurun"))
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Run("jobs", func(t *testing.T) { slurmScenarios(t, s) })
	t.Run("lock", func(t *testing.T) { slurmLock(t, s.job(t, "lock")) }) // alone: it cuts a node off
}

func slurmScenarios(t *testing.T, s *slurm) {
	for name, scenario := range map[string]func(*testing.T, *slurmJob){
		"notice": slurmNotice, "limit": slurmLimit, "cancel": slurmCancel, "step": slurmStep, "standstill": slurmStandstill,
		"gpus": slurmGPUs, "array": slurmArray, "nolocks": slurmNoLocks, "resubmit": slurmTwoRuns,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(t, s.job(t, name))
		})
	}
}

// slurm is a Slurm with a folder that this machine and the nodes share.
type slurm struct {
	lab, here, there string
	env              []string // of lab
}

func (s *slurm) do(words ...string) *exec.Cmd {
	cmd := exec.Command(s.lab, words...)
	cmd.Env = s.env
	return cmd
}

func (s *slurm) run(t *testing.T, words ...string) string {
	t.Helper()
	out, err := s.do(words...).Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", words, err, out)
	}
	return string(out)
}

func (s *slurm) x(t *testing.T, command string) string {
	t.Helper()
	return s.run(t, "x", command)
}

// slurmJob is one scenario's job in its own folder. Its trainer makes a step and a checkpoint every STEPTIME
// seconds, up to STEPS.
type slurmJob struct {
	*slurm
	name, here, there, id string
	prelude               string // of its batch script
}

const slurmTrainer = `i=0
[ "$1" = --resume ] && i=${2##*-}
trap 'echo TERM; sleep ${LINGER:-0}; exit 0' TERM
trap 'echo USR1' USR1
echo "training from $i"
while [ $i -lt ${STEPS:-1000} ]; do
  sleep ${STEPTIME:-0.5}; i=$((i+1)); echo "step $i"
  [ -n "$UNSAVED" ] || { mkdir -p ckpt/step-$i; echo x > ckpt/step-$i/model.bin; }
done
`

const slurmTOML = `[job]
program = ["sh", "train.sh"]
[launch]
nproc_per_node = 1
%s
[progress]
step = 'step (\d+)'
[resume]
latest = "ckpt/step-*"
args = ["--resume", "{latest}"]
`

func (s *slurm) job(t *testing.T, name string) *slurmJob {
	t.Helper()
	j := &slurmJob{slurm: s, name: name, here: filepath.Join(s.here, name), there: s.there + "/" + name}
	testenv.Check(t, os.Mkdir(j.here, 0o777))
	j.write(t, "train.sh", slurmTrainer)
	j.write(t, "train.toml", fmt.Sprintf(slurmTOML, ""))
	return j
}

func (j *slurmJob) write(t *testing.T, name, text string) {
	t.Helper()
	testenv.Check(t, os.WriteFile(filepath.Join(j.here, name), []byte(text), 0o777))
}

// submit submits a batch script, which requeues itself as in docs/schedulers.md.
func (j *slurmJob) submit(t *testing.T, options, script string) {
	t.Helper()
	j.write(t, "job.sh", "#!/bin/bash\n#SBATCH --nodes=1 --ntasks-per-node=1 --mem=100 --requeue --open-mode=append -o "+j.there+"/out "+options+`
cd `+j.there+`
export PATH=$PATH:`+j.slurm.there+`
echo "=== start ${SLURM_RESTART_COUNT:-0} on $SLURMD_NODENAME"
`+script+`
c=$?
echo "=== code $c"
case $c in 75|137) scontrol requeue ${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}; sleep 60;; esac
exit $c
`)
	j.id = strings.TrimSpace(j.x(t, "sbatch --parsable "+j.there+"/job.sh"))
	t.Cleanup(func() {
		_ = j.do("x", "scancel "+j.id).Run() // it has ended, or the test has
		if t.Failed() {
			t.Logf("output of job %s:\n%s", j.id, j.out())
		}
	})
}

func (j *slurmJob) out() string {
	text, _ := os.ReadFile(filepath.Join(j.here, "out"))
	return string(text)
}

// await waits until the output of the job matches.
func (j *slurmJob) await(t *testing.T, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(7 * time.Minute); !re.MatchString(j.out()); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q", pattern)
		}
	}
}

func (j *slurmJob) has(t *testing.T, pattern string, times int) {
	t.Helper()
	if got := len(regexp.MustCompile(pattern).FindAllString(j.out(), -1)); got != times {
		t.Errorf("%q is there %d times, want %d", pattern, got, times)
	}
}

// runs returns the run directories of the job.
func (j *slurmJob) runs(t *testing.T, want int) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(j.here, ".gpurun", "*", "[^.]*"))
	if err != nil || len(dirs) != want {
		t.Fatalf("%d run directories, want %d (%v)", len(dirs), want, err)
	}
	return dirs
}

func (j *slurmJob) verdict(t *testing.T) launcher.Verdict {
	t.Helper()
	return readVerdict(t, j.runs(t, 1)[0])
}

// A notice stops the job at its next checkpoint, and the requeued job continues from there.
func slurmNotice(t *testing.T, j *slurmJob) {
	j.submit(t, "--time=10", `export STEPS=20; srun gpurun train.toml`)
	j.await(t, `step 5\n`)
	j.x(t, "scancel -s USR1 "+j.id)
	j.await(t, `=== code 0`)
	j.has(t, `SIGUSR1: a notice that the time here ends at `, 1)
	j.has(t, `=== code 75`, 1)
	j.has(t, `resuming the run: attempt 0: stopped after the notice SIGUSR1, before the time here ends`, 1)
	j.has(t, `already ended`, 0)
	j.has(t, `training from 0`, 1)
	if v := j.verdict(t); v.Code != 0 || len(v.Attempts) != 2 {
		t.Errorf("verdict %+v", v)
	}
}

// The time limit itself, announced by --signal: the job never reaches it.
func slurmLimit(t *testing.T, j *slurmJob) {
	j.submit(t, "--time=2 --signal=USR1@30", `export STEPS=320; srun gpurun train.toml`)
	j.await(t, `=== code 0`)
	j.has(t, `DUE TO TIME LIMIT`, 0)
	j.has(t, `training from 0\n`, 1)
	j.has(t, `(?m)^step 320$`, 1)
	if states := j.x(t, "sacct -D -X -n -o state -j "+j.id+" 2>/dev/null || true"); strings.Contains(states, "TIMEOUT") {
		t.Errorf("states %q", states)
	}
}

// There is a verdict when Slurm kills gpurun, even if ranks end slowly.
func slurmCancel(t *testing.T, j *slurmJob) {
	j.submit(t, "", `export LINGER=1000; srun gpurun train.toml`)
	j.await(t, `step 2\n`)
	j.x(t, "scancel "+j.id)
	for end := time.Now().Add(90 * time.Second); j.x(t, "squeue -h -j "+j.id+" 2>/dev/null || true") != ""; time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatal("the job does not end")
		}
	}
	if v := j.verdict(t); v.Outcome != "stopped" || v.Code != 143 || len(v.Attempts) != 1 {
		t.Errorf("verdict %+v", v)
	}
}

// An extra step before gpurun, only in the first start, does not make it another job.
func slurmStep(t *testing.T, j *slurmJob) {
	j.submit(t, "", `export STEPS=20; [ -n "$SLURM_RESTART_COUNT" ] || srun hostname; srun gpurun train.toml`)
	j.await(t, `step 5\n`)
	j.x(t, "scontrol requeue "+j.id)
	j.await(t, `=== code 0`)
	j.has(t, `training from 0\n`, 1)
	j.runs(t, 1)
}

// A batch script with several gpuruns continues each of them.
func slurmTwoRuns(t *testing.T, j *slurmJob) {
	j.submit(t, "", `export STEPS=4; srun gpurun train.toml; export STEPS=30 ; srun gpurun train.toml`)
	j.await(t, `step 10\n`)
	j.x(t, "scontrol requeue "+j.id)
	j.await(t, `=== code 0`)
	j.has(t, `this run has already ended`, 1)
	j.has(t, `training from 0\n`, 2)
	j.runs(t, 2)
}

// A job that is requeued again and again without progress ends.
func slurmStandstill(t *testing.T, j *slurmJob) {
	j.write(t, "train.toml", fmt.Sprintf(slurmTOML, `notice_grace = "1s"`))
	j.submit(t, "", `export UNSAVED=1; (sleep 3; scancel -s USR1 $SLURM_JOB_ID) & srun gpurun train.toml`)
	j.await(t, `=== code [^7]`)
	j.has(t, `=== code 75`, 6)
	j.has(t, `=== code 1\n`, 1)
	if v := j.verdict(t); v.Outcome != "failed" || !strings.Contains(v.Reason, "started this job again 5 times without any progress") {
		t.Errorf("verdict %+v", v)
	}
}

// If GPUs that Slurm promised are missing, the job does not train on the CPU.
func slurmGPUs(t *testing.T, j *slurmJob) {
	j.write(t, "cpu.toml", strings.Replace(fmt.Sprintf(slurmTOML, ""), "[launch]", "env = { CUDA_VISIBLE_DEVICES = \"\" }\n[launch]", 1))
	j.submit(t, "--gpus-per-node=1", `export STEPS=2; srun gpurun train.toml; echo "=== gpu $?"; srun gpurun cpu.toml`)
	j.await(t, `=== code`)
	j.has(t, `=== gpu 75`, 1)
	j.has(t, `error: Slurm promised GPUs \(.*\), and none is usable`, 1)
	j.has(t, `=== code 0`, 1)
	j.has(t, `training from 0`, 1)
}

// Elements of an array that share their checkpoints get a warning.
func slurmArray(t *testing.T, j *slurmJob) {
	j.submit(t, "--array=1-2", `export STEPS=2; srun gpurun train.toml`)
	j.await(t, `(?s)=== code 0.*=== code 0`)
	j.has(t, `warning: this is element \d of an array, .*ckpt/step-\*: one may continue from another's`, 2)
	j.runs(t, 2)
}

// withoutLocks starts a program for which flock fails as on a file system without
// locks: a seccomp filter answers it with ENOSYS.
const withoutLocks = `import ctypes, os, platform, struct, sys
flock = {"x86_64": 73, "aarch64": 32}[platform.machine()]
program = b"".join(struct.pack("HBBI", *i) for i in [
    (0x20, 0, 0, 0), (0x15, 0, 1, flock), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7fff0000)])
buffer = ctypes.create_string_buffer(program)
class fprog(ctypes.Structure): _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(fprog(4, ctypes.addressof(buffer)))) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[1], sys.argv[1:])
`

// gpurun runs on a file system without locks.
func slurmNoLocks(t *testing.T, j *slurmJob) {
	j.write(t, "nolocks.py", withoutLocks)
	j.submit(t, "", `export STEPS=16
srun --overlap python3 nolocks.py gpurun --run-dir run train.toml &
sleep 2; grep -q host run/lock.holder && echo "=== held by a file"; srun --overlap python3 nolocks.py gpurun --run-dir run train.toml; echo "=== second $?"; wait %1`)
	j.await(t, `=== code`)
	j.has(t, `=== held by a file`, 1)
	j.has(t, `=== second 2`, 1)
	j.has(t, `error: the run directory .*run is in use: another gpurun runs in it \(host n\d, pid \d+\)`, 1)
	j.has(t, `=== code 0`, 1)
}

// A disconnected node continues and holds the run directory, while Slurm has restarted the job elsewhere: the
// new start waits.
func slurmLock(t *testing.T, j *slurmJob) {
	j.submit(t, "", `export STEPS=140; srun gpurun train.toml`)
	j.await(t, `step 3\n`)
	node := regexp.MustCompile(`=== start 0 on (\S+)`).FindStringSubmatch(j.out())[1]
	if err := j.do("cut", node).Run(); err != nil {
		t.Skipf("%s cannot cut a node off", j.lab)
	}
	t.Cleanup(func() { _ = j.do("heal", node).Run() })
	j.await(t, `an earlier start of this job still holds the run directory .*\(host `+node+`, pid \d+\); waiting for it, 0s of at most 4m0s`)
	j.await(t, `=== code 0`)
	j.has(t, `=== start 1`, 1)
	j.runs(t, 1)
}

// sweepTrainer is the train.py of the array in examples.
const sweepTrainer = `import os, sys, time
out, step = sys.argv[sys.argv.index("--out") + 1], 0
os.makedirs(out, exist_ok=True)
while step < 3 or os.path.exists("more"):
    step += 1
    time.sleep(0.1)
    print("step", step, flush=True)
    if step == 2:
        open(out + "/rank0", "w").close()
`

// TestSlurmSeriesDocumented runs the documented scripts that make several jobs, an array and a chain of
// nights. Preempted jobs continue and train, and a scancel is final.
func TestSlurmSeriesDocumented(t *testing.T) {
	lab(t)
	s := openSlurm(t)
	examples := contents(t, filepath.Join("..", "examples", "slurm"))
	for _, how := range []string{"preempted", "cancelled"} {
		series := map[string]*slurmJob{}
		for name, script := range map[string]string{
			"array":   strings.Replace(examples["array.sbatch"], "--array=1-6", "--array=1-2", 1),
			"nightly": examples["nightly.sbatch"],
		} {
			j := s.nodesJob(t, name+" "+how)
			j.write(t, "train.py", sweepTrainer)
			j.documented(t, script)
			series[name] = j
		}
		for name, j := range series {
			for _, mark := range map[string][]string{"array": {"out/1/rank0", "out/2/rank0"}, "nightly": {"rank0"}}[name] {
				await(t, "steps of "+j.name, func() bool { _, err := os.Stat(filepath.Join(j.here, mark)); return err == nil })
			}
		}
		if how == "preempted" {
			s.x(t, `sbatch --partition=urgent --nodes=3 --exclusive -o /dev/null --wrap "sleep 1"`)
		}
		for name, j := range series {
			switch {
			case how == "cancelled":
				j.x(t, "scancel "+j.id)
				await(t, "the end of "+j.name, func() bool { return j.ended(t) })
				if states := fields(j.series(t), "JobState"); slices.ContainsFunc(states, func(state string) bool { return state != "CANCELLED" }) {
					t.Errorf("%s: %q", j.name, states)
				}
			default:
				// The elements were requeued; the second night has queued the third.
				await(t, "what follows on "+j.name, func() bool {
					all := j.series(t)
					return strings.Contains(all, "Restarts=1") || strings.Count(all, "JobId=") >= 3 && name != "array"
				})
				rest(t, j.here)
				await(t, "the end of "+j.name, func() bool { return j.ended(t) })
			}
			outcome, runs := strategy.Trained, map[string]int{"array": 2, "nightly": 1}[name]
			if how == "cancelled" {
				outcome = strategy.Stopped
			}
			if got := j.verdicts(t, outcome); len(got) != runs {
				t.Errorf("%s: %d runs are %s, want %d\n%s", j.name, len(got), outcome, runs, j.series(t))
			}
		}
	}
}

// series returns Slurm's report on a job, on its array's elements and on the jobs that it queued.
func (j *slurmJob) series(t *testing.T) string {
	t.Helper()
	var own []string
	for line := range strings.Lines(j.x(t, "scontrol --oneliner show job")) {
		if strings.Contains(line, "StdOut="+j.there+"/out") || strings.Contains(line, "ArrayJobId="+j.id+" ") || strings.HasPrefix(line, "JobId="+j.id+" ") {
			own = append(own, line)
		}
	}
	return strings.Join(own, "")
}

// ended reports whether none of them runs or waits.
func (j *slurmJob) ended(t *testing.T) bool {
	t.Helper()
	return !slices.ContainsFunc(fields(j.series(t), "JobState"), func(state string) bool {
		return slices.Contains([]string{"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED"}, state)
	})
}

// verdicts returns the verdicts of the job's runs with an outcome.
func (j *slurmJob) verdicts(t *testing.T, outcome strategy.Outcome) (paths []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(j.here, ".gpurun", "*", "*", "verdict.json"))
	testenv.Check(t, err)
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), `"outcome": "`+string(outcome)+`"`) {
			paths = append(paths, path)
		}
	}
	return paths
}

// namedPython returns the interpreter that a variable names. Without it the test is skipped.
func namedPython(t *testing.T, variable string) string {
	t.Helper()
	python := os.Getenv(variable)
	if python == "" {
		t.Skipf("%s names no interpreter", variable)
	}
	return python
}

// TestSlurmSubmitit submits the example for submitit. When the job's time ends, the ranks end with gpurun, submitit
// requeues the job, and the run continues.
func TestSlurmSubmitit(t *testing.T) {
	lab(t)
	python := namedPython(t, "GPURUN_TEST_SUBMITIT")
	s := openSlurm(t)
	j := s.nodesJob(t, "submitit")
	script := contents(t, filepath.Join(testenv.Root(t), "examples", "slurm"))["submit.py"]
	j.write(t, "submit.py", strings.NewReplacer("nodes=4", "nodes=3", "gpus_per_node=8", `mem="100MB"`).Replace(script))
	j.write(t, "train.toml", strings.Replace(nodesTOML, "nproc_per_node = 1", "nproc_per_node = 1\nnotice_grace = \"1s\"", 1))
	out := j.x(t, "cd "+j.there+"; export PATH=$PATH:"+s.there+" XDG_STATE_HOME="+j.there+"/state "+crewMark+j.here+"; "+python+" submit.py")
	j.id = strings.TrimSpace(out)
	t.Cleanup(func() {
		_ = j.do("x", "scancel "+j.id).Run() // it has ended, or the test has
		if t.Failed() {
			t.Log(j.x(t, "cd "+j.there+"; tail -n 200 log/*_log.*"))
		}
	})
	j.steps(t)
	j.x(t, "scancel -s USR2 "+j.id)
	await(t, "the requeue", func() bool { return j.field(t, "Restarts") == "1" })
	rest(t, j.here)
	await(t, "the end", func() bool { return j.field(t, "JobState") == "COMPLETED" })
	v := j.verdict(t)
	if v.Code != 0 || len(v.Attempts) != 3 || v.Attempts[1].Cause != "preempted" || v.Attempts[2].Plan[strategy.MicroBatchSize] != "4" {
		t.Errorf("%+v", v)
	}
}

// lightningTrainer trains with Lightning, endlessly while the file "more" is there.
const lightningTrainer = `import os, sys, time
import torch
import lightning as L
from lightning.pytorch.plugins.environments import SLURMEnvironment


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, i):
        time.sleep(0.1)
        if self.global_step == 2:
            open(f"rank{self.global_rank}", "w").write(f"{os.getpid()}\n")
        self.trainer.should_stop = self.global_step >= 3 and not os.path.exists("more")
        print("step", self.global_step, flush=True)
        return self.layer(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = torch.utils.data.TensorDataset(torch.randn(4000, 4))
trainer = L.Trainer(accelerator="cpu", devices=1, num_nodes=3, strategy="ddp", max_epochs=100, default_root_dir="root", logger=False, enable_progress_bar=False,
                    enable_checkpointing=False, plugins=[SLURMEnvironment()] if "slurm" in sys.argv else [])
environment = type(trainer._accelerator_connector.cluster_environment).__name__
print("environment", environment, "rank", trainer.global_rank, "of", trainer.world_size, flush=True)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=4))
print("trained to step", trainer.global_step, flush=True)
`

// TestSlurmLightning trains with Lightning on three nodes: with the environment that it chooses itself, torchrun's, and
// with its plugin for Slurm, which saves and requeues the job after SIGUSR1. The run continues in both cases.
func TestSlurmLightning(t *testing.T) {
	lab(t)
	python := namedPython(t, "GPURUN_TEST_LIGHTNING")
	s := openSlurm(t)
	for plugin, environment := range map[string]string{"none": "TorchElasticEnvironment", "slurm": "SLURMEnvironment"} {
		t.Run(plugin, func(t *testing.T) {
			j := s.nodesJob(t, "lightning "+plugin)
			j.write(t, "train.py", lightningTrainer)
			j.write(t, "train.toml", "[job]\nscript = \"train.py\"\nargs = [\""+plugin+"\"]\n[launch]\nnproc_per_node = 1\nnotice_grace = \"1s\"\n[progress]\nstep = 'step (\\d+)'\n")
			j.prelude = "export PYTHON_EXEC=" + python + "\n"
			j.launch(t, "--time=10", `trap "" USR1; srun --mpi=pmi2 -l sh -c 'trap "" USR1; . ./each.sh'`)
			j.steps(t)
			j.x(t, "scancel -s USR1 "+j.id)
			await(t, "the requeue", func() bool { return j.field(t, "Restarts") == "1" })
			rest(t, j.here)
			j.await(t, `=== code 0`)
			if v := j.verdict(t); v.Code != 0 || len(v.Attempts) != 2 {
				t.Errorf("%+v", v)
			}
			log := j.x(t, "cd "+j.there+"; cat .gpurun/train/*/attempt-*/rank*/std*.log .gpurun/train/*/attempt-*/node-*/rank*/std*.log")
			for _, rank := range []string{"0", "1", "2"} {
				if n := len(regexp.MustCompile(`environment `+environment+` rank `+rank+` of 3\n`).FindAllString(log, -1)); n != 2 {
					t.Errorf("%s: rank %s started %d times\n%s", environment, rank, n, log)
				}
			}
		})
	}
}
