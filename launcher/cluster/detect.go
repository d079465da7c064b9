// Package cluster finds out where gpurun runs: on a plain host, under variables like torchrun's,
// in a Slurm job, under MPI, in a cloud's batch service, or in Kubernetes.
//
// Detect reads the environment only. It contacts no scheduler and no name server, so that it also
// works in a container that has neither; Ends and Preempted run scontrol.
package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
)

// Detect is DetectLaunch without flags.
func Detect(env []string) (Placement, error) { return DetectLaunch(env, commandline.Nodes{}) }

// DetectLaunch finds out where a process with this environment and these flags runs. It only reads;
// Refuse reports whether gpurun can work there. The sources in their order: flags, the user's
// variables (GPURUN_NNODES), torchrun's, RANK with WORLD_SIZE, Slurm, MPI, clouds, Kubernetes, a
// plain host. A launch that would start several gpuruns on a node precedes the flags, because
// each of these gpuruns has the same flags. An error means variables that are malformed or that
// contradict each other.
func DetectLaunch(env []string, flags commandline.Nodes) (Placement, error) {
	vars := variables(commandline.ParseEnviron(env))
	found, err := fromSurroundings(vars)
	if err != nil {
		return Placement{}, err
	}
	if found.RestartCount, err = vars.restarts(); err != nil {
		return Placement{}, err
	}
	if found.TasksPerNode > 1 {
		return found, nil
	}
	for _, detect := range []func(variables) (Placement, error){fromProcess, fromMPI} {
		if p, err := detect(vars); err != nil || p.TasksPerNode > 1 && (p.Kind == MPI || !vars.numbersTasks(found)) {
			return p, err
		}
	}
	claims, err := vars.claims(flags)
	if err != nil {
		return Placement{}, err
	}
	p, err := vars.settle(claims, found, flags.How)
	if err != nil {
		return Placement{}, err
	}
	p.GangID, p.Element = vars.gangID(p, flags.ID.Value), vars.element(p)
	p.Warnings = append(p.Warnings, vars.warnings(p)...)
	return p, nil
}

// fromSurroundings reads each scheduler's variables in turn.
func fromSurroundings(vars variables) (Placement, error) {
	for _, detect := range []func(variables) (Placement, error){fromSlurm, fromMPI, fromCloud, fromKubernetes} {
		p, err := detect(vars)
		if err != nil || p.Kind != "" {
			return p, err
		}
	}
	return Placement{Kind: Host, Nodes: 1, TasksPerNode: 1, Evidence: "host"}, nil
}

// variables are an environment by name.
type variables commandline.Environ

// count reads a whole number from 0; a variable that is unset or empty is fallback.
func (v variables) count(name string, fallback int) (int, error) {
	if v[name] == "" {
		return fallback, nil
	}
	return whole(v.given(name))
}

// processes reads variables that number processes: how many there are in all and on each node, and
// which of them this is.
func (v variables) processes(kind Engine, size, local, rank string) (Placement, error) {
	all, err := v.count(size, 1)
	if err != nil {
		return Placement{}, err
	}
	here, err := v.count(local, all)
	if err != nil {
		return Placement{}, err
	}
	here = max(here, 1)
	k, err := v.count(rank, 0)
	return Placement{Kind: kind, Nodes: max(all/here, 1), NodeRank: k / here, TasksPerNode: here}, err
}

// fromProcess detects a gpurun that is one of several on its node: with LOCAL_RANK, the variables
// RANK and WORLD_SIZE number processes, each of which has started its own gpurun.
func fromProcess(v variables) (Placement, error) {
	if v["LOCAL_RANK"] == "" || v["RANK"] == "" || v["WORLD_SIZE"] == "" {
		return Placement{}, nil
	}
	p, err := v.processes(Torchrun, "WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK")
	p.Evidence = fmt.Sprintf("%s process %s/%s via LOCAL_RANK", Torchrun, v["RANK"], v["WORLD_SIZE"])
	return p, err
}

// numbersTasks reports whether RANK, WORLD_SIZE and LOCAL_RANK number the tasks of a step that has one task a
// node: enroot's hook for PyTorch sets them so in containers of pyxis.
func (v variables) numbersTasks(found Placement) bool {
	return found.Kind == SlurmStep && v["LOCAL_RANK"] == "0" && v["LOCAL_WORLD_SIZE"] == "" &&
		v["WORLD_SIZE"] == strconv.Itoa(found.Nodes) && v["RANK"] == strconv.Itoa(found.NodeRank)
}

