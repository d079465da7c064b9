package cluster

import (
	"cmp"
	"time"
)

// Replaces reports whether the engine starts a lost node again while the others live.
// Kubernetes makes another pod; Slurm, MPI and ssh end or leave the rest.
func (p Place) Replaces() bool { return p.Kind == Kubernetes }

// How long the first nodes wait for the last one. Slurm starts a step's tasks together;
// a pod may have to wait for a machine, and for its image.
const (
	joinTimeout    = 5 * time.Minute
	podJoinTimeout = 15 * time.Minute
)

// JoinTimeout is how long all nodes of the launch may take until they are there.
func (p Place) JoinTimeout() time.Duration {
	if p.Replaces() {
		return podJoinTimeout
	}
	return joinTimeout
}

// WhyMissing says for people where to look why a node does not come.
func (p Place) WhyMissing() string {
	switch {
	case p.Slurm():
		return "what srun prints of a node's task says why it does not come, and `scontrol show node` whether the node answers"
	case p.Kind == Kubernetes:
		return "`kubectl get pods` shows which pods run, and `kubectl describe pod` why one does not"
	}
	return "each node starts gpurun with the same command, and has to reach the port of node 0"
}

// gangID names the launch: what the user calls it, the job of a scheduler that has all
// of the nodes, --rdzv-id, and what operators name.
func (v variables) gangID(p Place, asked Asked) string {
	id := cmp.Or(chosenID(asked.ID.Value), chosenID(v["PET_RDZV_ID"]))
	scheduled := p.Job
	if p.Slurm() {
		// Several jobs that were told of each other are one launch under none of their names.
		if nodes, _ := jobNodes(v); nodes < p.Nodes {
			scheduled = ""
		}
	}
	return cmp.Or(v["GPURUN_JOB_ID"], scheduled, id, v.operatorID(p))
}

// chosenID is a rendezvous id that somebody chose: "none" is torchrun's word for none.
func chosenID(id string) string {
	if id == "none" {
		return ""
	}
	return id
}

// operatorID is what Kubernetes' operators name: the JobSet, by the variables that its
// manifests conventionally take from annotations, or the TrainJob or PyTorchJob, whose
// name is in that of its first pod.
func (v variables) operatorID(p Place) string {
	switch {
	case p.Kind != Kubernetes:
		return ""
	case v["JOBSET_NAME"] != "":
		return cmp.Or(v["JOBSET_UID"], v["JOBSET_NAME"])
	}
	return v["PET_MASTER_ADDR"]
}

// restarts counts how often all nodes were started again, by whoever counts that. AWS
// Batch counts attempts, from 1.
func (v variables) restarts() (int, error) {
	for _, name := range []string{"GPURUN_RESTART", "SLURM_RESTART_COUNT", "JOBSET_RESTART_ATTEMPT"} {
		if v[name] != "" {
			return v.count(name, 0)
		}
	}
	attempt, err := v.count("AWS_BATCH_JOB_ATTEMPT", 1)
	return max(attempt-1, 0), err
}
