package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// withTorch puts an interpreter into a folder whose PyTorch has a version.py.
func withTorch(t *testing.T, version string) *python.Interpreter {
	t.Helper()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "python3"), "#!/bin/sh\necho '{\"version\": \"3.12.0\", \"path\": [\""+dir+"\"]}'\n")
	testenv.Check(t, os.Chmod(filepath.Join(dir, "python3"), 0o755))
	if version != "" {
		testenv.Check(t, os.Mkdir(filepath.Join(dir, "torch"), 0o755))
		put(t, filepath.Join(dir, "torch", "version.py"), version)
	}
	return python.At(filepath.Join(dir, "python3"), dir, commandline.Environ{})
}

const (
	slurmNode = "SLURM_JOB_ID=7 SLURMD_NODENAME=n1 SLURM_JOB_NODELIST=n1"
	torchCUDA = "from typing import Optional\n__all__ = ['cuda']\n__version__ = '2.9.0'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
	torchCPU  = "__version__ = '2.9.0+cpu'\ndebug = False\ncuda: Optional[str] = None\ngit_version = 'x'\nhip: Optional[str] = None\n"
	torchOld  = "__version__ = '1.13.1'\ncuda = None\nhip = None\n"
	torchROCm = "cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43482'\n"
)

// A job that was promised GPUs never trains on the CPU in silence, unless it says that
// it wants to.
func TestPromisedGPUs(t *testing.T) {
	two := ranks.DeviceView{Count: 2, Source: "nvml"}
	none := ranks.DeviceView{Source: "/dev/nvidia*"}
	for name, test := range map[string]struct {
		env   string
		gpus  ranks.DeviceView
		torch string // version.py; empty: no PyTorch
		job   Job
		code  int // 0: it runs
		says  string
	}{
		"there they are":         {slurmNode + " SLURM_GPUS_ON_NODE=2 CUDA_VISIBLE_DEVICES=0,1", two, torchCUDA, Job{}, 0, ""},
		"none is there":          {slurmNode + " SLURM_GPUS_ON_NODE=2 CUDA_VISIBLE_DEVICES=0,1", none, torchCUDA, Job{}, strategy.CodeRetry, "Slurm promised GPUs (SLURM_GPUS_ON_NODE=2), and none is usable: there is no NVIDIA driver on n1"},
		"the driver has none":    {slurmNode + " CUDA_VISIBLE_DEVICES=0,1", ranks.DeviceView{Source: "CUDA_VISIBLE_DEVICES of nvml"}, "", Job{}, strategy.CodeRetry, "none is usable: the driver on n1 offers none of them"},
		"no Python to ask":       {slurmNode + " SLURM_GPUS_ON_NODE=1", none, "", Job{}, strategy.CodeRetry, "none is usable"},
		"PyTorch for the CPU":    {slurmNode + " SLURM_GPUS_ON_NODE=2", two, torchCPU, Job{}, strategy.CodeUsage, "was built without CUDA"},
		"an old one":             {slurmNode + " SLURM_GPUS_ON_NODE=2", none, torchOld, Job{}, strategy.CodeUsage, "was built without CUDA"},
		"PyTorch for AMD's":      {slurmNode + " SLURM_GPUS_ON_NODE=2", none, torchROCm, Job{}, strategy.CodeRetry, "none is usable"},
		"AMD's":                  {slurmNode + " SLURM_GPUS_ON_NODE=2", ranks.DeviceView{Count: 2, Accelerator: "rocm", Name: "AMD GPU (ROCm)"}, torchROCm, Job{}, 0, ""},
		"none were asked for":    {slurmNode, none, torchCPU, Job{}, 0, ""},
		"none for this part":     {slurmNode + " SLURM_GPUS_ON_NODE=2 CUDA_VISIBLE_DEVICES=", none, torchCPU, Job{}, 0, ""},
		"job.env wants the CPU":  {slurmNode + " SLURM_GPUS_ON_NODE=2", none, torchCPU, Job{Env: map[string]string{"CUDA_VISIBLE_DEVICES": "-1"}}, 0, ""},
		"job.env chooses one":    {slurmNode + " SLURM_GPUS_ON_NODE=2", none, "", Job{Env: map[string]string{"CUDA_VISIBLE_DEVICES": "1"}}, strategy.CodeRetry, "none is usable"},
		"the command does":       {slurmNode + " SLURM_GPUS_ON_NODE=2", none, torchCPU, Job{Argv: []string{"train.py", "--device", "cpu"}}, 0, ""},
		"in one word":            {slurmNode + " SLURM_GPUS_ON_NODE=2", none, torchCPU, Job{Argv: []string{"train.py", "trainer.accelerator=cpu"}}, 0, ""},
		"by a switch":            {slurmNode + " SLURM_GPUS_ON_NODE=2", none, torchCPU, Job{Argv: []string{"train.py", "--use_cpu"}}, 0, ""},
		"offload is not that":    {slurmNode + " SLURM_GPUS_ON_NODE=2", none, "", Job{Argv: []string{"train.py", "--offload_optimizer_device", "cpu"}}, strategy.CodeRetry, "none is usable"},
		"nor is a loader's":      {slurmNode + " SLURM_GPUS_ON_NODE=2", none, "", Job{Argv: []string{"train.py", "--cpu-workers", "4"}}, strategy.CodeRetry, "none is usable"},
		"ranks for each core":    {slurmNode + " SLURM_GPUS_ON_NODE=2", none, torchCPU, Job{Launch: LaunchSettings{RankOptions: commandline.RankOptions{NprocPerNode: "cpu"}}}, 0, ""},
		"a plain host":           {"CUDA_VISIBLE_DEVICES=0", none, torchCPU, Job{}, 0, ""},
		"another batch system":   {"PBS_JOBID=9.pbs CUDA_VISIBLE_DEVICES=0", none, "", Job{}, strategy.CodeRetry, "the scheduler promised GPUs (CUDA_VISIBLE_DEVICES=0)"},
		"a pod with a GPU":       {"KUBERNETES_SERVICE_HOST=10.0.0.1 NVIDIA_VISIBLE_DEVICES=GPU-8a56a4bc-1111-2222-3333-444455556666", none, "", Job{}, strategy.CodeRetry, "NVIDIA_VISIBLE_DEVICES=GPU-"},
		"a pod of a CUDA image":  {"KUBERNETES_SERVICE_HOST=10.0.0.1 NVIDIA_VISIBLE_DEVICES=all", none, "", Job{}, 0, ""},
		"a pod that asks for no": {"KUBERNETES_SERVICE_HOST=10.0.0.1 NVIDIA_VISIBLE_DEVICES=void", none, "", Job{}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := Surroundings{Environ: strings.Fields(test.env)}
			s := inspectedAt(t, test.job, m)
			s.GPUs, s.Interpreter, s.source = test.gpus, withTorch(t, test.torch), []byte("import os\nimport torch.nn as nn\n")
			_, err := s.checkPromise(t.Context(), m)
			if test.code == 0 && err != nil || test.code != 0 && (err == nil || errext.Code(err, 0) != test.code || errext.Hint(err) == "") {
				t.Fatalf("%v, code %d, want %d", err, errext.Code(err, 0), test.code)
			}
			if err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %q", err, test.says)
			}
		})
	}
}

