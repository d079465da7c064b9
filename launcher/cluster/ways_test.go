package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/test/testenv"
)

// A way is a launch of several nodes: the command line and the variables in the
// environment, and what the gang gets of it.
type way struct {
	name  string
	asked commandline.Nodes
	env   string
	want  string // "kind node/nodes head:port id", of node/nodes the number from 0
}

// said reads a command line: "--nnodes=4 --node-rank=1 …".
func given(words string) (a commandline.Nodes) {
	for word := range strings.FieldsSeq(words) {
		by, value, _ := strings.Cut(word, "=")
		switch s := (commandline.NodeValue{Value: value, By: by}); by {
		case "--nnodes":
			a.Count = s
		case "--node-rank":
			a.Rank = s
		case "default":
			a.Default = s
		case "--rdzv-id":
			a.ID = s
		default:
			a.Head = s
		}
	}
	return a
}

func (p Placement) line() string {
	head := p.Head
	if p.HeadPort > 0 {
		head += fmt.Sprint("|", p.HeadPort)
	}
	return strings.Join(strings.Fields(fmt.Sprintf("%s %d/%d %s id=%s", p.Kind, p.NodeRank, p.Nodes, head, p.GangID)), " ")
}

// slurm is a consistent step of two nodes, n2 and n3 of a job on n[1-3], on n3.
const slurm = "SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURMD_NODENAME=n3 SLURM_JOB_NODELIST=n[1-3] SLURM_STEP_NODELIST=n[2-3] SLURM_STEP_NUM_NODES=2 SLURM_NODEID=1 " +
	"SLURM_LAUNCH_NODE_IPADDR=10.9.9.9 SLURM_SRUN_COMM_HOST=10.9.9.9 SLURM_PROCID=0 "

// batch is the script of a job on three nodes, and one the only task of a step of it.
const (
	batch = "SLURM_JOB_ID=7 SLURMD_NODENAME=n1 SLURM_JOB_NODELIST=n[1-3] SLURM_NODEID=0 "
	one   = "SLURM_JOB_ID=7 SLURM_STEP_ID=4 SLURMD_NODENAME=n3 SLURM_JOB_NODELIST=n[1-3] SLURM_STEP_NODELIST=n3 SLURM_STEP_NUM_NODES=1 SLURM_NODEID=0 "
)

const pods = "KUBERNETES_SERVICE_HOST=10.0.0.1 "

