package test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// openSlurm starts a Slurm of three nodes, with a gpurun that all of them have.
func openSlurm(t *testing.T, settings ...string) *slurm {
	t.Helper()
	program, err := filepath.Abs(filepath.Join("..", ".ci", "slurm.sh"))
	testenv.Check(t, err)
	dir := t.TempDir()
	s := &slurm{lab: program, env: append(os.Environ(), append(settings, "SLURM_RUN="+filepath.Join(dir, "slurm"), "SLURM_OWNER="+strconv.Itoa(os.Getpid()))...), here: filepath.Join(dir, "slurm", "share"), there: "/shared"}
	out, err := s.do("up").CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		t.Skip(strings.TrimSpace(string(out)))
	}
	t.Cleanup(func() { _ = s.do("down").Run() }) // it writes nothing elsewhere
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command("cp", binary(t), filepath.Join(s.here, "gpurun")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return s
}

// TestSlurmNodes runs gpurun on three nodes of a real Slurm.
func TestSlurmNodes(t *testing.T) {
	lab(t)
	t.Parallel()
	s := openSlurm(t)
	t.Run("at once", func(t *testing.T) {
		for name, scene := range map[string]func(*testing.T, *slurmJob){
			"trained and rescued": nodesRescued, "follower killed": nodesFollowerKilled,
			"head killed": nodesHeadKilled, "rank killed": nodesRankKilled, "exhausted": nodesExhausted, "bug": nodesBug, "requeued": nodesRequeued,
			"array": nodesArray, "cancelled": nodesCancelled, "notice": nodesNotice, "other version": nodesOtherVersion, "stranger": nodesStranger,
			"two generations": nodesTwoGenerations, "task numbers": nodesTaskNumbers, "pipe": nodesPipe, "declined": nodesDeclined, "mpirun": nodesMpirun,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scene(t, s.nodesJob(t, name))
			})
		}
	})
	for name, scene := range map[string]func(*testing.T, *slurmJob){"cut and healed": nodesCut, "isolated": nodesIsolated} {
		t.Run(name, func(t *testing.T) { // alone: the network is shared
			scene(t, s.nodesJob(t, name))
		})
	}
}

// TestSlurmNodesDocumented runs the batch scripts of the docs and the examples unchanged, except for GPUs. A
// preempted job is requeued and trains, a cancelled one is not.
func TestSlurmNodesDocumented(t *testing.T) {
	lab(t)
	s := openSlurm(t)
	for _, how := range []string{"preempted", "cancelled"} {
		var jobs []*slurmJob
		for name, script := range documentedScripts(t) {
			j := s.nodesJob(t, name+" "+how)
			j.documented(t, script)
			jobs = append(jobs, j)
		}
		for _, j := range jobs {
			await(t, "steps of "+j.name, func() bool { _, err := os.Stat(filepath.Join(j.here, "rank0")); return err == nil })
		}
		if how == "preempted" {
			s.x(t, `sbatch --partition=urgent --nodes=3 --exclusive -o /dev/null --wrap "sleep 1"`)
		}
		for _, j := range jobs {
			if how == "preempted" {
				j.preempted(t)
				continue
			}
			j.x(t, "scancel "+j.id)
			await(t, "the end of "+j.name, func() bool { return j.field(t, "JobState") == "CANCELLED" })
			if v := j.verdict(t); v.Code != 143 || v.Outcome != strategy.Stopped || j.field(t, "Restarts") != "0" {
				t.Errorf("%s: %+v", j.name, v)
			}
		}
	}
}

// preempted checks that a job ends with 75 at its preemption, is requeued by its script, and trains.
func (j *slurmJob) preempted(t *testing.T) {
	t.Helper()
	await(t, "the requeue of "+j.name, func() bool { return j.field(t, "Restarts") == "1" })
	rest(t, j.here)
	await(t, "the end of "+j.name, func() bool { return j.field(t, "JobState") == "COMPLETED" })
	j.has(t, `preemption: a notice that the time here ends`, 1)
	j.has(t, `resuming the run: `, 1)
	if v := j.verdict(t); v.Code != 0 || len(v.Attempts) != 2 {
		t.Errorf("%s: %+v", j.name, v)
	}
}