// PyTorch may be installed, and the job train with something else.
func TestAPyTorchThatTheJobMayNotUse(t *testing.T) {
	m := Surroundings{Environ: strings.Fields(slurmNode + " SLURM_GPUS_ON_NODE=2")}
	s := inspectedAt(t, Job{}, m)
	s.GPUs, s.Interpreter, s.source = ranks.DeviceView{Count: 2, Source: "nvml"}, withTorch(t, torchCPU), []byte("import jax\n")
	warnings, err := s.checkPromise(t.Context(), m)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "built without CUDA: if the job uses it, it trains on the CPU") {
		t.Errorf("%q, %v", warnings, err)
	}
	s.GPUs.Count = 0
	if _, err := s.checkPromise(t.Context(), m); errext.Code(err, 0) != strategy.CodeRetry {
		t.Errorf("no GPU: %v", err)
	}
}

// An accelerator that gpurun does not know is called what it is, has no ceiling, and no
// setting of an allocator that is not its own.
func TestAnUnknownAccelerator(t *testing.T) {
	s := Inspected{GPUs: ranks.DeviceView{Count: 4, Accelerator: "rocm", Name: "AMD GPU (ROCm)", Source: "/sys/class/kfd"}}
	s.Job.DeviceMemory = 24 << 30
	r := Resolved{Inspected: s}
	if got := s.Accelerator(); got != "rocm" {
		t.Errorf("it is %q", got)
	}
	if c, err := r.limit(t.Context()); err != nil || c.data != 0 || c.allocator != "" {
		t.Errorf("ceiling %+v, %v", c, err)
	}
	if w := s.noCeiling(); len(w) != 1 || !strings.Contains(w[0], "ceiling on an AMD GPU (ROCm)") {
		t.Errorf("warnings %q", w)
	}
	p := &Prepared{Resolved: r}
	if got := p.Place(); !strings.Contains(got, "4 × AMD GPU (ROCm) (/sys/class/kfd), which gpurun does not know: failures are diagnosed, ceilings are off") {
		t.Errorf("place %q", got)
	}
	s.Job.Launch.NprocPerNode, s.Job.Launch.Auto = "auto", AutoDevices
	if n, err := s.count(recipeChoice{}); err != nil || n.Ranks != 4 {
		t.Errorf("%d ranks, %v", n.Ranks, err)
	}
}

