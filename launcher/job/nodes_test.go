package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
)

// step is a Slurm step of two nodes, of which this is the second.
var step = []string{"SLURM_JOB_ID=7", "SLURM_STEP_ID=1", "SLURMD_NODENAME=n2", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_STEP_NUM_NODES=2", "SLURM_NODEID=1"}

// Whatever is typed or written, the node is found; until there is a gang, several are
// refused.
func TestPlacesOfCommands(t *testing.T) {
	dir, env := typedAt(t)
	put(t, filepath.Join(dir, "hosts"), "n1 slots=2\nn2 slots=2\n")
	put(t, filepath.Join(dir, "acc.yaml"), "compute_environment: LOCAL_MACHINE\nnum_machines: 2\nnum_processes: 4\nmachine_rank: 0\nmain_process_ip: n1\n")
	put(t, filepath.Join(dir, "two.toml"), "[job]\nscript = \"train.py\"\n[launch]\nnnodes = 2\n")
	put(t, filepath.Join(dir, "torchrun.toml"), "[job]\ncommand = \"torchrun --nnodes 2 --node-rank $INDEX --master-addr n1 train.py\"\n")
	put(t, filepath.Join(dir, "accelerate.toml"), "[job]\ncommand = \"accelerate launch --config_file acc.yaml --machine_rank 1 train.py\"\n[launch]\nnnodes = 2\n")
	for _, test := range []struct {
		line string
		env  []string
		want string // kind, node/nodes, head, port, who counts; or an error
	}{
		{"--nnodes 2 --node-rank 1 --master-addr n1 train.py", nil, "torchrun 1/2 n1 0 --nnodes"},
		{"torchrun --nnodes 2 --node-rank 1 --master-addr n1 train.py", nil, "torchrun 1/2 n1 0 --nnodes"},
		{"torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1:29400 train.py", step, "slurm-step 1/2 n1 29400 --nnodes"},
		{"torchrun train.py", step, "slurm-step 1/2 n1 0 "},
		{"torchrun train.py", []string{"PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h"}, "torchrun 1/2 h 0 PET_NNODES"},
		{"torchrun train.py", []string{"PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h", "GPURUN_NNODES=3", "GPURUN_HEAD=g", "GPURUN_NODE_RANK=2"}, "torchrun 2/3 g 0 GPURUN_NNODES"},
		{"torchrun --nnodes 2 --node-rank 1 --master-addr n1 train.py", []string{"PET_NNODES=3", "GPURUN_NNODES=4"}, "torchrun 1/2 n1 0 --nnodes"},
		{"env PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=h torchrun train.py", nil, "torchrun 1/2 h 0 PET_NNODES"},
		{"accelerate launch --num_machines 2 --machine_rank 1 --main_process_ip n1 --num_processes 4 train.py", nil, "torchrun 1/2 n1 0 --num_machines"},
		{"accelerate launch --config_file acc.yaml train.py", nil, "torchrun 0/2 n1 0 num_machines"},
		{"accelerate launch --config_file acc.yaml train.py", step, "slurm-step 1/2 n1 0 num_machines"},
		{"accelerate launch --config_file acc.yaml --machine_rank 0 train.py", step, "slurm-step 1/2 n1 0 num_machines"},
		{"deepspeed --hostfile hosts train.py", step, "slurm-step 1/2 n1 0 --hostfile hosts"},
		{"deepspeed --hostfile hosts train.py", []string{"GPURUN_NODE_RANK=1"}, "torchrun 1/2 n1 0 --hostfile hosts"},
		{"--node-rank 1 deepspeed --hostfile hosts train.py", nil, "torchrun 1/2 n1 0 --hostfile hosts"},
		{"deepspeed --hostfile hosts --no_ssh --node_rank 1 --master_addr h train.py", nil, "torchrun 1/2 h 0 --hostfile hosts"},
		{"deepspeed --hostfile hosts train.py", nil, "--hostfile hosts sets 2 nodes, and nothing shows which of them this is"},
		{"accelerate launch --num_machines 2 train.py", nil, "--num_machines sets 2 nodes, and nothing shows which of them this is"},
		{"accelerate launch --num_machines 4 --machine_rank 1 --main_process_ip h train.py", step, "--num_machines sets 4 nodes, but Slurm step 7.1 has 2"},
		{"torchrun --standalone train.py", step, "--standalone sets 1 node, but Slurm step 7.1 has 2"},
		{"two.toml", step, "slurm-step 1/2 n1 0 launch.nnodes"},
		{"two.toml", nil, "launch.nnodes sets 2 nodes, and nothing shows which of them this is"},
		{"torchrun.toml", []string{"INDEX=1"}, "torchrun 1/2 n1 0 --nnodes"},
		{"accelerate.toml", nil, "torchrun 1/2 n1 0 launch.nnodes"},
	} {
		all := slices.Concat(env, test.env)
		words := strings.Fields(test.line)
		if strings.HasSuffix(test.line, ".toml") {
			words[0] = filepath.Join(dir, words[0])
		}
		j, _, err := Open(t.Context(), words, all, dir)
		if err != nil {
			t.Errorf("%s: %v", test.line, err)
			continue
		}
		place, err := j.where(all)
		if err != nil {
			if err.Error() != test.want || errext.Hint(err) == "" {
				t.Errorf("%s %q: %v, want %s", test.line, test.env, err, test.want)
			}
			continue
		}
		if got := describe(place); got != test.want {
			t.Errorf("%s %q: %s, want %s", test.line, test.env, got, test.want)
		}
		if place, err := j.place(all); err != nil || place.Nodes != 2 && place.Nodes != 3 {
			t.Errorf("%s %q: several nodes are refused: %v", test.line, test.env, err)
		}
	}
}

func describe(p cluster.Placement) string {
	return fmt.Sprintf("%s %d/%d %s %d %s", p.Kind, p.NodeRank, p.Nodes, p.Head, p.HeadPort, p.By)
}

// A train.toml that counts nodes differently from its command is wrong at its line.
func TestNodesContradict(t *testing.T) {
	dir, env := typedAt(t)
	path := filepath.Join(dir, "t.toml")
	put(t, path, "[job]\ncommand = \"torchrun --nnodes 2 train.py\"\n[launch]\nnnodes = 3\n")
	if _, _, err := Open(t.Context(), []string{path}, env, dir); err == nil || !strings.Contains(err.Error(), "4:10: launch.nnodes: contradicts --nnodes in the command, which is 2; keep one") {
		t.Errorf("%v", err)
	}
}

// Nodes are distinguished by their numbers only, and belong to one job.
func TestNodesAreOfOneJob(t *testing.T) {
	dir, env := typedAt(t)
	for _, line := range []string{
		"torchrun --nnodes 2 --node-rank K --master-addr h train.py", "nice torchrun --nnodes 2 --node_rank=K --master-addr h train.py --node-rank 5",
		"nice accelerate launch --num_machines 2 --machine_rank K train.py", "nice deepspeed --no_ssh --node_rank K train.py", "--nnodes 2 --node-rank K --master-addr h train.py",
	} {
		digests := map[string]bool{}
		for _, k := range []string{"0", "1"} {
			j, _, err := Open(t.Context(), strings.Fields(strings.ReplaceAll(line, "K", k)), env, dir)
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			digests[strings.Join(j.digests[:], "")] = true
		}
		if len(digests) != 1 {
			t.Errorf("%s: each node has a job of its own", line)
		}
	}
	// What the script is given is its own.
	got := unnumbered([]string{"nice", "torchrun", "--node-rank", "1", "a.py", "--node-rank", "5"}, 3)
	if diff := cmp.Diff([]string{"nice", "torchrun", "a.py", "--node-rank", "5"}, got); diff != "" {
		t.Error(diff)
	}
}

// The only process of each of several nodes is a rank, and a job that would be trained
// once a node is refused.
func TestOneProcessANode(t *testing.T) {
	s := Inspected{Job: Job{Launch: LaunchSettings{RankOptions: commandline.RankOptions{NprocPerNode: "1"}, Launcher: commandline.RankStarter{Wrapper: "accelerate launch", Alone: true}}}, Where: cluster.Placement{Nodes: 2}}
	if p, err := s.count(recipeChoice{}); err != nil || p.Plain || p.Ranks != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	s.Where.Nodes = 1
	if p, err := s.count(recipeChoice{}); err != nil || !p.Plain {
		t.Errorf("%+v, %v", p, err)
	}
	s.Job.Launch = LaunchSettings{RankOptions: commandline.RankOptions{NprocPerNode: "auto"}, Auto: AutoTyped}
	if p, err := s.count(recipeChoice{}); err != nil || !p.Plain {
		t.Errorf("%+v, %v", p, err)
	}
	s.Where.Nodes = 4
	if p, err := s.count(recipeChoice{}); err == nil || !strings.Contains(err.Error(), "4 nodes would each train the whole job: the command is one process") || !strings.Contains(errext.Hint(err), "GPURUN_NNODES=1") {
		t.Errorf("%+v, %v", p, err)
	}
	s.Job.Launch.Self = true
	if p, err := s.count(recipeChoice{}); err != nil || !p.Plain {
		t.Errorf("%+v, %v", p, err)
	}
}

// Ranks get the variables of their node as the typed launcher would have set them.
func TestNodeVariables(t *testing.T) {
	s := Inspected{Where: cluster.Placement{Nodes: 4, NodeRank: 2}}
	if got := s.nodeVars(8); len(got) > 0 {
		t.Errorf("%v without a launcher", got)
	}
	s.Job.Launch.Launcher.Vars = commandline.NodeVars{Rank: "CROSS_RANK", Count: "CROSS_SIZE", Local: "LOCAL_SIZE"}
	if diff := cmp.Diff(map[string]string{"CROSS_RANK": "2", "CROSS_SIZE": "4", "LOCAL_SIZE": "8"}, map[string]string(s.nodeVars(8))); diff != "" {
		t.Error(diff)
	}
	dir, _ := folder(t, map[string]string{"train.py": "import deepspeed\n"})
	p, err := prepared(t, dir, machine(dir, "CROSS_RANK=9"), "deepspeed", "--num_gpus", "2", "train.py")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"CROSS_RANK": "0", "CROSS_SIZE": "1", "LOCAL_SIZE": "2"} {
		if got := p.Environ()[name]; got != want {
			t.Errorf("%s=%q, want %s", name, got, want)
		}
	}
}

// A line that is printed to be typed again has no number of a node where Slurm has them.
func TestPrintedLinesHaveNoNodeNumber(t *testing.T) {
	dir, _ := folder(t, map[string]string{"train.py": trainer})
	words := []string{"torchrun", "--nnodes", "2", "--node_rank", "0", "--master-addr", "n1", "train.py", "--node_rank", "3"}
	step := strings.Fields("SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURMD_NODENAME=n1 SLURM_JOB_NODELIST=n[1-2] SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_NUM_NODES=2 SLURM_NODEID=0")
	for _, test := range []struct {
		env  []string
		want string
	}{{step, "torchrun --nnodes 2 --master-addr n1 train.py --node_rank 3"}, {nil, strings.Join(words, " ")}} {
		m := machine(dir)
		m.Environ = append(m.Environ, test.env...)
		p, err := prepared(t, dir, m, words...)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(p.WithoutNumber(words), " "); got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}
