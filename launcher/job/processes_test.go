package job

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/test/testenv"
)

// counted resolves the job of a command line, or of a train.toml's text, on a machine
// with that many GPUs.
func counted(t *testing.T, gpus int, files map[string]string, toml string, words ...string) processes {
	t.Helper()
	all := map[string]string{"train.py": "import torch\n"}
	maps.Copy(all, files)
	if toml != "" {
		all["train.toml"], words = toml, []string{"train.toml"}
	}
	dir, _ := folder(t, all)
	t.Chdir(dir)
	m := machine(dir, "HOME="+dir)
	j, _, err := Open(t.Context(), words, m.Environ, dir)
	testenv.Check(t, err)
	s, err := Inspect(t.Context(), j, m)
	testenv.Check(t, err)
	s.GPUs = ranks.DeviceView{Count: gpus, Source: "a test"}
	r, err := Resolve(t.Context(), s)
	testenv.Check(t, err)
	return r.processes
}

// A command is run as typed: what is one process without gpurun is one with it.
func TestACommandIsRunAsTyped(t *testing.T) {
	type count struct {
		local int
		plain bool
	}
	for name, test := range map[string]struct {
		toml, words string
		onGPUs      count // of four
		onCPU       count // 0: a number that depends on the machine
	}{
		"plain python":             {`command = "python3 train.py --lr 1"`, "", count{1, true}, count{1, true}},
		"a program":                {`command = "./python3 train.py"`, "", count{1, true}, count{1, true}},
		"with options":             {`command = "python3 -X dev train.py"`, "", count{1, true}, count{1, true}},
		"torchrun":                 {`command = "torchrun train.py"`, "", count{1, false}, count{1, false}},
		"torchrun auto":            {`command = "torchrun --nproc-per-node auto train.py"`, "", count{4, false}, count{0, false}},
		"torchrun cpu":             {`command = "torchrun --nproc-per-node cpu train.py"`, "", count{0, false}, count{0, false}},
		"gpurun's own line":        {"", "train.py", count{1, false}, count{1, false}},
		"gpurun's own line, auto":  {"", "--nproc-per-node auto train.py", count{4, false}, count{0, false}},
		"accelerate":               {`command = "accelerate launch train.py"`, "", count{4, false}, count{1, true}},
		"accelerate on the CPU":    {`command = "accelerate launch --cpu train.py"`, "", count{1, true}, count{1, true}},
		"accelerate with one":      {`command = "accelerate launch --num_processes 1 train.py"`, "", count{1, true}, count{1, true}},
		"accelerate with two":      {`command = "accelerate launch --num_processes 2 train.py"`, "", count{2, false}, count{2, false}},
		"accelerate, FSDP, one":    {`command = "accelerate launch --use_fsdp --num_processes 1 train.py"`, "", count{1, false}, count{1, false}},
		"accelerate over four":     {"command = \"accelerate launch train.py\"\n[launch]\nnproc_per_node = \"auto\"", "", count{4, false}, count{1, true}},
		"deepspeed":                {`command = "deepspeed train.py"`, "", count{4, false}, count{0, false}},
		"deepspeed with two":       {`command = "deepspeed --num_gpus 2 train.py"`, "", count{2, false}, count{2, false}},
		"a number in the file":     {"command = \"python3 train.py\"\n[launch]\nnproc_per_node = 3", "", count{3, false}, count{3, false}},
		"auto in the file":         {"command = \"python3 train.py\"\n[launch]\nnproc_per_node = \"auto\"", "", count{1, true}, count{1, true}},
		"a launcher of its own":    {"command = \"torchrun train.py\"\n[launch]\nranks = \"self\"", "", count{4, true}, count{1, true}},
		"torchrun, auto in a file": {"command = \"torchrun train.py\"\n[launch]\nnproc_per_node = 2", "", count{2, false}, count{2, false}},
	} {
		if name == "torchrun, auto in a file" {
			test.toml = strings.Replace(test.toml, "torchrun train.py", "torchrun --nproc-per-node 2 train.py", 1)
		}
		for gpus, want := range map[int]count{4: test.onGPUs, 0: test.onCPU} {
			toml := ""
			if test.toml != "" {
				toml = "[job]\n" + test.toml
			}
			got := counted(t, gpus, nil, toml, strings.Fields(test.words)...)
			if want.local == 0 {
				want.local = got.Ranks
			}
			if got.Ranks != want.local || got.Plain != want.plain || got.WhyRanks == "" {
				t.Errorf("%s, %d GPUs: %+v, want %+v", name, gpus, got, want)
			}
		}
	}
}