// TestSlurmRequeuesDocumented runs the scripts whose notice comes otherwise: where Slurm requeues by the exit code, and
// where it signals the batch shell only. Both jobs continue and train.
func TestSlurmRequeuesDocumented(t *testing.T) {
	lab(t)
	s := openSlurm(t, "SLURM_EXTRA=RequeueExit=75,137")
	examples := contents(t, filepath.Join(testenv.Root(t), "examples", "slurm"))
	for name, signal := range map[string]string{"requeue-exit": "", "signal-batch": "--batch "} {
		t.Run(name, func(t *testing.T) {
			j := s.nodesJob(t, name)
			j.documented(t, examples[name+".sbatch"])
			await(t, "steps of "+j.name, func() bool { _, err := os.Stat(filepath.Join(j.here, "rank0")); return err == nil })
			j.x(t, "scancel "+signal+"--signal=USR1 "+j.id)
			await(t, "the requeue of "+j.name, func() bool { return j.field(t, "Restarts") == "1" })
			rest(t, j.here)
			await(t, "the end of "+j.name, func() bool { return j.field(t, "JobState") == "COMPLETED" })
			j.has(t, `SIGUSR1: a notice that the time here ends`, 1)
			j.has(t, `resuming the run: `, 1)
			if v := j.verdict(t); v.Code != 0 || len(v.Attempts) != 2 {
				t.Errorf("%+v", v)
			}
		})
	}
}

// documentedScripts returns the batch scripts of docs and examples that run one command, by name.
func documentedScripts(t *testing.T) map[string]string {
	t.Helper()
	examples := contents(t, filepath.Join(testenv.Root(t), "examples", "slurm"))
	scripts := map[string]string{"one-node": examples["one-node.sbatch"], "many-nodes": examples["many-nodes.sbatch"], "preemptible": examples["preemptible.sbatch"], "signal-batch": examples["signal-batch.sbatch"]}
	docs := contents(t, filepath.Join(testenv.Root(t), "docs"))
	for _, page := range []string{"cluster.md", "schedulers.md"} {
		blocks, err := testenv.Blocks(docs[page])
		testenv.Check(t, err)
		at := slices.IndexFunc(blocks, func(b testenv.Block) bool { return strings.Contains(b.Text, "#SBATCH") })
		scripts[page] = blocks[max(at, 0)].Text
	}
	for name, text := range scripts {
		if !strings.Contains(text, "scontrol requeue") || !strings.Contains(text, "srun") {
			t.Fatalf("%s: %q", name, text)
		}
	}
	return scripts
}

// documented submits a script, adapted to this Slurm and the job.
func (j *slurmJob) documented(t *testing.T, script string) {
	t.Helper()
	t.Cleanup(func() { _ = j.do("x", "scancel "+j.id).Run() }) // it has ended, or the test has
	script = regexp.MustCompile(` ?--(gpus-per-node|begin|chdir|partition)=\S+`).ReplaceAllString(strings.ReplaceAll(script, "--nodes=4", "--nodes=3"), "")
	script = regexp.MustCompile(`(?m)^#SBATCH\n|^#!.*\n`).ReplaceAllString(script, "")
	own := "#!/bin/bash\n#SBATCH --mem=100 -o " + j.there + "/out\n"
	begin := "cd " + j.there + "; export PATH=$PATH:" + j.slurm.there + " FITS=8 XDG_STATE_HOME=" + j.there + "/state " + crewMark + j.here + "\n"
	at := strings.LastIndex(script, "#SBATCH")
	at += strings.Index(script[at:], "\n") + 1
	j.write(t, "job.sh", own+script[:at]+begin+script[at:])
	if m := regexp.MustCompile(`(\w+\.sbatch)\)`).FindStringSubmatch(script); m != nil { // it queues itself
		j.write(t, m[1], own+script[:at]+begin+script[at:])
	}
	j.id = strings.TrimSpace(j.x(t, "sbatch --parsable "+j.there+"/job.sh"))
}

// field returns a field of Slurm's report on the job.
func (j *slurmJob) field(t *testing.T, name string) string {
	t.Helper()
	return strings.Join(fields(j.x(t, "scontrol --oneliner show job "+j.id), name), " ")
}

// fields returns the values of a field in scontrol's output.
func fields(text, name string) (values []string) {
	for _, m := range regexp.MustCompile(`\b`+name+`=(\S*)`).FindAllStringSubmatch(text, -1) {
		values = append(values, m[1])
	}
	return values
}

