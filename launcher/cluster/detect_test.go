package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/test/testenv"
)

// recordings returns the environments that a version of Slurm was seen to set, by
// "scenario.task".
func recordings(t *testing.T, version string) map[string][]string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "slurm-"+version+".txtar"))
	testenv.Check(t, err)
	envs := map[string][]string{}
	for _, f := range archive.Files {
		envs[f.Name] = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
	}
	return envs
}

// wanted reads a table "version scenario.task | evidence | refusal", one line a
// recording.
func wanted(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/slurm-want.txt")
	testenv.Check(t, err)
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, rest, found := strings.Cut(strings.TrimSpace(line), " | ")
		if found && !strings.HasPrefix(line, "#") {
			rows[name] = rest
		}
	}
	return rows
}

// Every environment that Slurm was seen to set is recognised, and every launch
// that would start several gpuruns is refused.
func TestDetectSlurm(t *testing.T) {
	want, got := wanted(t), map[string]string{}
	for _, version := range []string{"22.05", "24.11"} {
		for name, env := range recordings(t, version) {
			p, err := Detect(env)
			if err != nil {
				t.Errorf("%s %s: %v", version, name, err)
			}
			verdict := "runs"
			if err := p.Refuse(); err != nil {
				verdict = err.Error()
			} else if p.Head != "" {
				verdict += ", node 0 is " + p.Head
			}
			got[version+" "+name] = p.Evidence + " | " + verdict
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestDetectPlace(t *testing.T) {
	envs := recordings(t, "24.11")
	pod := func(more ...string) []string { return append(more, "KUBERNETES_SERVICE_HOST=10.0.0.1") }
	tests := []struct {
		env  []string
		want Placement
	}{
		{envs["step3.p1"], Placement{Kind: SlurmStep, Job: "1", Step: "0", Node: "n2", Nodes: 3, Hosts: []string{"n1", "n2", "n3"}, NodeRank: 1, Head: "n1", GangID: "1", TasksPerNode: 1}},
		{envs["array5.p0"], Placement{Kind: SlurmStep, Job: "3_5", Element: "5", Step: "0", Node: "n1", Nodes: 2, Hosts: []string{"n1", "n2"}, Head: "n1", GangID: "3_5", TasksPerNode: 1}},
		{envs["requeued.p0"], Placement{Kind: SlurmBatch, Job: "10", Node: "n1", Nodes: 1, GangID: "10", TasksPerNode: 1, RestartCount: 1}},
		{envs["uneven.p4"], Placement{Kind: SlurmStep, Job: "12", Step: "0", Node: "n2", Nodes: 2, Hosts: []string{"n1", "n2"}, NodeRank: 1, Head: "n1", TasksPerNode: 4}},
		{envs["arbitrary.p0"], Placement{Kind: SlurmStep, Job: "11", Step: "0", Node: "n3", Nodes: 2, Hosts: []string{"n1", "n3"}, NodeRank: 1, Head: "n1", GangID: "11", TasksPerNode: 1}},
		{envs["substep-r1.p1"], Placement{Kind: SlurmStep, Job: "1", Step: "1", Node: "n3", Nodes: 2, Hosts: []string{"n2", "n3"}, NodeRank: 1, Head: "n2", GangID: "1", TasksPerNode: 1}},
		{envs["het.p2"], Placement{Kind: SlurmStep, Job: "5", Step: "0", Node: "n3", Nodes: 3, Hosts: []string{"n1", "n2", "n3"}, NodeRank: 2, Head: "n1", GangID: "5", TasksPerNode: 1}},
		{envs["leaked-batch.p0"], Placement{Kind: SlurmBatch, Job: "9", Node: "n2", Nodes: 2, GangID: "9", TasksPerNode: 1, Leaked: true}},
		{envs["salloc-shell"], Placement{Kind: SlurmLogin, Job: "7", Nodes: 2, GangID: "7", TasksPerNode: 1}},
		{envs["het-batch.p0"], Placement{Kind: SlurmBatch, Job: "5", Node: "n1", Nodes: 3, GangID: "5", TasksPerNode: 1}},
		{[]string{"PATH=/bin"}, Placement{Kind: Host, Nodes: 1, TasksPerNode: 1}},
		{append(envs["batch1.p0"], "PET_NNODES=1"), Placement{Kind: SlurmBatch, Job: "2", Node: "n1", Nodes: 1, By: "PET_NNODES", GangID: "2", TasksPerNode: 1}},
		{[]string{"WORLD_SIZE=1", "RANK=0", "LOCAL_RANK=0"}, Placement{Kind: Torchrun, Nodes: 1, By: "WORLD_SIZE", TasksPerNode: 1}},
		{[]string{"WORLD_SIZE=8", "RANK=5", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4"}, Placement{Kind: Torchrun, Nodes: 2, NodeRank: 1, TasksPerNode: 4}},
		{[]string{"WORLD_SIZE=8", "RANK=5", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "PET_NNODES=2"}, Placement{Kind: Torchrun, Nodes: 2, NodeRank: 1, TasksPerNode: 4}},
		{[]string{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2"}, Placement{Kind: MPI, Nodes: 2, TasksPerNode: 2}},
		{[]string{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "OMPI_COMM_WORLD_RANK=3", "GPURUN_HEAD=h"},
			Placement{Kind: MPI, Nodes: 4, NodeRank: 3, Head: "h", TasksPerNode: 1}},
		// pyxis with enroot's hook for PyTorch.
		{append(slices.Clone(envs["step3.p1"]), "RANK=1", "WORLD_SIZE=3", "LOCAL_RANK=0", "MASTER_ADDR=n1", "MASTER_PORT=61001"),
			Placement{Kind: SlurmStep, Job: "1", Step: "0", Node: "n2", Nodes: 3, Hosts: []string{"n1", "n2", "n3"}, NodeRank: 1, By: "WORLD_SIZE", Head: "n1", GangID: "1", TasksPerNode: 1}},
		{append(slices.Clone(envs["step3.p1"]), "RANK=1", "WORLD_SIZE=3", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=3"),
			Placement{Kind: Torchrun, Nodes: 1, TasksPerNode: 3}},
		// mpirun in a batch script of three nodes: gpurun on the first node is no task of a step, and those on the
		// others are tasks of a step of two nodes.
		{append(slices.Clone(envs["batch3.p0"]), "OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "OMPI_COMM_WORLD_RANK=0"),
			Placement{Kind: SlurmStep, Job: "1", Node: "n1", Nodes: 3, Hosts: []string{"n1", "n2", "n3"}, Head: "n1", GangID: "1", TasksPerNode: 1}},
		{append(slices.Clone(envs["substep-r1.p1"]), "OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "OMPI_COMM_WORLD_RANK=2"),
			Placement{Kind: SlurmStep, Job: "1", Node: "n3", Nodes: 3, Hosts: []string{"n1", "n2", "n3"}, NodeRank: 2, Head: "n1", GangID: "1", TasksPerNode: 1}},
		// mpirun on other nodes than Slurm lists, or an outer mpirun's variables.
		{append(slices.Clone(envs["step3.p1"]), "OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "OMPI_COMM_WORLD_RANK=2"),
			Placement{Kind: SlurmStep, Job: "1", Step: "0", Node: "n2", Nodes: 3, Hosts: []string{"n1", "n2", "n3"}, NodeRank: 1, Head: "n1", GangID: "1", TasksPerNode: 1}},
		// mpirun's daemons are a step of one task a node, and gpurun several of their processes.
		{append(slices.Clone(envs["step3.p1"]), "OMPI_COMM_WORLD_SIZE=6", "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_RANK=3"),
			Placement{Kind: MPI, Nodes: 3, NodeRank: 1, TasksPerNode: 2}},
		{append(slices.Clone(envs["step3.p1"]), "PMI_SIZE=3", "PMI_RANK=1", "PMI_FD=5"),
			Placement{Kind: SlurmStep, Job: "1", Step: "0", Node: "n2", Nodes: 3, Hosts: []string{"n1", "n2", "n3"}, NodeRank: 1, Head: "n1", GangID: "1", TasksPerNode: 1}},
		{pod("JOB_COMPLETION_INDEX=2", "GPURUN_NNODES=1"), Placement{Kind: Kubernetes, Element: "2", Nodes: 1, By: "GPURUN_NNODES", TasksPerNode: 1}},
		{pod(), Placement{Kind: Kubernetes, Nodes: 1, TasksPerNode: 1}},
	}
	for _, test := range tests {
		got, err := Detect(test.env)
		if err != nil {
			t.Errorf("%q: %v", test.env, err)
		}
		if got.Evidence == "" {
			t.Errorf("%q: no evidence", test.env)
		}
		got.Evidence = ""
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q: -want +got\n%s", test.env, diff)
		}
	}
}

// salloc's shell on the allocation's first node is a step of one node and speaks
// for the whole allocation.
func TestDetectInteractiveStep(t *testing.T) {
	env := recordings(t, "24.11")["step3.p0"]
	env = append(env, "SLURM_STEP_ID=4294967290", "SLURM_STEP_NODELIST=n1", "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_TASKS_PER_NODE=1")
	p, err := Detect(env)
	testenv.Check(t, err)
	if p.Kind != SlurmBatch || p.Nodes != 3 || p.Leaked {
		t.Errorf("%+v", p)
	}
}

// One thing wrong with a step's variables and they are those of another step.
func TestDetectLeakedStep(t *testing.T) {
	env := recordings(t, "24.11")["substep-r1.p1"]
	if p, err := Detect(env); err != nil || p.Kind != SlurmStep || p.Nodes != 2 {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, wrong := range []string{
		"SLURMD_NODENAME=n2", "SLURMD_NODENAME=elsewhere", "SLURM_STEP_NODELIST=n[2-4]", "SLURM_STEP_NODELIST=n[2-",
		"SLURM_STEP_NUM_NODES=3", "SLURM_STEP_NUM_NODES=", "SLURM_NODEID=2", "SLURM_NODEID=-1", "SLURM_NODEID=x",
		"SLURM_JOB_NODELIST=n[1-2]", "SLURM_JOB_NODELIST=[", "SLURM_STEP_TASKS_PER_NODE=1(x", "SLURM_STEP_NODELIST=(null)",
	} {
		p, err := Detect(append(slices.Clone(env), wrong))
		if err != nil {
			t.Errorf("%s: %v", wrong, err)
		}
		if p.Kind != SlurmBatch || !p.Leaked || !strings.Contains(p.Evidence, "ignored: ") {
			t.Errorf("%s: %+v", wrong, p)
		}
	}
}

func TestDetectUnreadable(t *testing.T) {
	for _, env := range [][]string{
		{"PET_NNODES=many"},
		{"PET_NNODES=2", "PET_NODE_RANK=2"},
		{"PET_NNODES=2", "PET_NODE_RANK=-1"},
		{"PET_NNODES=2:4", "PET_NODE_RANK=0"},
		{"WORLD_SIZE=4", "RANK=x"},
		{"WORLD_SIZE=x", "RANK=0"},
		{"WORLD_SIZE=4", "RANK=0", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=x"},
		{"OMPI_COMM_WORLD_SIZE=x"},
		{"PMI_SIZE=2", "MPI_LOCALNRANKS=x"},
		{"SLURM_JOB_ID=1", "SLURM_RESTART_COUNT=x"},
	} {
		_, err := Detect(env)
		if err == nil || errext.Hint(err) == "" {
			t.Errorf("%q: %v, want a refusal with a hint", env, err)
		}
	}
}

func TestRefuseHints(t *testing.T) {
	envs := recordings(t, "24.11")
	for name, want := range map[string]string{
		"two-per-node.p0": "--ntasks-per-node=1",
		"batch3.p0":       "srun --mpi=pmi2 --nodes=3 --ntasks-per-node=1 gpurun",
		"salloc-shell":    "srun --mpi=pmi2 --nodes=2 --ntasks-per-node=1 gpurun",
	} {
		p, err := Detect(envs[name])
		testenv.Check(t, err)
		if err := p.Refuse(); err == nil || !strings.Contains(errext.Hint(err), want) {
			t.Errorf("%s: %v, want a hint with %q", name, err, want)
		}
	}
}

// Several gpuruns on a node, and nodes that do not know node 0, get the line for mpirun.
func TestRefuseMpirun(t *testing.T) {
	p, err := Detect([]string{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_RANK=1"})
	testenv.Check(t, err)
	if err := p.Refuse(); err == nil || err.Error() != "mpirun starts gpurun 2 times on a node, and gpurun starts a rank for each GPU by itself" || errext.Hint(err) != "mpirun --map-by ppr:1:node gpurun torchrun …" {
		t.Errorf("%v, %s", err, errext.Hint(err))
	}
	_, err = Detect([]string{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "OMPI_COMM_WORLD_RANK=1"})
	if err == nil || !strings.Contains(errext.Hint(err), "mpirun -x GPURUN_HEAD=HOST") {
		t.Errorf("%v, %s", err, errext.Hint(err))
	}
}

func TestTasksPerNode(t *testing.T) {
	for text, want := range map[string][]int{
		"1": {1}, "1(x3)": {1, 1, 1}, "4,1": {4, 1}, "2(x3),1": {2, 2, 2, 1}, "10(x2)": {10, 10},
	} {
		got, err := tasksPerNode(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "1(x0)", "1(x-1)", "1(xx)", "-1", "1(x999999999)", fmt.Sprintf("1,%d(x65536)", 1)} {
		if got, err := tasksPerNode(text); err == nil {
			t.Errorf("%q: %d numbers, want an error", text, len(got))
		}
	}
}

// The index in an array is known from every scheduler that has arrays.
func TestArrayIndex(t *testing.T) {
	for env, want := range map[string]string{
		"SLURM_JOB_ID=8 SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=3 SLURMD_NODENAME=n1 SLURM_JOB_NODELIST=n1": "3",
		"PBS_ARRAY_INDEX=4": "4", "PBS_ARRAYID=4": "4", "SGE_TASK_ID=5": "5", "SGE_TASK_ID=undefined": "", "LSB_JOBINDEX=6": "6", "LSB_JOBINDEX=0": "",
		"AWS_BATCH_JOB_ARRAY_INDEX=0": "0", "JOB_COMPLETION_INDEX=2": "2", "JOB_COMPLETION_INDEX=1 GPURUN_NNODES=2 GPURUN_HEAD=h": "", "SEED=1": "",
	} {
		p, err := Detect(strings.Fields(env))
		if err != nil || p.Element != want {
			t.Errorf("%s: %q, %v", env, p.Element, err)
		}
	}
}

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
