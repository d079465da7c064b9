package test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// A crew is a launch on several nodes, of gpuruns that all run on this machine.
type crew struct {
	dir   string // folder of the job; a variable in the environment of the crew's processes identifies them
	nodes []*crewNode
}

// A crewNode is one gpurun of a crew.
type crewNode struct {
	*exec.Cmd
	said said
	over chan struct{}
}

// said collects the output of a process, and can be read while the process runs.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// crewMark marks the processes of a crew.
const crewMark = "GPURUN_TEST_CREW="

// newCrew starts three gpuruns in a job's folder.
func newCrew(t *testing.T, dir string, env map[int][]string) *crew {
	t.Helper()
	return crewOf(t, 3, dir, env)
}

// crewOf starts gpuruns in a job's folder, each with the variables that env has for its
// number; FILE names another train.toml.
func crewOf(t *testing.T, nodes int, dir string, env map[int][]string) *crew {
	t.Helper()
	c := &crew{dir: dir}
	t.Cleanup(func() { c.end(t) })
	for k := range nodes {
		n := &crewNode{Cmd: exec.Command("sh", "-c", `exec "$0" --run-dir run "${FILE:-train.toml}"`, binary(t)), over: make(chan struct{})}
		n.Dir, n.Stdout, n.Stderr = dir, &n.said, &n.said
		n.Env = append(os.Environ(), crewMark+dir, "XDG_STATE_HOME="+filepath.Join(dir, "state"), "GPURUN_JOB_ID="+dir, "GPURUN_SECRET="+strings.Repeat("0123456789abcdef", 4),
			"GPURUN_NNODES="+strconv.Itoa(nodes), "GPURUN_NODE_RANK="+strconv.Itoa(k), "GPURUN_HEAD=127.0.0.1")
		n.Env = append(n.Env, env[k]...)
		testenv.Check(t, n.Start())
		c.nodes = append(c.nodes, n)
		go func() {
			_ = n.Wait() // its code is checked
			close(n.over)
		}()
	}
	return c
}

