package cluster

import (
	"slices"
	"strings"
)

// arrayIndexes are the variables in which schedulers number the elements of an array. Outside
// arrays Grid Engine writes "undefined" and LSF 0.
var arrayIndexes = []string{"SLURM_ARRAY_TASK_ID", "PBS_ARRAY_INDEX", "PBS_ARRAYID", "SGE_TASK_ID", "LSB_JOBINDEX", "AWS_BATCH_JOB_ARRAY_INDEX"}

// element is the index of this job in an array, empty outside arrays. A pod that is the only node
// of its training is an element of its indexed Job.
func (v variables) element(p Placement) string {
	for _, name := range arrayIndexes {
		if value := v[name]; value != "" && value != "undefined" && (name != "LSB_JOBINDEX" || value != "0") {
			return value
		}
	}
	if p.Nodes == 1 {
		return v["JOB_COMPLETION_INDEX"]
	}
	return ""
}

// volatile are the variables, by name or prefix, that depend on where and when a job runs. They
// change with a restart of the job, or from night to night.
var (
	volatile = []string{
		"HOSTNAME", "HOST", "HOME", "USER", "LOGNAME", "SHELL", "PATH", "PYTHONPATH", "PWD", "OLDPWD", "SHLVL", "TERM", "LANG", "DISPLAY", "_",
		"TMPDIR", "TMP", "TEMP", "TEMPDIR", "LOCAL_SCRATCH", "SCRATCHDIR", "XDG_RUNTIME_DIR", "ENVIRONMENT", "BUILD_ID", "BUILD_NUMBER", "BUILD_TAG", "BUILD_URL", "JOB_ID", "JOB_NAME",
		"MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "NODE_RANK", "MACHINE_RANK", "GROUP_RANK", "ROLE_RANK", "CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE",
		"WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "NODE_NAME", "POD_NAME", "POD_IP", "HOST_IP", "JOB_COMPLETION_INDEX",
		"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "OMP_NUM_THREADS",
	}
	volatilePrefixes = []string{
		"SLURM", "SBATCH_", "SRUN_", "PBS_", "LSB_", "SGE_", "AWS_BATCH_", "SKYPILOT_", "DSTACK_", "PMI_", "PMI2_", "PMIX_", "OMPI_", "MV2_", "MPI_", "PET_", "TORCHELASTIC_", "GPURUN_",
		"KUBERNETES_", "JOBSET_", "CI_", "GITHUB_", "RUNNER_", "SSH_", "LC_", "XDG_SESSION_",
	}
)

// Volatile reports whether a variable describes where and when a job runs, not its training. The index in an
// array, which selects the training, is Placement.Element.
func Volatile(name string) bool {
	return slices.Contains(volatile, name) || slices.ContainsFunc(volatilePrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
