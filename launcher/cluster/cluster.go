// Package cluster says where gpurun runs: on a plain host, under variables that
// speak of nodes as torchrun's do, in a Slurm job, or in Kubernetes.
//
// Everything is read from the environment that it is given. The package asks no
// scheduler and no name server, so that it also works in a container that has
// neither.
package cluster

import "time"

// A Kind is what placed gpurun on this node, whoever counts the nodes. Torchrun is a
// host of which flags or variables like torchrun's say that it is one of several.
type Kind string

// The kinds. A step is what srun starts, a batch script what sbatch starts, and
// a login shell what salloc starts, on a machine outside the allocation.
const (
	Host       Kind = "host"
	Torchrun   Kind = "torchrun"
	SlurmStep  Kind = "slurm-step"
	SlurmBatch Kind = "slurm-batch"
	SlurmLogin Kind = "slurm-login"
	MPI        Kind = "mpi"
	Kubernetes Kind = "kubernetes"
	Cloud      Kind = "cloud" // SkyPilot, dstack, AWS Batch
)

// A Place is where gpurun runs and which part of a larger launch it is.
type Place struct {
	Kind Kind
	// Job is the scheduler's name for the job, an element of an array as
	// "array_element"; the same after a requeue. Empty where nothing says it.
	Job string
	// Element is the index of this job in an array of them, empty for a job of its own.
	Element string
	// End is when the scheduler said, as the job started, that its time is over; zero
	// where it has not.
	End time.Time
	// Step is the step within a Slurm job.
	Step string
	// Node is this node's name in the scheduler's list, where there is one.
	Node string
	// Nodes counts the nodes of the launch, NodeRank is this one's number, from
	// 0. One node is 1 and 0.
	Nodes, NodeRank int
	// Hosts are the names of the nodes, by number, where Slurm lists them.
	Hosts []string
	// By is the flag or the variable that counts the nodes, empty where the scheduler
	// itself does.
	By string
	// Head is the address or the host name at which node 0 can be reached. It is empty
	// for one node, and may be so on node 0.
	Head string
	// HeadPort is the port that was named for node 0, 0 where gpurun chooses. It is
	// never MASTER_PORT, which belongs to the ranks.
	HeadPort int
	// GangID is the same on all nodes of the launch and after a restart of it, empty
	// where nothing says it. One that is made of names is that of a later launch under
	// these names, too.
	GangID string
	// TasksPerNode is the largest number of gpuruns that the launch starts on
	// one node; more than 1 is a mistake.
	TasksPerNode int
	// RestartCount counts the scheduler's own restarts of the job, or of all nodes.
	RestartCount int
	// Leaked says that variables of another Slurm step were found and ignored.
	Leaked bool
	// Warnings are sentences for people, about a launch that may be no single one.
	Warnings []string
	// Evidence is one line for people: what was found and which variable says it.
	Evidence string
}
