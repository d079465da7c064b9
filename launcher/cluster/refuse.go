package cluster

import "github.com/gpurun/gpurun/launcher/errext"

const oneNode = "gpurun runs on one node: ask for --nodes=1, or put `srun -N1 -n1 --ntasks-per-node=1` before gpurun"

// Refuse returns an error with a hint where gpurun must not start: where it would run
// several times side by side, each believing to be the whole job and writing to
// the same folders, or on a machine outside the allocation. It is nil elsewhere.
func (p Place) Refuse() error {
	switch {
	case p.TasksPerNode > 1:
		return p.refuseTasks()
	case p.Kind == SlurmLogin:
		return errext.Errorf("put `srun -N1 -n1 --ntasks-per-node=1` before gpurun, so that it runs on the job's node",
			"this machine is not part of Slurm job %s", p.Job)
	case p.Nodes <= 1:
		return nil
	case p.Kind == SlurmBatch:
		return errext.Errorf(oneNode,
			"Slurm job %s has %d nodes, and gpurun was started on one of them", p.Job, p.Nodes)
	case p.Kind == SlurmStep:
		return errext.Errorf(oneNode,
			"Slurm step %s starts gpurun on %d nodes", jobStep(p), p.Nodes)
	}
	return errext.Errorf("gpurun runs on one node: start the job with a single one",
		"the job spans %d nodes (%s)", p.Nodes, p.Evidence)
}

// refuseTasks: one gpurun a node starts all of the node's ranks.
func (p Place) refuseTasks() error {
	if p.Kind == SlurmStep {
		return errext.Errorf("use --ntasks-per-node=1: gpurun starts a rank for each GPU by itself",
			"Slurm step %s starts gpurun %d times on a node", jobStep(p), p.TasksPerNode)
	}
	return errext.Errorf("start gpurun once, it starts a rank for each GPU by itself",
		"gpurun is started %d times on a node (%s)", p.TasksPerNode, p.Evidence)
}
