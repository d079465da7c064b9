package cluster

import "cmp"

// gangID names the launch. The first that is set: the user's GPURUN_JOB_ID, the job of a scheduler
// that has all of the nodes, the rendezvous id, and the names that operators give.
func (v variables) gangID(p Placement, rendezvous string) string {
	scheduled := p.Job
	if nodes, _ := jobNodes(v); p.Slurm() && nodes < p.Nodes {
		scheduled = "" // several jobs that make one launch share no job's name
	}
	return cmp.Or(v["GPURUN_JOB_ID"], scheduled, chosenID(rendezvous), chosenID(v["PET_RDZV_ID"]), v.operatorID(p))
}

// chosenID is a rendezvous id that a user chose: "none" is torchrun's word for no id.
func chosenID(id string) string {
	if id == "none" {
		return ""
	}
	return id
}

// operatorID is the name that Kubernetes' operators give: the JobSet's, by the variables that its
// manifests conventionally take from annotations, or that of the first pod, which contains the
// name of the TrainJob or PyTorchJob.
func (v variables) operatorID(p Placement) string {
	switch {
	case p.Kind != Kubernetes:
		return ""
	case v["JOBSET_NAME"] != "":
		return cmp.Or(v["JOBSET_UID"], v["JOBSET_NAME"])
	}
	return v["PET_MASTER_ADDR"]
}

// restarts counts how often all nodes were started again. AWS Batch counts attempts, from 1.
func (v variables) restarts() (int, error) {
	for _, name := range []string{"GPURUN_RESTART", "SLURM_RESTART_COUNT", "JOBSET_RESTART_ATTEMPT"} {
		if v[name] != "" {
			return v.count(name, 0)
		}
	}
	attempt, err := v.count("AWS_BATCH_JOB_ATTEMPT", 1)
	return max(attempt-1, 0), err
}
