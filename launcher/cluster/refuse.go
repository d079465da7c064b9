package cluster

import "fmt"

// A Refusal is an environment in which nothing is started, in words for people.
type Refusal struct {
	Problem string
	Remedy  string
}

func (r *Refusal) Error() string { return r.Problem }

// Hint says what to do instead.
func (r *Refusal) Hint() string { return r.Remedy }

const oneNode = "gpurun runs on one node: ask for --nodes=1, or put `srun -N1 -n1 --ntasks-per-node=1` before gpurun"

// Refuse returns a *Refusal where gpurun must not start: where it would run
// several times side by side, each believing to be the whole job and writing to
// the same folders, or on a machine outside the allocation. It is nil elsewhere.
func (p Place) Refuse() error {
	switch {
	case p.TasksPerNode > 1:
		return p.refuseTasks()
	case p.Kind == SlurmLogin:
		return &Refusal{
			Problem: fmt.Sprintf("this machine is not part of Slurm job %s", p.Job),
			Remedy:  "put `srun -N1 -n1 --ntasks-per-node=1` before gpurun, so that it runs on the job's node",
		}
	case p.Nodes <= 1:
		return nil
	case p.Kind == SlurmBatch:
		return &Refusal{
			Problem: fmt.Sprintf("Slurm job %s has %d nodes, and gpurun was started on one of them", p.Job, p.Nodes),
			Remedy:  oneNode,
		}
	case p.Kind == SlurmStep:
		return &Refusal{
			Problem: fmt.Sprintf("Slurm step %s starts gpurun on %d nodes", jobStep(p), p.Nodes),
			Remedy:  oneNode,
		}
	}
	return &Refusal{
		Problem: fmt.Sprintf("the job spans %d nodes (%s)", p.Nodes, p.Evidence),
		Remedy:  "gpurun runs on one node: start the job with a single one",
	}
}

// refuseTasks: one gpurun a node starts all of the node's ranks.
func (p Place) refuseTasks() error {
	r := &Refusal{
		Problem: fmt.Sprintf("gpurun is started %d times on a node (%s)", p.TasksPerNode, p.Evidence),
		Remedy:  "start gpurun once, it starts a rank for each GPU by itself",
	}
	if p.Kind == SlurmStep {
		r.Problem = fmt.Sprintf("Slurm step %s starts gpurun %d times on a node", jobStep(p), p.TasksPerNode)
		r.Remedy = "use --ntasks-per-node=1: gpurun starts a rank for each GPU by itself"
	}
	return r
}