var ways = []way{
	{"torchrun's flags", given("--nnodes=4 --node-rank=1 --master-addr=h"), "", "torchrun 1/4 h id="},
	{"the first node needs no address", given("--nnodes=4 --node-rank=0"), "", "torchrun 0/4 id="},
	{"torchrun without a rank is node 0", given("--nnodes=4 default=0 --master-addr=h"), "", "torchrun 0/4 h id="},
	{"4:4 is 4", given("--nnodes=4:4 --node-rank=3 --master-addr=h"), "", "torchrun 3/4 h id="},
	{"a rendezvous with an id", given("--nnodes=2 --node-rank=1 --rdzv-endpoint=h:29400 --rdzv-id=night"), "", "torchrun 1/2 h|29400 id=night"},
	{"an id that is none", given("--nnodes=2 --node-rank=1 --rdzv-endpoint=h --rdzv-id=none"), "", "torchrun 1/2 h id="},
	{"an endpoint of IPv6", given("--nnodes=2 --node-rank=1 --rdzv-endpoint=[fe80::1]:29400"), "", "torchrun 1/2 fe80::1|29400 id="},
	{"c10d takes Slurm's index", given("--nnodes=2 --rdzv-endpoint=n2:29400 --rdzv-id=night"), slurm, "slurm-step 1/2 n2|29400 id=7"},
	{"torchrun in a step takes Slurm's, not node 0", given("--nnodes=2 default=0 --master-addr=n2"), slurm, "slurm-step 1/2 n2 id=7"},
	{"flags with Slurm's number", given("--nnodes=2 --node-rank=1 --master-addr=other"), slurm, "slurm-step 1/2 other id=7"},
	{"c10d takes a pod's index", given("--nnodes=4 --rdzv-endpoint=h:1"), pods + "JOB_COMPLETION_INDEX=3", "kubernetes 3/4 h|1 id="},
	{"c10d takes a cloud's number", given("--nnodes=2 --rdzv-endpoint=h:1"), "SKYPILOT_NUM_NODES=2 SKYPILOT_NODE_RANK=1", "cloud 1/2 h|1 id="},
	{"no number of nodes, and an endpoint", given("--rdzv-endpoint=other:7"), slurm, "slurm-step 1/2 other|7 id=7"},
	{"a rank without a number of nodes", given("--node-rank=0"), slurm + "GPURUN_NODE_RANK=0", "slurm-step 1/2 n2 id=7"},
	{"a step a node", given("--nnodes=3 --node-rank=2 --master-addr=n1"), one, "slurm-step 2/3 n1 id=7"},
	{"several jobs", given("--nnodes=4 --node-rank=2 --master-addr=n1 --rdzv-id=x"), one, "slurm-step 2/4 n1 id=x"},
	{"a batch script that says all", given("--nnodes=3 --node-rank=0 --master-addr=n1"), batch, "slurm-batch 0/3 n1 id=7"},

	{"gpurun's variables", commandline.Nodes{}, "GPURUN_NNODES=4 GPURUN_NODE_RANK=2 GPURUN_HEAD=h:7", "torchrun 2/4 h|7 id="},
	{"flags over gpurun's", given("--nnodes=2 --node-rank=1 --master-addr=f"), "GPURUN_NNODES=4 GPURUN_NODE_RANK=2 GPURUN_HEAD=h:7", "torchrun 1/2 f id="},
	{"flags, and what they leave out", given("--nnodes=2"), "GPURUN_NODE_RANK=1 GPURUN_HEAD=h:7", "torchrun 1/2 h|7 id="},
	{"gpurun's over torchrun's", commandline.Nodes{}, "GPURUN_NNODES=4 GPURUN_NODE_RANK=2 GPURUN_HEAD=h PET_NNODES=2:4 PET_NODE_RANK=0 PET_MASTER_ADDR=p", "torchrun 2/4 h id="},
	{"gpurun's head alone", commandline.Nodes{}, slurm + "GPURUN_HEAD=n2-ib0", "slurm-step 1/2 n2-ib0 id=7"},
	{"an indexed Job with variables", commandline.Nodes{}, pods + "JOB_COMPLETION_INDEX=3 GPURUN_NNODES=4 GPURUN_HEAD=train-0.train GPURUN_JOB_ID=uid", "kubernetes 3/4 train-0.train id=uid"},
	{"a JobSet", commandline.Nodes{}, pods + "JOB_COMPLETION_INDEX=3 GPURUN_NNODES=4 JOBSET_NAME=train REPLICATED_JOB_NAME=node", "kubernetes 3/4 train-node-0-0.train id=train"},
	{"a JobSet with its uid", commandline.Nodes{}, pods + "JOB_COMPLETION_INDEX=0 GPURUN_NNODES=4 GPURUN_HEAD=h JOBSET_NAME=train JOBSET_UID=u", "kubernetes 0/4 h id=u"},

	{"TrainJob", commandline.Nodes{}, pods + "JOB_COMPLETION_INDEX=1 PET_NNODES=4 PET_NPROC_PER_NODE=auto PET_NODE_RANK=1 PET_MASTER_ADDR=train-node-0-0.train PET_MASTER_PORT=29500",
		"kubernetes 1/4 train-node-0-0.train id=train-node-0-0.train"},
	{"PyTorchJob of today", commandline.Nodes{}, pods + "PET_NNODES=4 PET_NODE_RANK=3 RANK=3 WORLD_SIZE=32 MASTER_ADDR=train-master-0 MASTER_PORT=23456 PET_MASTER_ADDR=train-master-0",
		"kubernetes 3/4 train-master-0 id=train-master-0"},
	{"an elastic PyTorchJob of fixed size", commandline.Nodes{}, "PET_NNODES=2:2 PET_NODE_RANK=1 PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=train-worker-0:23456 PET_RDZV_ID=x", "torchrun 1/2 train-worker-0|23456 id=x"},
	{"PyTorchJob of yesterday", commandline.Nodes{}, pods + "RANK=3 WORLD_SIZE=4 MASTER_ADDR=train-master-0 MASTER_PORT=23456", "kubernetes 3/4 train-master-0 id="},
	{"Volcano", commandline.Nodes{}, "RANK=0 WORLD_SIZE=2 MASTER_ADDR=train-master-0.train VC_TASK_INDEX=0", "torchrun 0/2 train-master-0.train id="},
	{"torchrun's variables over RANK", commandline.Nodes{}, "PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=p RANK=7 WORLD_SIZE=8 MASTER_ADDR=m", "torchrun 1/2 p id="},

	{"a step of Slurm", commandline.Nodes{}, slurm, "slurm-step 1/2 n2 id=7"},
	{"an address that a script exports is torch's", commandline.Nodes{}, slurm + "MASTER_ADDR=n2.cluster MASTER_PORT=6000", "slurm-step 1/2 n2 id=7"},
	{"torchrun's variables in a step", commandline.Nodes{}, slurm + "PET_NNODES=2 PET_NODE_RANK=1", "slurm-step 1/2 n2 id=7"},

	{"SkyPilot", commandline.Nodes{}, "SKYPILOT_NUM_NODES=2 SKYPILOT_NODE_RANK=1 SKYPILOT_TASK_ID=sky-1 SKYPILOT_NODE_IPS=10.0.0.1\n10.0.0.2", "cloud 1/2 10.0.0.1 id=sky-1"},
	{"SkyPilot on Kubernetes", commandline.Nodes{}, pods + "SKYPILOT_NUM_NODES=2 SKYPILOT_NODE_RANK=0 SKYPILOT_NODE_IPS=10.0.0.1\n10.0.0.2", "cloud 0/2 10.0.0.1 id="},
	{"dstack", commandline.Nodes{}, "DSTACK_NODES_NUM=2 DSTACK_NODE_RANK=1 DSTACK_RUN_ID=r DSTACK_MASTER_NODE_IP=10.0.0.1", "cloud 1/2 10.0.0.1 id=r"},
	{"AWS Batch's main node", commandline.Nodes{}, "AWS_BATCH_JOB_NUM_NODES=3 AWS_BATCH_JOB_NODE_INDEX=0 AWS_BATCH_JOB_MAIN_NODE_INDEX=0 AWS_BATCH_JOB_ID=j#0", "cloud 0/3 id=j"},
	{"AWS Batch", commandline.Nodes{}, "AWS_BATCH_JOB_NUM_NODES=3 AWS_BATCH_JOB_NODE_INDEX=2 AWS_BATCH_JOB_MAIN_NODE_INDEX=0 AWS_BATCH_JOB_ID=j#2 AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=10.0.0.1",
		"cloud 2/3 10.0.0.1 id=j"},
	{"AWS Batch with another main node", commandline.Nodes{}, "AWS_BATCH_JOB_NUM_NODES=3 AWS_BATCH_JOB_NODE_INDEX=0 AWS_BATCH_JOB_MAIN_NODE_INDEX=2 AWS_BATCH_JOB_ID=j#0 AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=10.0.0.1",
		"cloud 1/3 10.0.0.1 id=j"},
}

