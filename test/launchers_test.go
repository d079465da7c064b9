package test

import (
	"cmp"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// mpirun returns a command of Open MPI's mpirun in a job's folder. Without it the test is skipped.
func mpirun(t *testing.T, dir string, words ...string) *exec.Cmd {
	t.Helper()
	program, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("there is no mpirun")
	}
	if version, err := exec.Command(program, "--version").Output(); err != nil || !strings.Contains(string(version), "Open MPI") {
		t.Skipf("%s is not Open MPI's: %v", program, err)
	}
	cmd := exec.Command(program, words...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), crewMark+dir, "XDG_STATE_HOME="+filepath.Join(dir, "state"), "PATH="+filepath.Dir(binary(t))+":"+os.Getenv("PATH"),
		"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	return cmd
}

// ended runs a command to its end, checks that none of its processes is left, and returns its output and exit code.
func ended(t *testing.T, cmd *exec.Cmd) (string, int) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	await(t, "the end of all processes", func() bool { return len(marked(crewMark+cmd.Dir)) == 0 })
	return string(out), cmd.ProcessState.ExitCode()
}

// nodesProgram is the command of nodesTOML.
const nodesProgram = `program = ["sh", "train.sh"]
args = ["--batch-size", "8"]
[launch]
nproc_per_node = 1`

// asNode starts a command on a "node": this machine under another host name.
const asNode = "#!/bin/sh\nhost=$1; shift\nexec unshare -Uru sh -c \"hostname $host; $*\"\n"

// TestMpirunOnNodes runs the documented line, which starts gpurun once on each of three nodes. Rank 2 runs out of memory, and all nodes
// continue with another plan.
func TestMpirunOnNodes(t *testing.T) {
	t.Parallel()
	unshared(t, "-Uru")
	dir := home(t, map[string]string{"train.sh": nodesTrainer, "oom": nodesOOM, "train.toml": strings.Replace(nodesTOML, nodesProgram, `command = "torchrun --nproc-per-node 1 --no-python sh train.sh --batch-size 8"`, 1), "agent": asNode, "hosts": "n1 slots=4\nn2 slots=4\nn3 slots=4\n"})
	blocks, err := testenv.Blocks(contents(t, filepath.Join(testenv.Root(t), "docs"))["cluster.md"])
	testenv.Check(t, err)
	at := slices.IndexFunc(blocks, func(b testenv.Block) bool { return strings.HasPrefix(b.Text, "mpirun ") })
	words := strings.Fields(strings.NewReplacer("GPURUN_HEAD=n1", "GPURUN_HEAD=127.0.0.1", "torchrun --nproc-per-node 8 train.py", "--run-dir run train.toml").Replace(blocks[at].Text))
	out, code := ended(t, mpirun(t, dir, append([]string{"--mca", "plm_rsh_agent", filepath.Join(dir, "agent")}, words[1:]...)...))
	if code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	v := readVerdict(t, filepath.Join(dir, "run"))
	if len(v.Attempts) != 2 || v.Attempts[0].Rank == nil || *v.Attempts[0].Rank != 2 || v.Attempts[1].Plan[strategy.MicroBatchSize] != "4" {
		t.Errorf("%+v\n%s", v, out)
	}
}

// Several gpuruns on a node are refused, with the line to type.
func TestMpirunSeveralTimesOnANode(t *testing.T) {
	t.Parallel()
	dir := home(t, map[string]string{"train.sh": nodesTrainer, "train.toml": nodesTOML})
	out, code := ended(t, mpirun(t, dir, "--oversubscribe", "-np", "2", "gpurun", "train.toml"))
	if code != 2 || !strings.Contains(out, "gpurun: hint: mpirun --map-by ppr:1:node gpurun torchrun …\n") {
		t.Errorf("code %d\n%s", code, out)
	}
	if _, err := os.Stat(filepath.Join(dir, ".gpurun")); err == nil {
		t.Error("there is a run directory")
	}
}

// initsMPI calls MPI_Init in each rank. With batches of 8 it then runs out of memory.
const initsMPI = `import ctypes, os, sys
mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
if mpi.MPI_Init(None, None):
    sys.exit("MPI_Init failed")
print("MPI_Init in rank", os.environ["RANK"], flush=True)
batch = int(sys.argv[2])
if batch > 4:
    sys.stderr.write(open("oom").read())
    sys.stderr.flush()
    os._exit(1)
print("step 1", flush=True)
mpi.MPI_Finalize()
`

// Ranks that call MPI_Init are rescued, too: they are no processes of mpirun, which would end with them.
func TestMpirunWithRanksThatUseMPI(t *testing.T) {
	t.Parallel()
	python := testenv.Python(t)
	dir := home(t, map[string]string{"train.py": initsMPI, "oom": nodesOOM, "train.toml": strings.Replace(nodesTOML, nodesProgram, `command = "torchrun --nproc-per-node 2 train.py --batch-size 8"`, 1)})
	cmd := mpirun(t, dir, "--map-by", "ppr:1:node", "gpurun", "--run-dir", "run", "train.toml")
	cmd.Env = append(cmd.Env, "PYTHON_EXEC="+python)
	if err := exec.Command(python, "-c", `import ctypes; ctypes.CDLL("libmpi.so.40")`).Run(); err != nil {
		t.Skip("there is no libmpi.so.40")
	}
	out, code := ended(t, cmd)
	if code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	v := readVerdict(t, filepath.Join(dir, "run"))
	if len(v.Attempts) != 2 || v.Attempts[1].Plan[strategy.MicroBatchSize] != "4" || strings.Count(out, "MPI_Init in rank 0\n") != 2 {
		t.Errorf("%+v\n%s", v, out)
	}
}