// nodesJob returns a job of TestNodes on three nodes.
func (s *slurm) nodesJob(t *testing.T, name string) *slurmJob {
	t.Helper()
	name = strings.ReplaceAll(name, " ", "-")
	j := &slurmJob{slurm: s, name: name, here: filepath.Join(s.here, name), there: s.there + "/" + name}
	testenv.Check(t, os.Mkdir(j.here, 0o777))
	for file, text := range map[string]string{"train.sh": nodesTrainer, "oom": nodesOOM, "train.toml": nodesTOML, "more": "", "each.sh": `gpurun ${FILE:-train.toml}
c=$?
echo "ended with $c"
exit $c
`} {
		j.write(t, file, text)
	}
	return j
}

// torch makes the job use the real PyTorch.
func (j *slurmJob) torch(t *testing.T) {
	t.Helper()
	python := testenv.Torch(t)
	for file, text := range contents(t, filepath.Join("testdata", "nodes")) {
		j.write(t, file, text)
	}
	j.prelude = "export PYTHON_EXEC=" + python + "\n"
}

// onNodes runs gpurun on all nodes. Each node prints how it ended. The lines of a node begin with its number.
const onNodes = `srun --mpi=pmi2 -l sh each.sh`

// withSmallNode is like onNodes, but the first plan needs more memory than node 2 has.
const withSmallNode = `srun --mpi=pmi2 -l sh -c '[ $SLURM_NODEID = 2 ] && export ROOM_MIB=560; . ./each.sh'`

// launch submits the job. Its markers identify its processes.
func (j *slurmJob) launch(t *testing.T, options, script string) {
	t.Helper()
	t.Cleanup(func() {
		await(t, "the end of all processes of "+j.name, func() bool { return len(marked(crewMark+j.here)) == 0 })
	})
	j.submit(t, "--nodes=3 "+options, "export "+crewMark+j.here+" XDG_STATE_HOME="+j.there+"/state\n"+j.prelude+script)
}

// pid returns the pid of a node's gpurun, as this machine numbers it.
func (j *slurmJob) pid(t *testing.T, node int) int {
	t.Helper()
	for _, pid := range marked(crewMark + j.here) {
		proc := filepath.Join("/proc", strconv.Itoa(pid))
		words, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		if strings.HasPrefix(string(words), "gpurun\x00") && strings.Contains(string(environ), "\x00SLURM_NODEID="+strconv.Itoa(node)+"\x00") {
			return pid
		}
	}
	t.Fatalf("node %d has no gpurun", node)
	return 0
}

func (j *slurmJob) kill(t *testing.T, pid int) {
	t.Helper()
	testenv.Check(t, syscall.Kill(pid, syscall.SIGKILL))
}

// One launch ends with a plan after node 2 ran out of memory. The other trains undisturbed with this plan.
// Their losses are the same.
func nodesRescued(t *testing.T, j *slurmJob) {
	j.torch(t)
	calm := j.slurm.nodesJob(t, "undisturbed")
	calm.torch(t)
	nights{job: calm.here}.edit(t, "train.toml", `"64"`, `"32", "--accum", "2"`)
	calm.launch(t, "", onNodes)
	j.launch(t, "", withSmallNode)
	for _, each := range []*slurmJob{calm, j} {
		each.await(t, `=== code 0`)
		each.has(t, `(?m)^\d: ended with 0$`, 3)
	}
	if v := calm.verdict(t); v.Outcome != strategy.Trained || len(v.Attempts) != 1 {
		t.Errorf("%+v", v)
	}
	v := j.verdict(t)
	if len(v.Attempts) != 2 || v.Attempts[0].Rank == nil || *v.Attempts[0].Rank != 2 || v.Attempts[1].Plan[strategy.MicroBatchSize] != "32" || samples(v.Attempts[0].Plan) != samples(v.Attempts[1].Plan) {
		t.Fatalf("%+v", v)
	}
	if a, b := lossesOf(j.out()), lossesOf(calm.out()); len(a) != 3 || strings.Join(a, "\n") != strings.Join(b, "\n") {
		t.Errorf("losses %q, and undisturbed %q", a, b)
	}
}