func words(env string) []string { return strings.Split(strings.TrimSpace(env), " ") }

func TestWays(t *testing.T) {
	for _, w := range ways {
		p, err := DetectLaunch(words(w.env), w.asked)
		if err != nil {
			t.Errorf("%s: %v", w.name, err)
			continue
		}
		if got := p.line(); got != w.want {
			t.Errorf("%s: %s, want %s", w.name, got, w.want)
		}
		if err := p.Refuse(); err != nil || len(p.Warnings) > 0 {
			t.Errorf("%s: %v, %q", w.name, err, p.Warnings)
		}
		if p.Nodes < 2 {
			t.Errorf("%s: several nodes pass for one", w.name)
		}
		if p.Evidence == "" || p.By != "" && !strings.HasSuffix(p.Evidence, "via "+p.By) {
			t.Errorf("%s: the evidence is %q", w.name, p.Evidence)
		}
	}
}

// A number that the batch script has put in is 0 on all nodes of a step: Slurm's own counts,
// and one line says so.
func TestSlurmsNodeNumberTakesPrecedence(t *testing.T) {
	for env, asked := range map[string]commandline.Nodes{
		slurm: given("--nnodes=2 --node-rank=0 --master-addr=other"), slurm + "PET_NNODES=2 PET_NODE_RANK=0": {}, slurm + "RANK=0 WORLD_SIZE=2": {},
		slurm + "GPURUN_NNODES=2 GPURUN_NODE_RANK=0 GPURUN_HEAD=other": {},
	} {
		p, err := DetectLaunch(words(env), asked)
		if err != nil || p.line() != "slurm-step 1/2 n2 id=7" || len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "gives this node the number 0, and Slurm 1, which is used") {
			t.Errorf("%s: %s, %q, %v", env, p.line(), p.Warnings, err)
		}
	}
}

