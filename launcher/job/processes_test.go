package job

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/ranks"
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
	if err != nil {
		t.Fatal(err)
	}
	s, err := Inspect(t.Context(), j, m)
	if err != nil {
		t.Fatal(err)
	}
	s.GPUs = ranks.DeviceView{Count: gpus, Source: "a test"}
	r, err := Resolve(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
