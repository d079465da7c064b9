package cluster

import (
	"fmt"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
)

// Refuse returns an error with a hint where gpurun cannot work: several times on one node, each
// running the whole job in the same folders; on only one of a job's nodes; or on a machine outside
// the allocation.
func (p Placement) Refuse() error {
	switch {
	case p.TasksPerNode > 1:
		return p.refuseTasks()
	case p.By != "":
		return nil
	case p.Kind == SlurmLogin:
		return errext.Errorf(p.srun(), "this machine is not part of Slurm job %s", p.Job)
	case p.Kind == SlurmBatch && p.Nodes > 1:
		return errext.Errorf(p.srun(), "Slurm job %s has %d nodes, and gpurun was started on one of them", p.Job, p.Nodes)
	}
	return nil
}

// srun is the hint how to start gpurun on each of a job's nodes.
func (p Placement) srun() string {
	if p.Nodes == 1 {
		return "put `srun -N1 -n1 --ntasks-per-node=1` before gpurun, so that it runs on the job's node"
	}
	return fmt.Sprintf("start one gpurun a node: srun --mpi=pmi2 --nodes=%d --ntasks-per-node=1 gpurun …", p.Nodes)
}

// refuseTasks refuses several gpuruns on a node: one starts all of the node's ranks.
func (p Placement) refuseTasks() error {
	switch p.Kind {
	case SlurmStep:
		return errext.Errorf("use --ntasks-per-node=1: gpurun starts a rank for each GPU by itself",
			"Slurm step %s starts gpurun %d times on a node", jobStep(p), p.TasksPerNode)
	case MPI:
		return errext.Errorf(commandline.Mpirun, "mpirun starts gpurun %d times on a node, and gpurun starts a rank for each GPU by itself", p.TasksPerNode)
	}
	return errext.Errorf("start gpurun once, it starts a rank for each GPU by itself",
		"gpurun is started %d times on a node (%s)", p.TasksPerNode, p.Evidence)
}
