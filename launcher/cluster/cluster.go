// Package cluster finds out where gpurun runs: on a plain host, under variables like torchrun's,
// in a Slurm job, under MPI, in a cloud's batch service, or in Kubernetes.
//
// Detect reads the environment only. It contacts no scheduler and no name server, so that it also
// works in a container that has neither; Ends and Preempted run scontrol.
package cluster

import (
	"strings"
	"time"
)

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