// A launch script that ends in a pipe ends with 0 on all nodes, also on the one whose rank
// ran out of memory. The job is rescued and trains.
func nodesPipe(t *testing.T, j *slurmJob) {
	j.torch(t)
	j.write(t, "launch.sh", `"$PYTHON_EXEC" train.py "$@" 2>&1 | tee log$RANK`)
	nights{job: j.here}.edit(t, "train.toml", `script = "train.py"`, `program = ["sh", "launch.sh"]`)
	j.launch(t, "", withSmallNode)
	j.await(t, `=== code`)
	j.has(t, `(?m)^\d: ended with 0$`, 3)
	v := j.verdict(t)
	if v.Code != 0 || len(v.Attempts) != 2 || v.Attempts[0].Rank == nil || *v.Attempts[0].Rank != 2 || v.Attempts[1].Plan[strategy.MicroBatchSize] != "32" {
		t.Fatalf("%+v", v)
	}
	if losses := lossesOf(j.out()); len(losses) != 3 {
		t.Errorf("losses %q", losses)
	}
}

// mpirun in a batch script starts gpurun on the nodes of the job, with the numbers and names that Slurm lists.
func nodesMpirun(t *testing.T, j *slurmJob) {
	if j.x(t, "command -v mpirun || true") == "" {
		t.Skip("there is no mpirun")
	}
	rest(t, j.here)
	j.launch(t, "", `export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; mpirun --map-by ppr:1:node sh each.sh`)
	j.await(t, `=== code 0`)
	j.has(t, `(?m)^ended with 0$`, 3)
	v := j.verdict(t)
	if len(v.Attempts) != 2 || v.Attempts[0].Rank == nil || *v.Attempts[0].Rank != 2 || v.Attempts[1].Plan[strategy.MicroBatchSize] != "4" {
		t.Errorf("%+v", v)
	}
}

// A node that cannot take part reports the reason to the others: they do not wait for it, and nothing is
// started.
func nodesDeclined(t *testing.T, j *slurmJob) {
	j.launch(t, "", `srun --mpi=pmi2 -l sh -c '[ $SLURM_NODEID = 2 ] && export FILE=none.toml; . ./each.sh'`)
	j.await(t, `=== code 2`)
	j.has(t, `(?m)^\d: ended with 2$`, 3)
	j.has(t, `0: gpurun: error: start attempt 0: node 2 \(n3\) cannot take part: .*none\.toml`, 1)
	j.has(t, `2: gpurun: error: .*none\.toml`, 1)
}

// A script that uses the numbers of Slurm's tasks is one training of all ranks.
func nodesTaskNumbers(t *testing.T, j *slurmJob) {
	python := testenv.Torch(t)
	j.write(t, "train.py", contents(t, filepath.Join("testdata", "tasks"))["train.py"])
	j.write(t, "train.toml", "[job]\nscript = \"train.py\"\n[launch]\nnproc_per_node = 2\n")
	j.prelude = "export PYTHON_EXEC=" + python + "\n"
	j.launch(t, "", onNodes)
	j.await(t, `=== code 0`)
	j.has(t, `warning: none of the`, 0)
	log := j.x(t, "cd "+j.there+"; cat .gpurun/train/*/attempt-0/rank*/stdout.log .gpurun/train/*/attempt-0/node-*/rank*/stdout.log | sort")
	if want := "rank 0 of 6\nrank 1 of 6\nrank 2 of 6\nrank 3 of 6\nrank 4 of 6\nrank 5 of 6\n"; log != want {
		t.Errorf("%q, want %q", log, want)
	}
}

// goesOn checks that the launch was requeued, and continued with its plan.
func (j *slurmJob) goesOn(t *testing.T) {
	t.Helper()
	rest(t, j.here)
	j.await(t, `=== code 0`)
	j.has(t, `=== start 1`, 1)
	v := j.verdict(t)
	if v.Code != 0 || len(v.Attempts) != 3 {
		t.Fatalf("%+v", v)
	}
	for _, a := range v.Attempts[1:] {
		if a.Plan[strategy.MicroBatchSize] != "4" {
			t.Errorf("attempt %d with %s", a.N, a.Plan)
		}
	}
}

func (j *slurmJob) steps(t *testing.T) []int {
	t.Helper()
	return (&crew{dir: j.here, nodes: make([]*crewNode, 3)}).awaitSteps(t)
}

func nodesFollowerKilled(t *testing.T, j *slurmJob) {
	j.launch(t, "", onNodes)
	j.steps(t)
	j.kill(t, j.pid(t, 2))
	j.await(t, `=== code 137`)
	j.has(t, `(?m)^[01]: ended with 75$`, 2)
	j.has(t, `(?m)^2: ended with 137$`, 1)
	j.has(t, `0: gpurun: error: attempt 1: node 2 \(n3\) was lost: its gpurun is gone`, 1)
	j.goesOn(t)
}