// One node needs no address and has no number but 0, whatever sets the number of nodes.
func TestOneNode(t *testing.T) {
	for env, asked := range map[string]commandline.Nodes{
		"PATH=/bin":                      given("--nnodes=1 --node-rank=0 --master-addr=not:a:host"),
		one:                              given("--nnodes=1:1 --rdzv-endpoint=:"),
		"GPURUN_NNODES=1 GPURUN_HEAD=h":  {},
		"PET_NNODES=1 PET_MASTER_ADDR=h": {},
		"GPURUN_NNODES=1 PET_NNODES=4 PET_NODE_RANK=3":  {},
		"RANK=0 WORLD_SIZE=1 MASTER_ADDR=h":             {},
		pods + "GPURUN_NNODES=1 JOB_COMPLETION_INDEX=5": {},
	} {
		p, err := DetectLaunch(words(env), asked)
		if err != nil || p.Nodes != 1 || p.NodeRank != 0 || p.Head != "" || p.HeadPort != 0 || p.Refuse() != nil || len(p.Warnings) > 0 {
			t.Errorf("%s: %+v, %v", env, p, err)
		}
	}
}

// What contradicts itself, or leaves out what a gang needs, is refused with both sides
// named, before anything starts.
func TestWaysRefused(t *testing.T) {
	for _, test := range []struct {
		asked         commandline.Nodes
		env           string
		message, hint string
	}{
		{given("--nnodes=4"), slurm, "--nnodes sets 4 nodes, but Slurm step 7.1 has 2", "omit --nnodes"},
		{given("--nnodes=1"), slurm, "--nnodes sets 1 node, but Slurm step 7.1 has 2", ""},
		{commandline.Nodes{}, slurm + "GPURUN_NNODES=1", "GPURUN_NNODES sets 1 node, but Slurm step 7.1 has 2", ""},
		{commandline.Nodes{}, slurm + "PET_NNODES=1 GPURUN_NNODES=3", "GPURUN_NNODES sets 3 nodes, but Slurm step 7.1 has 2", ""},
		{commandline.Nodes{}, slurm + "RANK=0 WORLD_SIZE=16", "WORLD_SIZE sets 16 nodes, but Slurm step 7.1 has 2", ""},
		{given("--nnodes=3 --node-rank=0"), "SKYPILOT_NUM_NODES=2 SKYPILOT_NODE_RANK=1", "--nnodes sets 3 nodes, but cloud has 2", ""},
		{given("--nnodes=2:4"), "", "--nnodes=2:4: gpurun wants a fixed number of nodes", "give the number"},
		{commandline.Nodes{}, "PET_NNODES=2:4 PET_NODE_RANK=3", "PET_NNODES=2:4: gpurun wants a fixed number of nodes, since a plan is made for a number of ranks", ""},
		{given("--nnodes=2 --rdzv-endpoint=h:1"), "", "--nnodes sets 2 nodes, and nothing shows which of them this is", "--node-rank"},
		{given("--nnodes=3 --rdzv-endpoint=h:1"), one, "nothing shows which of them this is", "srun --ntasks-per-node=1"},
		{commandline.Nodes{}, "GPURUN_NNODES=2 GPURUN_HEAD=h", "GPURUN_NNODES sets 2 nodes, and nothing shows which", "GPURUN_NODE_RANK"},
		{commandline.Nodes{}, "PET_NNODES=2 PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=h:1", "nothing shows which of them this is", ""},
		{commandline.Nodes{Count: commandline.NodeValue{Value: "2", By: "--hostfile f"}, How: "write it so"}, "", "--hostfile f sets 2 nodes", "write it so"},
		{given("--nnodes=2 --node-rank=1"), "", "this is node 1 of 2, and nothing shows where node 0 is", "--master-addr"},
		{commandline.Nodes{}, "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_RANK=1", "nothing shows where node 0 is", "GPURUN_HEAD"},
		{given("--nnodes=2 --node-rank=2 --master-addr=h"), "", "--node-rank=2, but the launch has 2 nodes", "from 0"},
		{given("--node-rank=1"), "", "--node-rank=1, but the launch has 1 node", "--nnodes"},
		{commandline.Nodes{}, "GPURUN_NODE_RANK=1", "GPURUN_NODE_RANK=1, but the launch has 1 node", "GPURUN_NNODES"},
		{commandline.Nodes{}, pods + "JOB_COMPLETION_INDEX=4 GPURUN_NNODES=4 GPURUN_HEAD=h", "JOB_COMPLETION_INDEX=4, but the launch has 4 nodes", ""},
		{commandline.Nodes{}, pods + "JOB_COMPLETION_INDEX=x GPURUN_NNODES=4 GPURUN_HEAD=h", `JOB_COMPLETION_INDEX="x" is not a whole number`, ""},
		{commandline.Nodes{}, "AWS_BATCH_JOB_NUM_NODES=2 AWS_BATCH_JOB_NODE_INDEX=2", "AWS_BATCH_JOB_NODE_INDEX=2", ""},
		{commandline.Nodes{}, "AWS_BATCH_JOB_NUM_NODES=2 AWS_BATCH_JOB_NODE_INDEX=0 AWS_BATCH_JOB_MAIN_NODE_INDEX=9", "AWS_BATCH_JOB_NUM_NODES=2", ""},
		{commandline.Nodes{}, "GPURUN_NNODES=99999999999999999999 GPURUN_NODE_RANK=0", "is not a whole number", ""},
		{commandline.Nodes{}, "GPURUN_NNODES=65537 GPURUN_NODE_RANK=0", "gpurun runs on 65536 nodes at most", ""},
		{commandline.Nodes{}, "GPURUN_NNODES=-2 GPURUN_NODE_RANK=0", "is not a whole number", ""},
		{commandline.Nodes{}, "GPURUN_NNODES=٤ GPURUN_NODE_RANK=0", "is not a whole number", ""},
		{commandline.Nodes{}, "GPURUN_NNODES=2 GPURUN_NODE_RANK=1 GPURUN_HEAD=h:70000", "is not a port", "host:port"},
		{commandline.Nodes{}, "GPURUN_NNODES=2 GPURUN_NODE_RANK=1 GPURUN_HEAD=h:", "is not a port", ""},
		{commandline.Nodes{}, "GPURUN_NNODES=2 GPURUN_NODE_RANK=1 GPURUN_HEAD=:7", "names no host", ""},
		{commandline.Nodes{}, "GPURUN_NNODES=2 GPURUN_NODE_RANK=1 GPURUN_HEAD=[::1", "names no host", ""},
		{commandline.Nodes{}, "GPURUN_NNODES=2 GPURUN_NODE_RANK=1 GPURUN_HEAD=-oProxyCommand", "names no host", ""},
		{commandline.Nodes{}, "GPURUN_NNODES=2 GPURUN_NODE_RANK=1 GPURUN_HEAD=höst", "names no host", ""},
		{commandline.Nodes{}, "GPURUN_NNODES=2 GPURUN_NODE_RANK=1 GPURUN_HEAD=a\x1b[31m", "names no host", ""},
		{commandline.Nodes{}, "GPURUN_NNODES=2 GPURUN_NODE_RANK=1 GPURUN_HEAD=" + strings.Repeat("a", 256), "names no host", ""},
		{commandline.Nodes{}, "GPURUN_RESTART=soon", "GPURUN_RESTART", ""},
	} {
		p, err := DetectLaunch(words(test.env), test.asked)
		if err == nil {
			t.Errorf("%+v %s: %s, want an error", test.asked, test.env, p.line())
			continue
		}
		if !strings.Contains(err.Error(), test.message) || errext.Hint(err) == "" || !strings.Contains(errext.Hint(err), test.hint) {
			t.Errorf("%+v %s: %q, hint %q; want %q, %q", test.asked, test.env, err, errext.Hint(err), test.message, test.hint)
		}
		if strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("%q: an escape sequence passes", err)
		}
	}
}