// Elements of an array that look for checkpoints in one place are warned.
func TestAnArrayThatSharesItsCheckpoints(t *testing.T) {
	array := Surroundings{Environ: strings.Fields(slurmNode + " SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=3")}
	for name, test := range map[string]struct {
		machine Surroundings
		latest  string
		warned  bool
	}{
		"shared":             {array, "/out/ckpt-*", true},
		"its own":            {array, "/out/run-3/ckpt-*", false},
		"another number":     {array, "/out/llama-13b/ckpt-*", true},
		"no checkpoints":     {array, "", false},
		"a job of one":       {Surroundings{Environ: strings.Fields(slurmNode)}, "/out/ckpt-*", false},
		"no scheduler's job": {Surroundings{}, "/out/ckpt-*", false},
	} {
		s := inspectedAt(t, Job{Resume: recipes.Resume{Latest: test.latest}}, test.machine)
		if got := s.sharedCheckpoints(); (len(got) == 1) != test.warned {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// inspectedAt is a job in a place, and no more.
func inspectedAt(t *testing.T, j Job, m Surroundings) Inspected {
	t.Helper()
	place, err := cluster.Detect(m.Environ)
	testenv.Check(t, err)
	return Inspected{Job: j, Where: place, env: inherited(m.Environ).With(j.Env)}
}

// onGPU is a job with a ceiling on a GPU of 80 GiB, and an interpreter that says
// which PyTorch it has. The GPU stands in for one: what the ceiling does to a
// real one is measured on real ones.
func onGPU(t *testing.T, torch string, bytes int64) Resolved {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	packages := "{}"
	if torch != "" {
		packages = `{"torch": "` + torch + `"}`
	}
	put(t, path, "#!/bin/sh\necho '{\"version\": \"3.12.0\", \"packages\": "+packages+"}'\n")
	return Resolved{Inspected: Inspected{
		Job: Job{Kind: Script, DeviceMemory: bytes}, Interpreter: python.At(path, t.TempDir(), nil),
		GPUs: ranks.DeviceView{Count: 1, Devices: []ranks.Device{{Total: 80 << 30}}},
	}}
}

func TestACeilingOnAGPU(t *testing.T) {
	c, err := onGPU(t, "2.11.0+cu130", 20<<30).limit(t.Context())
	testenv.Check(t, err)
	for name, test := range map[string]struct{ user, knob, want string }{
		"nothing set":              {"", "", "per_process_memory_fraction:0.250000"},
		"the user's keys are kept": {"max_split_size_mb:128", "", "max_split_size_mb:128,per_process_memory_fraction:0.250000"},
		"beside the knob's":        {"", "expandable_segments:True", "expandable_segments:True,per_process_memory_fraction:0.250000"},
	} {
		env, set := map[string]string{}, map[string]string{}
		if test.user != "" {
			env["PYTORCH_CUDA_ALLOC_CONF"] = test.user
		}
		if test.knob != "" {
			set["PYTORCH_CUDA_ALLOC_CONF"] = test.knob
		}
		c.withAllocator(env, set)
		if got := set["PYTORCH_CUDA_ALLOC_CONF"]; got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestACeilingIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		torch string
		bytes int64
		want  string
	}{
		"an old PyTorch":    {"2.9.1+cu128", 20 << 30, "needs a newer PyTorch than 2.9.1"},
		"a very old one":    {"1.13.0a0", 20 << 30, "needs a newer PyTorch than 1.13.0a0"},
		"none":              {"", 20 << 30, "needs PyTorch, and "},
		"more than the GPU": {"2.11.0", 90 << 30, "is more than the GPU's 80.0 GiB"},
	} {
		_, err := onGPU(t, test.torch, test.bytes).limit(t.Context())
		if err == nil || errext.Hint(err) == "" || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A program has no interpreter that could be asked.
func TestACeilingOnAProgram(t *testing.T) {
	r := onGPU(t, "", 20<<30)
	r.Job.Kind, r.Interpreter = Program, nil
	if c, err := r.limit(t.Context()); err != nil || c.allocator == "" {
		t.Errorf("%+v, %v", c, err)
	}
}

// A ceiling below what PyTorch takes before there is a model is refused with the least that
// is of use here; without PyTorch it is 512 MiB.
func TestTheLeastCeilingOnTheCPU(t *testing.T) {
	for name, test := range map[string]struct {
		says  string
		bytes int64
		env   commandline.Environ
		local int
		hint  string
	}{
		"below what it takes":   {"echo hello; echo 624640", 600 << 20, nil, 1, "PyTorch alone takes 610 MiB of each rank's memory here: 640MiB is the least"},
		"above it":              {"echo 624640", 640 << 20, nil, 1, ""},
		"less than 512 MiB":     {"echo 300000", 400 << 20, nil, 1, ""},
		"no PyTorch":            {"exit 1", 600 << 20, nil, 1, ""},
		"no PyTorch, and less":  {"exit 1", 500 << 20, nil, 1, "at least 512MiB"},
		"as torchrun has ranks": {"[ \"$OMP_NUM_THREADS\" = 1 ] && echo 500000 || echo 700000", 600 << 20, nil, 2, ""},
		"the user's threads":    {"[ \"$OMP_NUM_THREADS\" = 1 ] && echo 500000 || echo 700000", 600 << 20, commandline.ParseEnviron([]string{"OMP_NUM_THREADS=8"}), 2, "704MiB is the least"},
		"far above it":          {"echo asked >&2; echo 99999999", 64 << 30, nil, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "python")
			put(t, path, "#!/bin/sh\n"+test.says+"\n")
			r := Resolved{Inspected: Inspected{Job: Job{Kind: Script}, env: test.env, Interpreter: python.At(path, t.TempDir(), test.env)}, processes: processes{Ranks: test.local}}
			err := r.roomForTorch(t.Context(), test.bytes)
			if test.hint == "" && err != nil || !strings.Contains(errext.Hint(err), test.hint) || (err == nil) != (test.hint == "") {
				t.Errorf("%v, hint %q", err, errext.Hint(err))
			}
		})
	}
}