// end shows the output of a crew if the test failed, and ends its remaining processes.
func (c *crew) end(t *testing.T) {
	for k, n := range c.nodes {
		_ = n.Process.Kill() // it has ended, or hangs
		<-n.over
		if t.Failed() {
			t.Logf("node %d, code %d:\n%s", k, n.ProcessState.ExitCode(), n.said.String())
		}
	}
	for _, pid := range marked(crewMark + c.dir) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// exits waits for the end of all nodes, and checks their codes, and that no process is left.
func (c *crew) exits(t *testing.T, codes ...int) {
	t.Helper()
	for k, want := range codes {
		n := c.nodes[k]
		await(t, fmt.Sprintf("the end of node %d", k), func() bool {
			select {
			case <-n.over:
				return true
			default:
				return false
			}
		})
		if code := n.ProcessState.ExitCode(); code != want {
			t.Errorf("node %d ended with %d, want %d", k, code, want)
		}
	}
	await(t, "the end of all processes", func() bool { return len(marked(crewMark+c.dir)) == 0 })
}

// marked returns the processes that have a variable in their environment.
func marked(variable string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(append([]byte{0}, text...), []byte("\x00"+variable+"\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// verdict returns the verdict of the run in the folder "run".
func (c *crew) verdict(t *testing.T) (v launcher.Verdict) {
	t.Helper()
	if v = readVerdict(t, filepath.Join(c.dir, "run")); len(v.Attempts) == 0 {
		t.Fatalf("%+v", v)
	}
	return v
}

func (c *crew) says(t *testing.T, node int, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(c.nodes[node].said.String()) {
		t.Errorf("node %d does not say %q", node, pattern)
	}
}

// lossesOf returns the losses of the last attempt.
func lossesOf(out string) []string {
	all := regexp.MustCompile(`step \d+ loss \S+`).FindAllString(out, -1)
	return all[max(0, len(all)-3):]
}

// TestNodes is one training on three nodes with the real PyTorch: the plan after the rescue of node 2 has the
// same losses as without a failure. With Slurm, TestSlurmNodes shows this on Slurm's nodes, and this test
// runs only with make lab.
func TestNodes(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	if err := exec.CommandContext(t.Context(), filepath.Join("..", ".ci", "slurm.sh"), "build").Run(); err == nil {
		lab(t)
	}
	interpreter := []string{"PYTHON_EXEC=" + python}
	tight := map[int][]string{0: interpreter, 1: interpreter, 2: {interpreter[0], "ROOM_MIB=560"}}

	c := newCrew(t, copyOf(t, filepath.Join("testdata", "nodes")), tight)
	calm := copyOf(t, filepath.Join("testdata", "nodes"))
	nights{job: calm}.edit(t, "train.toml", `"64"`, `"32", "--accum", "2"`)
	undisturbed := newCrew(t, calm, map[int][]string{0: interpreter, 1: interpreter, 2: interpreter})
	c.exits(t, 0, 0, 0)
	v := c.verdict(t)
	first, last := v.Attempts[0], v.Attempts[len(v.Attempts)-1]
	if len(v.Attempts) != 2 || first.Cause != "host-oom" || first.Rank == nil || *first.Rank != 2 || last.Plan[strategy.MicroBatchSize] != "32" || samples(first.Plan) != samples(last.Plan) {
		t.Fatalf("%+v", v)
	}
	c.says(t, 0, `(?m)^gpurun: attempt 0: .*rank 2.* → micro batch 64→32, accumulation 1→2 \(global batch 192 kept\)`)

	undisturbed.exits(t, 0, 0, 0)
	if v := undisturbed.verdict(t); len(v.Attempts) != 1 || v.Code != 0 {
		t.Errorf("%+v", v)
	}
	if a, b := lossesOf(c.nodes[0].said.String()), lossesOf(undisturbed.nodes[0].said.String()); len(a) != 3 || strings.Join(a, "\n") != strings.Join(b, "\n") {
		t.Errorf("losses %q, and undisturbed %q", a, b)
	}
}

// nodesTrainer runs out of memory on node 2 with more than 4 samples, and makes steps while the file "more"
// is there, PACE seconds each. BUG makes rank 1 fail.
const nodesTrainer = `#!/bin/sh
trap '' 25 # a disk that is full is none of its business
batch=8
[ "$1" = --batch-size ] && batch=$2
[ "$3" = --accum ] && accum=$4
[ -n "$BUG" ] && [ $RANK = 1 ] && { sleep 0.2; printf 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    f()\nValueError: no such thing\n' >&2; exit 3; }
if [ $batch -gt ${FITS:-4} ]; then
    [ $RANK = 2 ] || exec sleep 1000
    cat oom >&2
    exit 1
fi
echo "rank $RANK trains with $batch x ${accum:-1}"
i=0
while [ $i -lt 3 ] || [ -e more ]; do
    i=$((i+1)); sleep ${PACE:-0.1}
    echo "step $i"
    [ $i = 2 ] && echo $$ >rank$RANK.new && mv rank$RANK.new rank$RANK
done
exit 0
`

const nodesOOM = `Traceback (most recent call last):
  File "/job/train.py", line 10, in <module>
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 300.00 MiB is free. Process 4242 has 78.80 GiB memory in use. Including non-PyTorch memory, this process has 78.80 GiB memory in use. Of the allocated memory 77.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.
`

const nodesTOML = `[job]
program = ["sh", "train.sh"]
args = ["--batch-size", "8"]
[launch]
nproc_per_node = 1
[knobs]
micro_batch_size            = { arg = "--batch-size" }
gradient_accumulation_steps = { arg = "--accum", default = 1 }
[progress]
step = 'step (\d+)'
`

// nodesJob returns a job that trains endlessly once it is rescued.
func nodesJob(t *testing.T) string {
	return home(t, map[string]string{"train.sh": nodesTrainer, "oom": nodesOOM, "train.toml": nodesTOML, "more": ""})
}

// awaitSteps waits until all ranks train, and returns their pids.
func (c *crew) awaitSteps(t *testing.T) (pids []int) {
	t.Helper()
	for rank := range c.nodes {
		path := filepath.Join(c.dir, "rank"+strconv.Itoa(rank))
		await(t, path, func() bool { _, err := os.Stat(path); return err == nil })
		text, err := os.ReadFile(path)
		testenv.Check(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		testenv.Check(t, err)
		pids = append(pids, pid)
	}
	return pids
}

// rest lets the ranks train to their end.
func rest(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"more", "rank0", "rank1", "rank2"} {
		testenv.Check(t, os.RemoveAll(filepath.Join(dir, name)))
	}
}

// again restarts an interrupted launch, which continues with its plan and trains.
func again(t *testing.T, dir string, attempts int) {
	t.Helper()
	rest(t, dir)
	c := newCrew(t, dir, nil)
	c.exits(t, 0, 0, 0)
	v := c.verdict(t)
	if v.Code != 0 || len(v.Attempts) != attempts {
		t.Fatalf("%+v", v)
	}
	for _, a := range v.Attempts[1:] {
		if !maps.Equal(a.Plan, v.Attempts[1].Plan) || a.Plan[strategy.MicroBatchSize] != "4" {
			t.Errorf("attempt %d with %s", a.N, a.Plan)
		}
	}
}

// TestNodesKilled kills gpuruns of a launch that was rescued once.
func TestNodesKilled(t *testing.T) {
	t.Parallel()
	t.Run("follower", func(t *testing.T) {
		t.Parallel()
		c := newCrew(t, nodesJob(t), nil)
		c.awaitSteps(t)
		testenv.Check(t, c.nodes[2].Process.Kill())
		c.exits(t, 75, 75, -1)
		if v := c.verdict(t); v.Code != 75 || len(v.Attempts) != 2 || !strings.Contains(v.Reason, "node 2 (") || !strings.Contains(v.Reason, "was lost: its gpurun is gone") {
			t.Errorf("%+v", v)
		}
		again(t, c.dir, 3)
	})
	t.Run("head", func(t *testing.T) {
		t.Parallel()
		c := newCrew(t, nodesJob(t), nil)
		c.awaitSteps(t)
		testenv.Check(t, c.nodes[0].Process.Kill())
		c.exits(t, -1, 75, 75)
		for _, k := range []int{1, 2} {
			c.says(t, k, `gpurun: error: node `+strconv.Itoa(k)+` \(.*\): the gpurun of node 0 is gone: the ranks of this node were ended`)
		}
		again(t, c.dir, 3)
	})
	t.Run("rank", func(t *testing.T) {
		t.Parallel()
		c := newCrew(t, nodesJob(t), nil)
		pids := c.awaitSteps(t)
		rest(t, c.dir)
		testenv.Check(t, os.WriteFile(filepath.Join(c.dir, "more"), nil, 0o600))
		testenv.Check(t, syscall.Kill(pids[2], syscall.SIGKILL))
		c.exits(t, 1, 1, 1)
		v := c.verdict(t)
		if last := v.Attempts[len(v.Attempts)-1]; v.Outcome != strategy.Failed || len(v.Attempts) != 2 || last.Rank == nil || *last.Rank != 2 || last.ExitCode != 128+9 {
			t.Errorf("%+v", v)
		}
	})
}

// Ctrl-Z at node 0 pauses the ranks of all nodes, and they all continue with node 0.
func TestNodesPaused(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nodesJob(t), nil)
	pids := c.awaitSteps(t)
	head := c.nodes[0].Process
	testenv.Check(t, head.Signal(syscall.SIGTSTP))
	for _, pid := range append(pids, head.Pid) {
		await(t, "a pause", func() bool { return paused(pid) })
	}
	testenv.Check(t, head.Signal(syscall.SIGCONT))
	for _, pid := range append(pids, head.Pid) {
		await(t, "the end of the pause", func() bool { return stateOf(pid) != "T" })
	}
	rest(t, c.dir)
	c.exits(t, 0, 0, 0)
}

// A node with another secret ends within seconds with the reason. So does node 0.
func TestNodesWrongSecret(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nodesJob(t), map[int][]string{2: {"GPURUN_SECRET=" + strings.Repeat("ab", 32)}})
	await(t, "a warning", func() bool {
		return strings.Contains(c.nodes[0].said.String(), "claims to be node 2, and does not know the secret of GPURUN_SECRET: it is refused")
	})
	<-c.nodes[2].over
	if code := c.nodes[2].ProcessState.ExitCode(); code != 2 {
		t.Errorf("node 2 ended with %d", code)
	}
	c.says(t, 2, `gpurun: error: node 2.*: node 0 answers, but has another secret than this node: GPURUN_SECRET_FILE or GPURUN_SECRET has to be the same on all nodes`)
}

// Nodes that wait for another name it within seconds, with what to check.
func TestNodesReportThatTheyWait(t *testing.T) {
	t.Parallel()
	c := crewOf(t, 1, nodesJob(t), map[int][]string{0: {"GPURUN_NNODES=3"}})
	away := crewOf(t, 1, nodesJob(t), map[int][]string{0: {"GPURUN_NNODES=3", "GPURUN_NODE_RANK=2"}})
	for node, want := range map[*crewNode]string{
		c.nodes[0]:    "gpurun: waiting for node 1, node 2 of 3, for 5m0s at most: each node starts gpurun with the same command, and has to reach the port of node 0\n",
		away.nodes[0]: "gpurun: node 2 of 3: waiting for node 0 on 127.0.0.1, for 5m0s at most: ",
	} {
		await(t, want, func() bool { return strings.Contains(node.said.String(), want) })
		testenv.Check(t, node.Process.Signal(syscall.SIGTERM))
	}
	c.exits(t, 143)
	away.exits(t, 143)
}

// A second Ctrl-C at node 0 kills the ranks of all nodes, even with a long grace.
func TestSecondSignalKillsAllNodes(t *testing.T) {
	t.Parallel()
	const deaf = "trap '' INT TERM\necho x >rank$RANK.new; mv rank$RANK.new rank$RANK\nwhile :; do sleep 0.1; done\n"
	c := newCrew(t, home(t, map[string]string{"train.sh": deaf, "train.toml": "[job]\ncommand = \"torchrun --shutdown-timeout 1h --nproc-per-node 1 --no-python sh train.sh\"\n"}), nil)
	for rank := range c.nodes {
		path := filepath.Join(c.dir, "rank"+strconv.Itoa(rank))
		await(t, path, func() bool { _, err := os.Stat(path); return err == nil })
	}
	head := c.nodes[0]
	testenv.Check(t, head.Process.Signal(syscall.SIGINT))
	await(t, "a grace", func() bool { return strings.Contains(head.said.String(), "a second Ctrl-C kills them at once") })
	testenv.Check(t, head.Process.Signal(syscall.SIGINT))
	c.exits(t, 130, 130, 130)
}

// paused reports whether a process is stopped. A shell that has just started a program may wait in another
// state, for a child that was paused before it executed the program.
func paused(pid int) bool {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	child, err := strconv.Atoi(strings.TrimSpace(string(children)))
	return stateOf(pid) == "T" || err == nil && stateOf(pid) == "D" && stateOf(child) == "T"
}

// stateOf returns the kernel's letter for a process's state: "T" means stopped.
func stateOf(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	return after[:min(1, len(after))]
}

// A bug of the job is reported as the job's on all nodes.
func TestNodesBug(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nodesJob(t), map[int][]string{0: {"FITS=8"}, 1: {"FITS=8", "BUG=1"}, 2: {"FITS=8"}})
	c.exits(t, 1, 1, 1)
	if v := c.verdict(t); v.Code != 1 || len(v.Attempts) != 1 || v.Attempts[0].Rank == nil || *v.Attempts[0].Rank != 1 || !strings.Contains(v.Attempts[0].Error, "ValueError: no such thing") {
		t.Errorf("%+v", v)
	}
}

// A node with another train.toml does not train, and nor do the others: waiting does not fix that.
func TestNodesDisagree(t *testing.T) {
	t.Parallel()
	dir := nodesJob(t)
	if err := os.WriteFile(filepath.Join(dir, "other.toml"), []byte(strings.Replace(nodesTOML, `"8"`, `"16"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCrew(t, dir, map[int][]string{2: {"FILE=other.toml"}})
	c.exits(t, 2, 2, 2)
	c.says(t, 0, `node 2.*its command, train.toml or configuration differs from those of node 0`)
	c.says(t, 2, `gpurun: error: node 2.*: node 0 refuses this node: its command, train.toml or configuration differs from those of node 0`)
}
