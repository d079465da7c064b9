package cluster

import (
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
)

// RankEnv returns a copy of an environment for the ranks, without the variables that describe
// gpurun itself: torchrun's options (PET_…), which a torchrun inside the job would read; the secret
// of gpurun's nodes; mpirun's connection; and the task numbers of Slurm and MPI, which count one task a
// node: ranks get their own numbers (TaskNumbers). The variables of the job (its id, nodes, GPUs, memory) stay.
//
// Frameworks read torchrun's variables on several nodes, too:
//
//   - Lightning 2.6: TORCHELASTIC_RUN_ID makes it TorchElasticEnvironment, before
//     SLURMEnvironment; of it RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and
//     GROUP_RANK for the node (fabric/plugins/environments/torchelastic.py). NODE_RANK is
//     read only without that id. Trainer(num_nodes=…) has to be the number of nodes, with as
//     many ranks on each, as under torchrun.
//   - Accelerate 1.15: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, before PMI_* and
//     OMPI_* (utils/environment.py, get_cpu_distributed_information). accelerate launch
//     passes machine_rank to ranks only in torchrun's variables (utils/launch.py).
//   - DeepSpeed 0.19: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, else it looks for
//     MPI (comm/comm.py, init_distributed). Its launcher also sets CROSS_RANK, CROSS_SIZE and
//     LOCAL_SIZE, Composer's NODE_RANK: commandline.NodeVars.
//   - Transformers 5.23: what Accelerate reads (training_args.py).
func RankEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return misleads(name)
	})
}

// taskNumbers are Slurm's variables that number or count the tasks of a step, one of which is
// gpurun.
var taskNumbers = []string{
	"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_GTIDS",
	"SLURM_TASKS_PER_NODE", "SLURM_TASK_PID", "SLURM_NTASKS_PER_NODE",
	"SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_SOCKET", "SLURM_NTASKS_PER_CORE",
}

// numbersAs maps the variables of tasks of Slurm and MPI to torchrun's variables of the same
// meaning. PMI_RANK is not among them: it belongs to a connection that ranks do not have.
var numbersAs = map[string]string{
	"SLURM_PROCID": "RANK", "SLURM_NTASKS": "WORLD_SIZE", "SLURM_NPROCS": "WORLD_SIZE",
	"SLURM_STEP_NUM_TASKS": "WORLD_SIZE",
	"SLURM_LOCALID":        "LOCAL_RANK", "SLURM_NTASKS_PER_NODE": "LOCAL_WORLD_SIZE", "SLURM_NODEID": "GROUP_RANK",
	"OMPI_COMM_WORLD_RANK": "RANK", "OMPI_COMM_WORLD_SIZE": "WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK": "LOCAL_RANK",
	"OMPI_COMM_WORLD_LOCAL_SIZE": "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_NODE_RANK": "LOCAL_RANK",
	"MV2_COMM_WORLD_RANK": "RANK", "MV2_COMM_WORLD_SIZE": "WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK": "LOCAL_RANK",
	"MV2_COMM_WORLD_LOCAL_SIZE": "LOCAL_WORLD_SIZE",
}

// slurmTask are the variables that every task of Slurm has.
var slurmTask = []string{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID"}

// TaskNumbers maps the variables that number a task of Slurm or MPI, if gpurun itself has them or
// runs in a Slurm job, to torchrun's variables with a rank's values.
func TaskNumbers(env []string) map[string]string {
	vars, numbers := commandline.ParseEnviron(env), map[string]string{}
	for name, same := range numbersAs {
		if _, set := vars[name]; set || vars["SLURM_JOB_ID"] != "" && slices.Contains(slurmTask, name) {
			numbers[name] = same
		}
	}
	return numbers
}

// foreign are the beginnings of names that belong to another launcher.
var foreign = []string{
	"PET_", "GPURUN_TOKEN", "GPURUN_SECRET", "PMI_", "PMI2_", "PMIX_", "OMPI_COMM_WORLD_", "MV2_COMM_WORLD_", "MPI_LOCAL",
	// mpirun counts one process a node, gpurun: with these MPI_Init fails in ranks, and without them each
	// rank is an MPI job by itself, which mpirun does not end with.
	"OMPI_MCA_ess", "OMPI_MCA_orte_", "OMPI_MCA_pmix",
}

func misleads(name string) bool {
	// The parts of a heterogeneous job repeat the variables with a suffix.
	for _, suffix := range []string{"_HET_GROUP_", "_PACK_GROUP_"} {
		name, _, _ = strings.Cut(name, suffix)
	}
	if slices.Contains(taskNumbers, name) {
		return true
	}
	if step, ok := strings.CutPrefix(name, "SLURM_STEP_"); ok && strings.Contains(step, "TASK") {
		return true
	}
	return slices.ContainsFunc(foreign, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// arrayIndexes are the variables in which schedulers number the elements of an array. Outside
// arrays Grid Engine writes "undefined" and LSF 0.
var arrayIndexes = []string{"SLURM_ARRAY_TASK_ID", "PBS_ARRAY_INDEX", "PBS_ARRAYID", "SGE_TASK_ID", "LSB_JOBINDEX",
	"AWS_BATCH_JOB_ARRAY_INDEX"}

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
		"HOSTNAME", "HOST", "HOME", "USER", "LOGNAME", "SHELL", "PATH", "PYTHONPATH", "PWD", "OLDPWD", "SHLVL", "TERM",
		"LANG", "DISPLAY", "_",
		"TMPDIR", "TMP", "TEMP", "TEMPDIR", "LOCAL_SCRATCH", "SCRATCHDIR", "XDG_RUNTIME_DIR", "ENVIRONMENT", "BUILD_ID",
		"BUILD_NUMBER", "BUILD_TAG", "BUILD_URL", "JOB_ID", "JOB_NAME",
		"MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "NODE_RANK", "MACHINE_RANK", "GROUP_RANK", "ROLE_RANK",
		"CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE",
		"WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "NODE_NAME", "POD_NAME", "POD_IP",
		"HOST_IP", "JOB_COMPLETION_INDEX",
		"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
		"GPU_DEVICE_ORDINAL", "OMP_NUM_THREADS",
	}
	volatilePrefixes = []string{
		"SLURM", "SBATCH_", "SRUN_", "PBS_", "LSB_", "SGE_", "AWS_BATCH_", "SKYPILOT_", "DSTACK_", "PMI_", "PMI2_", "PMIX_",
		"OMPI_", "MV2_", "MPI_", "PET_", "TORCHELASTIC_", "GPURUN_",
		"KUBERNETES_", "JOBSET_", "CI_", "GITHUB_", "RUNNER_", "SSH_", "LC_", "XDG_SESSION_",
	}
)

// Volatile reports whether a variable describes where and when a job runs, not its training. The index in an
// array, which selects the training, is Placement.Element.
func Volatile(name string) bool {
	return slices.Contains(volatile, name) || slices.ContainsFunc(volatilePrefixes,
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