func nodesHeadKilled(t *testing.T, j *slurmJob) {
	j.launch(t, "", onNodes)
	j.steps(t)
	j.kill(t, j.pid(t, 0))
	j.await(t, `=== code 137`)
	j.has(t, `(?m)^[12]: ended with 75$`, 2)
	j.has(t, `(?m)^[12]: gpurun: error: node [12] \(n[23]\): the gpurun of node 0 is gone: the ranks of this node were ended`, 2)
	j.goesOn(t)
}

// The rank's pid is in the nodes' own namespace.
func nodesRankKilled(t *testing.T, j *slurmJob) {
	j.launch(t, "", onNodes)
	pids := j.steps(t)
	j.slurm.run(t, "on", "n3", "kill -9 "+strconv.Itoa(pids[2]))
	j.await(t, `=== code 1\n`)
	j.has(t, `(?m)^\d: ended with 1$`, 3)
	if v := j.verdict(t); v.Outcome != strategy.Failed || *v.Attempts[1].Rank != 2 || v.Attempts[1].ExitCode != 128+9 {
		t.Errorf("%+v", v)
	}
}

func nodesExhausted(t *testing.T, j *slurmJob) {
	j.launch(t, "", "export FITS=0; "+onNodes)
	j.await(t, `=== code 12\n`)
	j.has(t, `(?m)^\d: ended with 12$`, 3)
	if v := j.verdict(t); v.Outcome != strategy.Exhausted || len(v.Attempts) != 4 {
		t.Errorf("%+v", v)
	}
}

func nodesBug(t *testing.T, j *slurmJob) {
	j.launch(t, "", "export FITS=8 BUG=1; "+onNodes)
	j.await(t, `=== code 1\n`)
	j.has(t, `(?m)^\d: ended with 1$`, 3)
	if v := j.verdict(t); v.Outcome != strategy.Failed || *v.Attempts[0].Rank != 1 || !strings.Contains(v.Reason, "ValueError: no such thing") {
		t.Errorf("%+v", v)
	}
}

func nodesRequeued(t *testing.T, j *slurmJob) {
	j.launch(t, "", onNodes)
	j.steps(t)
	j.x(t, "scontrol requeue "+j.id)
	j.await(t, `SIGTERM: the ranks have `) // or they train to their end first
	j.goesOn(t)
	j.has(t, `resuming the run: `, 1)
}

// Each element of an array is a separate launch.
func nodesArray(t *testing.T, j *slurmJob) {
	rest(t, j.here)
	j.launch(t, "--array=1-2", onNodes)
	j.await(t, `(?s)=== code 0.*=== code 0`)
	j.has(t, `(?m)^\d: ended with 0$`, 6)
	j.runs(t, 2)
}

func nodesCancelled(t *testing.T, j *slurmJob) {
	j.launch(t, "", `srun --mpi=pmi2 -l gpurun train.toml`)
	j.steps(t)
	j.x(t, "scancel "+j.id)
	await(t, "the end of the job", func() bool { return j.x(t, "squeue -h -j "+j.id+" 2>/dev/null || true") == "" })
	if v := j.verdict(t); v.Outcome != strategy.Stopped || v.Code != 143 {
		t.Errorf("%+v", v)
	}
}

// A notice before the time limit stops all nodes, and the requeued job continues.
func nodesNotice(t *testing.T, j *slurmJob) {
	j.write(t, "train.toml", strings.Replace(nodesTOML, "nproc_per_node = 1", "nproc_per_node = 1\nnotice_grace = \"1s\"", 1))
	j.launch(t, "--time=10", strings.Replace(onNodes, "sh each.sh", `bash -c 'trap "" USR1; . ./each.sh'`, 1))
	j.steps(t)
	j.x(t, "scancel -s USR1 "+j.id)
	j.await(t, `=== code 75`)
	j.has(t, `(?m)^\d: ended with 75$`, 3)
	j.goesOn(t)
}

// asVersion returns a program with another version of the same length in its build information.
func asVersion(t *testing.T, program, version string) []byte {
	t.Helper()
	text, err := os.ReadFile(program)
	testenv.Check(t, err)
	found := regexp.MustCompile(`\tgithub\.com/gpurun/gpurun\t([^\t\n]{7,})\t`).FindSubmatchIndex(text)
	if found == nil {
		t.Fatalf("%s does not say of which version it is", program)
	}
	copy(text[found[2]:], version)
	return text
}