// fromMPI reads the variables that mpirun gives its processes. Within a Slurm job mpirun starts
// its daemons by srun, one a node, and the processes have the step's variables, too. Slurm's own
// PMI gives the number of processes, and not how many run on a node: the step has that.
func fromMPI(vars variables) (Placement, error) {
	for _, names := range [][3]string{
		{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK"},
		{"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_RANK"},
		{"PMI_SIZE", "MPI_LOCALNRANKS", "PMI_RANK"},
	} {
		if vars[names[0]] == "" || vars[names[1]] == "" && vars["SLURM_JOB_ID"] != "" {
			continue
		}
		p, err := vars.processes(MPI, names[0], names[1], names[2])
		p.Evidence = fmt.Sprintf("%s %s processes via %s", MPI, vars[names[0]], names[0])
		return p, err
	}
	return Placement{}, nil
}

// fromKubernetes detects a pod. Kubernetes itself does not give the number of pods; operators set
// torchrun's variables.
func fromKubernetes(vars variables) (Placement, error) {
	p := Placement{Kind: Kubernetes, Nodes: 1, TasksPerNode: 1}
	index := vars["JOB_COMPLETION_INDEX"]
	switch {
	case vars["KUBERNETES_SERVICE_HOST"] != "":
		p.Evidence = p.evidence("KUBERNETES_SERVICE_HOST")
	case index != "":
		p.Evidence = p.evidence("JOB_COMPLETION_INDEX")
	default:
		return Placement{}, nil
	}
	if index != "" {
		p.Evidence += ", index " + index + " of its job"
	}
	return p, nil
}

// warnings are about a pod of an indexed Job without a number of nodes: each pod then trains the
// whole job.
func (v variables) warnings(p Placement) []string {
	index := v["JOB_COMPLETION_INDEX"]
	if p.Kind != Kubernetes || index == "" || p.By != "" {
		return nil
	}
	return []string{"this is pod " + index +
		" of an indexed Job, and nothing shows how many there are: each of them trains the whole job. " +
		"GPURUN_NNODES and GPURUN_HEAD make them one training, GPURUN_NNODES=1 makes each a separate one"}
}

// clouds are the services that number nodes in their own variables. The head is the first word of
// its variable. AWS Batch omits it on the main node itself, may have another main node than
// number 0, and appends the node's number to the job id.
var clouds = []struct{ nodes, rank, head, main, job string }{
	{nodes: "SKYPILOT_NUM_NODES", rank: "SKYPILOT_NODE_RANK", head: "SKYPILOT_NODE_IPS", job: "SKYPILOT_TASK_ID"},
	{nodes: "DSTACK_NODES_NUM", rank: "DSTACK_NODE_RANK", head: "DSTACK_MASTER_NODE_IP", job: "DSTACK_RUN_ID"},
	{nodes: "AWS_BATCH_JOB_NUM_NODES", rank: "AWS_BATCH_JOB_NODE_INDEX",
		head: "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS",
		main: "AWS_BATCH_JOB_MAIN_NODE_INDEX", job: "AWS_BATCH_JOB_ID"},
}

func fromCloud(vars variables) (Placement, error) {
	for _, c := range clouds {
		if vars[c.nodes] == "" {
			continue
		}
		claimed, err := claimOf(commandline.Nodes{Count: vars.given(c.nodes), Rank: vars.given(c.rank)})
		if err != nil {
			return Placement{}, err
		}
		main, err := vars.count(c.main, 0)
		if err != nil {
			return Placement{}, err
		}
		if claimed.rank >= claimed.nodes || main >= claimed.nodes {
			return Placement{}, errext.Errorf("nodes are numbered from 0", "%s=%s, but %s=%s", c.rank, vars[c.rank], c.nodes,
				vars[c.nodes])
		}
		job, _, _ := strings.Cut(vars[c.job], "#")
		p := Placement{Kind: Cloud, Job: job, Nodes: claimed.nodes,
			NodeRank: (claimed.rank - main + claimed.nodes) % claimed.nodes, TasksPerNode: 1}
		if ips := strings.Fields(vars[c.head]); len(ips) > 0 {
			p.Head = ips[0]
		}
		p.Evidence = p.evidence(c.nodes)
		return p, nil
	}
	return Placement{}, nil
}

// evidence: "slurm-step job=123.0 node 1 of 4 (n3) via SLURM_STEP_NODELIST".
func (p Placement) evidence(variable string) string {
	text := string(p.Kind)
	if p.Slurm() {
		text += " job=" + jobStep(p)
	}
	if p.Nodes > 1 {
		text += " node " + strconv.Itoa(p.NodeRank) + " of " + strconv.Itoa(p.Nodes)
	}
	if p.Node != "" {
		text += " (" + p.Node + ")"
	}
	if p.TasksPerNode > 1 {
		text += fmt.Sprintf(" %d tasks a node", p.TasksPerNode)
	}
	return text + " via " + variable
}

// An Engine is the system that placed gpurun on this node, whichever source counts the nodes.
// Torchrun is a host that flags or variables like torchrun's make one of several nodes.
type Engine string

// The engines. A step is what srun starts, a batch script what sbatch starts, and a login shell
// what salloc starts, on a machine outside the allocation.
const (
	Host       Engine = "host"
	Torchrun   Engine = "torchrun"
	SlurmStep  Engine = "slurm-step"
	SlurmBatch Engine = "slurm-batch"
	SlurmLogin Engine = "slurm-login"
	MPI        Engine = "mpi"
	Kubernetes Engine = "kubernetes"
	Cloud      Engine = "cloud" // SkyPilot, dstack, AWS Batch
)

// A Placement is where gpurun runs and which part of a larger launch it is. Values that the
// environment does not give are empty.
type Placement struct {
	Kind Engine
	// Job is the scheduler's name for the job, an array element as "array_element"; the same
	// after a requeue.
	Job string
	// Element is the index of this job in an array of jobs.
	Element string
	// End is the end of the job's time, as the scheduler gave it when the job started.
	End time.Time
	// Step is the step within a Slurm job.
	Step string
	// Node is this node's name in the scheduler's list.
	Node string
	// Nodes counts the nodes of the launch, NodeRank is this one's number, from 0.
	Nodes, NodeRank int
	// Hosts are the names of the nodes by number, where Slurm lists them.
	Hosts []string
	// By is the flag or the variable that counts the nodes, empty where the scheduler does.
	By string
	// Head is the address or the host name of node 0. It is empty for one node, and may be
	// empty on node 0.
	Head string
	// HeadPort is the port that the user named for node 0, 0 where gpurun chooses. It is never
	// MASTER_PORT, which belongs to the ranks.
	HeadPort int
	// GangID is the same on all nodes of the launch and after a restart of it. An ID that is
	// made of names is shared by a later launch under the same names.
	GangID string
	// TasksPerNode is the largest number of gpuruns that the launch starts on one node; more
	// than 1 is a mistake.
	TasksPerNode int
	// RestartCount counts the scheduler's own restarts of the job, or of all nodes.
	RestartCount int
	// Leaked: variables of another Slurm step were found and ignored.
	Leaked bool
	// Warnings are sentences for people about a launch that may be misconfigured.
	Warnings []string
	// Evidence is one line for people: the placement, and the variable that gives it.
	Evidence string
}

// Identity names the scheduler's job for the run directory: the same in every step of the job and
// after each requeue, empty without a scheduler. It omits the step: a restarted batch script may
// skip an earlier command.
func (p Placement) Identity() string {
	switch {
	case p.Job == "":
		return ""
	case p.Slurm():
		return "slurm " + p.Job
	}
	return string(p.Kind) + " " + p.Job
}

// Requeue is the command that makes the scheduler start the job again; empty if none is known, and for a shell of
// salloc, which has no script.
func (p Placement) Requeue() string {
	if !p.Slurm() || p.Kind == SlurmLogin || p.Job == "" {
		return ""
	}
	return "scontrol requeue " + p.Job
}

// Slurm reports whether a Slurm job placed gpurun here.
func (p Placement) Slurm() bool { return strings.HasPrefix(string(p.Kind), "slurm") }

// Replaces reports whether the engine starts a lost node again while the others live. Kubernetes
// creates another pod; Slurm, MPI and ssh end or keep the rest.
func (p Placement) Replaces() bool { return p.Kind == Kubernetes }

// JoinTimeout is the time that all nodes of the launch have to join. Slurm starts a step's tasks
// together; a pod may have to wait for a machine, and for its image.
func (p Placement) JoinTimeout() time.Duration {
	if p.Replaces() {
		return 15 * time.Minute
	}
	return 5 * time.Minute
}

// WhyMissing is advice for people: where to find out why a node does not join.
func (p Placement) WhyMissing() string {
	switch {
	case p.Slurm():
		return "the output of srun for a node's task shows why it does not come, and `scontrol show node` whether the node answers"
	case p.Kind == Kubernetes:
		return "`kubectl get pods` shows which pods run, and `kubectl describe pod` why one does not"
	}
	return "each node starts gpurun with the same command, and has to reach the port of node 0"
}