// SIGTERM to mpirun ends the ranks within the time that odls_base_sigkill_timeout gives gpurun, and the verdict is written.
func TestMpirunStopped(t *testing.T) {
	t.Parallel()
	dir := nodesJob(t)
	cmd := mpirun(t, dir, "--map-by", "ppr:1:node", "--mca", "odls_base_sigkill_timeout", "5", "gpurun", "--run-dir", "run", "train.toml")
	cmd.Env = append(cmd.Env, "FITS=8")
	testenv.Check(t, cmd.Start())
	await(t, "steps", func() bool { _, err := os.Stat(filepath.Join(dir, "rank0")); return err == nil })
	testenv.Check(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait() // its code is mpirun's own
	await(t, "the end of all processes", func() bool { return len(marked(crewMark+dir)) == 0 })
	if v := readVerdict(t, filepath.Join(dir, "run")); v.Code != 143 || v.Outcome != strategy.Stopped {
		t.Errorf("%+v", v)
	}
}

// A rayNode is a Ray of one node.
type rayNode struct {
	program, address, dir string
}

// openRay starts a Ray. GPURUN_TEST_RAY names its program; without one the test is skipped.
func openRay(t *testing.T) *rayNode {
	t.Helper()
	program, err := exec.LookPath(cmp.Or(os.Getenv("GPURUN_TEST_RAY"), "ray"))
	if err != nil {
		t.Skipf("there is no Ray: %v", err)
	}
	dir, err := os.MkdirTemp("", "ray-") // its sockets need a short path
	testenv.Check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	port := freePort(t)
	// Its processes end with the namespace.
	words := append(unshared(t, "--pid", "--fork", "--mount-proc", "--kill-child"), program, "start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", freePort(t),
		"--dashboard-port", port, "--num-cpus", "2", "--num-gpus", "0", "--object-store-memory", "80000000", "--temp-dir", dir, "--disable-usage-stats")
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+filepath.Dir(binary(t))+":"+os.Getenv("PATH"))
	log, err := os.Create(filepath.Join(dir, "log"))
	testenv.Check(t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	testenv.Check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	r := &rayNode{program: program, address: "http://127.0.0.1:" + port, dir: dir}
	await(t, "Ray's jobs", func() bool { return r.run("job", "list").Run() == nil })
	return r
}

// freePort returns a port that no process listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Check(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	testenv.Check(t, err)
	return port
}

func (r *rayNode) run(words ...string) *exec.Cmd {
	cmd := exec.Command(r.program, words...)
	cmd.Env = append(os.Environ(), "RAY_ADDRESS="+r.address, "PATH="+filepath.Dir(r.program)+":"+os.Getenv("PATH"))
	return cmd
}

// submit runs the documented line, adapted to a job's folder and a machine without GPUs.
func (r *rayNode) submit(t *testing.T, dir string, options ...string) (out string, err error) {
	t.Helper()
	blocks, err := testenv.Blocks(contents(t, filepath.Join(testenv.Root(t), "docs"))["schedulers.md"])
	testenv.Check(t, err)
	at := slices.IndexFunc(blocks, func(b testenv.Block) bool { return strings.HasPrefix(b.Text, "ray job submit ") })
	line := strings.NewReplacer("ray job submit", "ray job submit "+strings.Join(options, " "), "--entrypoint-num-gpus 8", "", "/data/runs/night", dir+"/run", "/data/train.toml", dir+"/train.toml").Replace(blocks[at].Text)
	cmd := r.run()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", line}
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// savesLate saves 5 s after SIGTERM, which is more than Ray waits by default.
const savesLate = `trap 'sleep 5; echo saved >saved; exit 0' TERM
echo "step 1"; echo x >ready
while :; do sleep 0.1; done
`

// A Ray job that is gpurun is rescued, ends with gpurun's code, and when Ray stops it the ranks have the time to
// save.
func TestRayJobs(t *testing.T) {
	lab(t)
	r := openRay(t)
	dir := nodesJob(t)
	rest(t, dir)
	edit := func(dir string) {
		nights{job: dir}.edit(t, "train.toml", "[job]", "[job]\nworkdir = "+strconv.Quote(dir))
	}
	edit(dir)
	nights{job: dir}.edit(t, "train.sh", "[ $RANK = 2 ] || exec sleep 1000", "")
	out, err := r.submit(t, dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if v := readVerdict(t, filepath.Join(dir, "run")); v.Code != 0 || len(v.Attempts) != 2 || v.Attempts[1].Plan[strategy.MicroBatchSize] != "4" {
		t.Errorf("%+v\n%s", v, out)
	}

	late := home(t, map[string]string{"train.sh": savesLate, "train.toml": nodesTOML})
	edit(late)
	if out, err := r.submit(t, late, "--no-wait", "--submission-id", "late"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	await(t, "steps", func() bool { _, err := os.Stat(filepath.Join(late, "ready")); return err == nil })
	if out, err := r.run("job", "stop", "late").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(late, "saved")); err != nil {
		t.Error(err)
	}
	if v := readVerdict(t, filepath.Join(late, "run")); v.Code != 143 {
		t.Errorf("%+v", v)
	}

	bug := home(t, map[string]string{"train.sh": "exit 3\n", "train.toml": nodesTOML})
	edit(bug)
	out, err = r.submit(t, bug)
	if v := readVerdict(t, filepath.Join(bug, "run")); err == nil || v.Code != 1 || !strings.Contains(out, "failed with exit code 1") {
		t.Errorf("%v, %+v\n%s", err, v, out)
	}
}
