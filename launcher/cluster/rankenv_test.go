package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRankEnv(t *testing.T) {
	kept := []string{
		"PATH=/bin", "SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_NODEID=0", "SLURM_STEP_ID=0",
		"SLURM_STEP_NODELIST=n1", "SLURM_GPUS_ON_NODE=2", "CUDA_VISIBLE_DEVICES=0,1", "SLURM_CPUS_PER_TASK=4",
		"PETSC_DIR=/opt/petsc", "OMP_NUM_THREADS=4", "GPURUN_NNODES=1", "PMIXX=1", "OMPI_MCA_btl=tcp,self",
	}
	gone := []string{
		"PET_NNODES=2", "PET_NPROC_PER_NODE=8", "GPURUN_SECRET=secret", "GPURUN_SECRET_FILE=/run/secret",
		"SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NTASKS=2", "SLURM_NPROCS=2", "SLURM_NTASKS_PER_NODE=1",
		"SLURM_GTIDS=0", "SLURM_TASKS_PER_NODE=1(x2)", "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_STEP_NUM_TASKS=2",
		"SLURM_NTASKS_PER_NODE_HET_GROUP_0=1", "SLURM_TASKS_PER_NODE_PACK_GROUP_1=1",
		"PMI_RANK=0", "PMI_SIZE=2", "PMIX_RANK=0", "OMPI_COMM_WORLD_SIZE=2",
		"OMPI_MCA_ess=^singleton", "OMPI_MCA_ess_base_vpid=0", "OMPI_MCA_orte_hnp_uri=1.0;tcp://h:1", "OMPI_MCA_pmix=^s1",
	}
	env := slices.Concat(gone[:5], kept, gone[5:])
	before := slices.Clone(env)
	if diff := cmp.Diff(kept, RankEnv(env)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if !slices.Equal(before, env) {
		t.Error("RankEnv changed the environment that it was given")
	}
}

// What RankEnv leaves of a task's environment still names the job and the node,
// and no longer the task.
func TestRankEnvRecorded(t *testing.T) {
	for name, env := range recordings(t, "24.11") {
		for _, entry := range RankEnv(env) {
			variable, _, _ := strings.Cut(entry, "=")
			if strings.Contains(variable, "TASK") && variable != "SLURM_ARRAY_TASK_ID" || strings.Contains(variable, "PROCID") {
				t.Errorf("%s: %s is left", name, entry)
			}
		}
		if !slices.ContainsFunc(RankEnv(env), func(e string) bool { return strings.HasPrefix(e, "SLURM_JOB_ID=") }) {
			t.Errorf("%s: SLURM_JOB_ID is gone", name)
		}
	}
}

// A rank gets its own number in each variable that numbered gpurun as a task, and in no other.
func TestTaskNumbers(t *testing.T) {
	for env, want := range map[string]map[string]string{
		"PATH=/bin SLURM_CPUS_PER_TASK=4": {},
		"SLURM_JOB_ID=7":                  {"SLURM_PROCID": "RANK", "SLURM_NTASKS": "WORLD_SIZE", "SLURM_LOCALID": "LOCAL_RANK", "SLURM_NODEID": "GROUP_RANK"},
		"SLURM_JOB_ID=7 SLURM_PROCID=1 SLURM_NTASKS_PER_NODE=1 PMI_RANK=1 SLURM_GTIDS=1": {
			"SLURM_PROCID": "RANK", "SLURM_NTASKS": "WORLD_SIZE", "SLURM_LOCALID": "LOCAL_RANK", "SLURM_NODEID": "GROUP_RANK", "SLURM_NTASKS_PER_NODE": "LOCAL_WORLD_SIZE"},
		"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=0": {
			"OMPI_COMM_WORLD_SIZE": "WORLD_SIZE", "OMPI_COMM_WORLD_RANK": "RANK", "OMPI_COMM_WORLD_LOCAL_RANK": "LOCAL_RANK"},
	} {
		if diff := cmp.Diff(want, TaskNumbers(strings.Fields(env))); diff != "" {
			t.Errorf("%s: -want +got\n%s", env, diff)
		}
	}
}