// A batch script on several nodes cannot be a launch of them, whatever it says without
// saying all: the line to write is in the hint.
func TestABatchScriptOnSeveralNodes(t *testing.T) {
	for _, asked := range []commandline.Nodes{{}, given("--nnodes=3 --rdzv-endpoint=n1:29400"), given("--nnodes=3 default=0 --master-addr=n1"), given("--nnodes=1"), given("--nnodes=1 --node-rank=0")} {
		p, err := DetectLaunch(words(batch), asked)
		if err != nil {
			t.Errorf("%+v: %v", asked, err)
			continue
		}
		err = p.Refuse()
		if err == nil || !strings.Contains(err.Error(), "Slurm job 7 has 3 nodes") || !strings.Contains(errext.Hint(err), "srun --mpi=pmi2 --nodes=3 --ntasks-per-node=1 gpurun …") {
			t.Errorf("%+v: %v, %s", asked, err, errext.Hint(err))
		}
	}
}

// A machine outside of the allocation trains nothing, also where one node was asked for.
func TestALoginShell(t *testing.T) {
	for _, list := range []string{"n1", "n[1-2]"} {
		for _, asked := range []commandline.Nodes{{}, given("--nnodes=1"), given("--nnodes=2 --rdzv-endpoint=n1:1"), given("default=0 --nnodes=2 --master-addr=n1")} {
			p, err := DetectLaunch([]string{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=" + list}, asked)
			if err != nil || p.Kind != SlurmLogin {
				t.Errorf("%+v: %+v, %v", asked, p, err)
				continue
			}
			if err := p.Refuse(); err == nil || !strings.Contains(err.Error(), "this machine is not part of Slurm job 7") || !strings.Contains(errext.Hint(err), "srun") {
				t.Errorf("%+v: %v", asked, err)
			}
		}
	}
}

// A pod of an indexed Job that knows no others trains the whole job, and says so.
func TestAnIndexedJobIsWarned(t *testing.T) {
	for _, env := range []string{pods + "JOB_COMPLETION_INDEX=0", pods + "JOB_COMPLETION_INDEX=1", "JOB_COMPLETION_INDEX=1 JOBSET_NAME=train REPLICATED_JOB_NAME=node"} {
		p, err := Detect(words(env))
		if err != nil || p.Kind != Kubernetes || p.Nodes != 1 || p.Refuse() != nil || len(p.Warnings) != 1 ||
			!strings.Contains(p.Warnings[0], "each of them trains the whole job") || !strings.Contains(p.Warnings[0], "GPURUN_NNODES") {
			t.Errorf("%s: %+v, %v", env, p, err)
		}
	}
}

// How long nodes are waited for, and whether a lost one comes back, is the engine's.
func TestTheEngine(t *testing.T) {
	for env, minutes := range map[string]float64{"PATH=/bin": 5, slurm: 5, "SKYPILOT_NUM_NODES=2": 5, pods: 15, pods + "PET_NNODES=2 PET_MASTER_ADDR=h": 15, "GPURUN_NNODES=2 GPURUN_NODE_RANK=0": 5} {
		p, err := Detect(words(env))
		if err != nil || p.JoinTimeout().Minutes() != minutes || p.Replaces() != (minutes == 15) {
			t.Errorf("%s: %s, %v, %v", env, p.JoinTimeout(), p.Replaces(), err)
		}
	}
}

// The scheduler that starts all nodes again counts restarts, and the identity outlasts them.
func TestRestarts(t *testing.T) {
	for env, want := range map[string]int{
		slurm: 0, slurm + "SLURM_RESTART_COUNT=2": 2, pods + "JOBSET_RESTART_ATTEMPT=3": 3, pods + "JOBSET_RESTART_ATTEMPT=": 0,
		slurm + "SLURM_RESTART_COUNT=2 JOBSET_RESTART_ATTEMPT=9": 2, pods + "JOBSET_RESTART_ATTEMPT=3 GPURUN_RESTART=4": 4,
		"AWS_BATCH_JOB_NUM_NODES=2 AWS_BATCH_JOB_ATTEMPT=1": 0, "AWS_BATCH_JOB_NUM_NODES=2 AWS_BATCH_JOB_ATTEMPT=3": 2, "AWS_BATCH_JOB_ATTEMPT=0": 0,
	} {
		p, err := Detect(words(env))
		if err != nil || p.RestartCount != want {
			t.Errorf("%s: %d, %v; want %d", env, p.RestartCount, err, want)
		}
	}
}

// All nodes of a launch agree on everything but their number, and number themselves
// differently.
func TestNodesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 3000).Draw(t, "nodes")
		first := rapid.IntRange(0, 5000).Draw(t, "first")
		i, j := rapid.IntRange(0, n-1).Draw(t, "i"), rapid.IntRange(0, n-1).Draw(t, "j")
		list := fmt.Sprintf("n[%04d-%04d]", first, first+n-1)
		step := func(k int) []string {
			return []string{"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_JOB_NODELIST=" + list, "SLURM_STEP_NODELIST=" + list,
				fmt.Sprint("SLURM_STEP_NUM_NODES=", n), fmt.Sprint("SLURM_NODEID=", k), fmt.Sprintf("SLURMD_NODENAME=n%04d", first+k)}
		}
		pet := func(k int) []string {
			return []string{fmt.Sprint("PET_NNODES=", n), fmt.Sprint("PET_NODE_RANK=", k), "PET_MASTER_ADDR=h", "KUBERNETES_SERVICE_HOST=1"}
		}
		env := rapid.SampledFrom([]func(int) []string{step, pet}).Draw(t, "way")
		a, err := Detect(env(i))
		testenv.Check(t, err)
		b, err := Detect(env(j))
		testenv.Check(t, err)
		if a.NodeRank != i || b.NodeRank != j || a.Nodes != n {
			t.Fatalf("%+v and %+v", a, b)
		}
		for _, p := range []*Placement{&a, &b} {
			p.NodeRank, p.Node, p.Evidence = 0, "", ""
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Whatever the variables hold, there is an error with a hint or a place that makes sense.
func TestDetectHostile(t *testing.T) {
	names := []string{
		"GPURUN_NNODES", "GPURUN_NODE_RANK", "GPURUN_HEAD", "PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND", "RANK", "WORLD_SIZE",
		"LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODEID", "SLURMD_NODENAME",
		"SLURM_STEP_NUM_NODES", "SLURM_STEP_TASKS_PER_NODE", "SKYPILOT_NUM_NODES", "SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS", "AWS_BATCH_JOB_NUM_NODES", "AWS_BATCH_JOB_NODE_INDEX",
		"AWS_BATCH_JOB_MAIN_NODE_INDEX", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK", "KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX", "JOBSET_NAME",
		"REPLICATED_JOB_NAME", "JOBSET_RESTART_ATTEMPT",
	}
	values := []string{"", "0", "1", "2", "3", "-1", "2:2", "2:4", ":", "65536", "65537", "9223372036854775808", "n[1-2]", "n1", "n[1-99999999]", "[", "::1", "[::1]:1", "h:99999", "h\x00", "höst", "\n", "1 2", "static"}
	rapid.Check(t, func(t *rapid.T) {
		var env []string
		for range rapid.IntRange(0, 12).Draw(t, "variables") {
			env = append(env, rapid.SampledFrom(names).Draw(t, "name")+"="+rapid.SampledFrom(values).Draw(t, "value"))
		}
		var asked commandline.Nodes
		for _, s := range []*commandline.NodeValue{&asked.Count, &asked.Rank, &asked.Head, &asked.Default} {
			*s = commandline.NodeValue{Value: rapid.SampledFrom(slices.Concat(values, []string{"", "", ""})).Draw(t, "flag"), By: "--flag"}
		}
		p, err := DetectLaunch(env, asked)
		if err != nil {
			if errext.Hint(err) == "" {
				t.Fatalf("%v has no hint", err)
			}
			return
		}
		sane := p.Nodes >= 1 && p.Nodes <= maxHosts && p.TasksPerNode >= 1 && p.HeadPort >= 0 && p.HeadPort <= 65535
		if p.TasksPerNode == 1 {
			sane = sane && p.NodeRank >= 0 && p.NodeRank < p.Nodes && (p.Head == "" || p.Nodes == 1 || validHost(p.Head)) && (p.NodeRank == 0 || p.Head != "")
		}
		if !sane {
			t.Fatalf("%q %+v: %+v", env, asked, p)
		}
	})
}