// A train.toml without a number of ranks has one for each GPU where the script shows
// that it joins a process group, and else one process.
func TestNumberOfRanksFollowsTheScript(t *testing.T) {
	const joins = "import torch.distributed as dist\ndef setup():\n    dist.init_process_group('nccl')\n"
	for name, test := range map[string]struct {
		files    map[string]string
		job      string
		gpus     int
		want     processes
		contains string
	}{
		"knows nothing of ranks":   {nil, "", 4, processes{Ranks: 1, Plain: true}, "nothing shows that the job joins a process group"},
		"joins":                    {map[string]string{"train.py": joins}, "", 4, processes{Ranks: 4}, "train.py calls init_process_group"},
		"joins, no GPU":            {map[string]string{"train.py": joins}, "", 0, processes{Ranks: 1}, "no GPU is usable"},
		"joins, one GPU":           {map[string]string{"train.py": joins}, "", 1, processes{Ranks: 1}, "init_process_group"},
		"only says so":             {map[string]string{"train.py": "# dist.init_process_group()\n\"\"\"Call init_process_group() yourself.\"\"\"\n"}, "", 4, processes{Ranks: 1, Plain: true}, "nothing shows"},
		"defines it":               {map[string]string{"train.py": "def init_distributed_mode(args):\n    pass\n"}, "", 4, processes{Ranks: 1, Plain: true}, "nothing shows"},
		"a framework":              {map[string]string{"train.py": "import lightning as L\n"}, "", 4, processes{Ranks: 4}, "train.py imports lightning"},
		"a framework, one GPU":     {map[string]string{"train.py": "import lightning as L\n"}, "", 1, processes{Ranks: 1, Plain: true}, "lightning"},
		"a framework, no GPU":      {map[string]string{"train.py": "from transformers import Trainer\n"}, "", 0, processes{Ranks: 1, Plain: true}, "no GPU"},
		"only a model":             {map[string]string{"train.py": "from transformers import AutoModel\n"}, "", 4, processes{Ranks: 1, Plain: true}, "nothing shows"},
		"spawns":                   {map[string]string{"train.py": joins + "import torch.multiprocessing as mp\nmp.spawn(setup, nprocs=4)\n"}, "", 4, processes{Ranks: 1, Plain: true}, "calls mp.spawn, which starts ranks"},
		"four levels away":         {map[string]string{"train.py": "import a\n", "a.py": "from b.c import d\n", "b/__init__.py": "", "b/c.py": "from . import e\n", "b/e.py": "import f.g as h, os\n", "f/g.py": joins}, "", 2, processes{Ranks: 2}, "g.py calls init_process_group"},
		"five levels away":         {map[string]string{"train.py": "import a\n", "a.py": "import b\n", "b.py": "import c\n", "c.py": "import d\n", "d.py": "import e\n", "e.py": joins}, "", 2, processes{Ranks: 1, Plain: true}, "nothing shows"},
		"a ring":                   {map[string]string{"train.py": "import a\n", "a.py": "from train import x\nimport a\n"}, "", 2, processes{Ranks: 1, Plain: true}, "nothing shows"},
		"beside a relative module": {map[string]string{"pkg/__init__.py": "", "pkg/train.py": "from ..other import x\nfrom .dist_utils import setup\n", "pkg/dist_utils.py": joins}, "module = \"pkg.train\"\n", 2, processes{Ranks: 2}, "dist_utils.py"},
		"on PYTHONPATH":            {map[string]string{"train.py": "from lib.dist import setup\n", "more/lib/dist.py": joins}, "script = \"train.py\"\nenv = { PYTHONPATH = \"more\" }\n", 2, processes{Ranks: 2}, "dist.py"},
		"a program":                {map[string]string{"run.sh": "#!/bin/sh\n"}, "program = [\"/bin/true\"]\n", 4, processes{Ranks: 1, Plain: true}, "nothing shows"},
		"a program's batch":        {nil, "program = [\"/bin/true\", \"--batch-size\", \"8\"]\n", 4, processes{Ranks: 1, Plain: true}, "nothing shows"},
		"a framework's program":    {nil, "module = \"axolotl.cli.train\"\nargs = [\"c.yml\"]\n", 4, processes{Ranks: 4}, "Axolotl"},
	} {
		job := test.job
		if job == "" {
			job = "script = \"train.py\"\n"
		}
		got := counted(t, test.gpus, test.files, "[job]\n"+job)
		if got.Ranks != test.want.Ranks || got.Plain != test.want.Plain || !strings.Contains(got.WhyRanks, test.contains) {
			t.Errorf("%s: %+v, want %+v and %q", name, got, test.want, test.contains)
		}
	}
}