// A node that runs another gpurun is refused, and named.
func nodesOtherVersion(t *testing.T, j *slurmJob) {
	testenv.Check(t, os.WriteFile(filepath.Join(j.here, "other"), asVersion(t, binary(t), "v0.99.9"), 0o755))
	rest(t, j.here)
	j.launch(t, "", `mkdir -p old; mv other old/gpurun; `+strings.Replace(onNodes, "sh each.sh", `sh -c '[ $SLURM_NODEID = 1 ] && PATH=$PWD/old:$PATH; . ./each.sh'`, 1))
	j.await(t, `=== code 2\n`)
	j.has(t, `(?m)^\d: ended with 2$`, 3)
	j.has(t, `0: gpurun: error: .*node 1 \(n2\) cannot take part: it runs gpurun v0\.99\.9\S*, and node 0 runs `, 1)
}

// A process that connects to the head's port without credentials changes nothing.
func nodesStranger(t *testing.T, j *slurmJob) {
	j.launch(t, "", onNodes)
	j.steps(t)
	out := j.slurm.run(t, "on", "n2", `python3 - <<'P'
import socket, ssl
context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
found = 0
for port in range(20011, 32011):
    try: raw = socket.create_connection(("10.77.0.1", port), 2)
    except OSError: continue
    found += 1
    raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 1000)
    try: print("answered", raw.recv(100))
    except OSError as e: print("closed", e)
    try:
        s = context.wrap_socket(socket.create_connection(("10.77.0.1", port), 2)); s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); print("let in" if s.recv(1) else "closed")
    except OSError as e: print("refused", e)
print("ports", found)
P`)
	if strings.Contains(out, "let in") || !strings.Contains(out, "ports ") || strings.Contains(out, "ports 0") {
		t.Errorf("a stranger: %s", out)
	}
	rest(t, j.here)
	j.await(t, `=== code 0`)
	j.has(t, `(?m)^\d: ended with 0$`, 3)
}

// A second launch of the same job in the same allocation, in parallel with the first, is separate from it.
func nodesTwoGenerations(t *testing.T, j *slurmJob) {
	j.launch(t, "", `srun --overlap --mpi=pmi2 -l sh each.sh & sleep 1; srun --overlap --mpi=pmi2 -l sh each.sh; c=$?; wait %1; [ $c = 0 ]`)
	j.steps(t)
	rest(t, j.here)
	j.await(t, `=== code 0`)
	j.has(t, `(?m)^\d: ended with 0$`, 6)
	for _, dir := range j.runs(t, 2) {
		if v := readVerdict(t, dir); v.Code != 0 {
			t.Errorf("%s: %+v", dir, v)
		}
	}
}

// A node whose network is cut and comes back continues.
func nodesCut(t *testing.T, j *slurmJob) {
	j.launch(t, "", onNodes)
	j.steps(t)
	j.slurm.run(t, "cut", "n2")
	t.Cleanup(func() { _ = j.slurm.do("heal", "n2").Run() })
	j.await(t, `0: gpurun: warning: nothing was received from node 1 \(n2\) for 3\ds`)
	j.slurm.run(t, "heal", "n2")
	rest(t, j.here)
	j.await(t, `=== code 0`)
	j.has(t, `(?m)^\d: ended with 0$`, 3)
	if v := j.verdict(t); len(v.Attempts) != 2 {
		t.Errorf("%+v", v)
	}
}

// Two followers do not reach each other, while both reach the head: the ranks fail for this reason, not for
// memory. The same plan continues once they do.
func nodesIsolated(t *testing.T, j *slurmJob) {
	j.torch(t)
	j.slurm.run(t, "isolate", "n2", "n3")
	t.Cleanup(func() { _ = j.slurm.do("join", "n2", "n3").Run() })
	j.launch(t, "", "export TIMEOUT=20; "+onNodes)
	j.await(t, `0: gpurun: attempt 1: the same plan`)
	j.slurm.run(t, "join", "n2", "n3")
	j.await(t, `=== code 0`)
	j.has(t, `(?m)^\d: ended with 0$`, 3)
	v := j.verdict(t)
	for _, a := range v.Attempts[:len(v.Attempts)-1] {
		if a.Cause != "nccl-error" && a.Cause != "nccl-timeout" {
			t.Errorf("%+v", a)
		}
	}
}