// A typed process may start ranks, which only it can report.
func TestOneProcessMayStartRanks(t *testing.T) {
	for name, test := range map[string]struct {
		files   map[string]string
		command []string
	}{
		"a script":       {map[string]string{"train.py": "import torch\n"}, []string{"python3", "train.py"}},
		"spawns":         {map[string]string{"train.py": "import torch.multiprocessing as mp\nmp.start_processes(main, nprocs=4)\n"}, []string{"python3", "train.py"}},
		"a shell script": {map[string]string{"run.sh": "python -m torch.distributed.launch --nproc_per_node=8 train.py\n"}, []string{"bash", "run.sh"}},
	} {
		got := counted(t, 2, test.files, "", test.command...)
		if got.Ranks != 1 || !got.OwnRanks || !strings.HasSuffix(got.WhyRanks, "whether it starts ranks, it reports") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A job whose one process is given no rank keeps its own variables, and the user gets a note.
func TestRankVariablesOfOneProcess(t *testing.T) {
	for toml, want := range map[string]int{
		"command = \"MASTER_PORT=1 python3 train.py\"":                                      0,
		"script = \"train.py\"\nenv = { RANK = \"0\" }":                                     0,
		"script = \"train.py\"\nenv = { RANK = \"0\" }\n[launch]\nnproc_per_node = 2\n":     1,
		"command = \"torchrun --nproc-per-node 2 train.py\"\nenv = { MASTER_PORT = \"1\" }": 1,
	} {
		dir, _ := folder(t, map[string]string{"train.py": "import torch\n", "train.toml": "[job]\n" + toml})
		p, err := prepared(t, dir, machine(dir), "train.toml")
		testenv.Check(t, err)
		if w := p.Warnings; len(w) != want {
			t.Errorf("%s: %q", toml, w)
		}
		if p.Plain != (want == 0) || p.Ranks < 1 || filepath.Base(p.Job.Argv[0]) != "train.py" {
			t.Errorf("%s: plain %v, %d ranks", toml, p.Plain, p.Ranks)
		}
	}
}

// Data-parallel ranks of a process that may start some itself are what the user says.
func TestDataParallelOfOneProcess(t *testing.T) {
	dir, _ := folder(t, map[string]string{"train.py": "import torch\n", "train.toml": "[job]\nscript = \"train.py\"\n[launch]\ndata_parallel = 4\n"})
	p, err := prepared(t, dir, machine(dir), "train.toml")
	if err != nil || p.StrategyJob().DataParallel != 4 || p.Ranks != 1 {
		t.Errorf("%+v, %v", p.StrategyJob(), err)
	}
}

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
	testenv.Check(t, err)
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
		testenv.Check(t, err)
		if got := strings.Join(p.WithoutNumber(words), " "); got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}
