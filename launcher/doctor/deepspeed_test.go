package doctor

import (
	"testing"

	"github.com/gpurun/gpurun/launcher/environ"
)

func TestOperations(t *testing.T) {
	p := withTorch(t, nil)
	p.torch = func() (torchFacts, error) { return torchFacts{Torch: "2.9.0", DeepSpeed: "0.16.4"}, nil }
	wants(t, resultOf(t, p, "operations"), Warning, "DeepSpeed 0.16.4: cpu_adam (built), fused_adam; cannot be used: async_io (async_io requires libaio)", "env_report")
	p.env = p.env.With(environ.Vars{"FAKE_DEEPSPEED": "cannot import name 'log' from 'torch.distributed.elastic'"})
	p.python = pythonAt(p)
	wants(t, resultOf(t, p, "operations"), Problem, "cannot be imported: ImportError: cannot import name 'log'", "pip install --upgrade deepspeed")
	p.torch = func() (torchFacts, error) { return torchFacts{Torch: "2.9.0"}, nil }
	wants(t, resultOf(t, p, "operations"), Skipped, "no DeepSpeed", "")
	wants(t, resultOf(t, p, "compilers"), Skipped, "no DeepSpeed", "")

	wants(t, p.judgeOperations("0.18", []operation{{Name: "cpu_adam", Compatible: true}, {Name: "async_io", Built: true}}), OK, "cpu_adam, async_io (built)", "")
	lacking := []operation{{Name: "async_io", Why: "async_io requires libaio"}}
	wants(t, p.judgeOperations("0.18", lacking), Warning, "cannot be used: async_io (async_io requires libaio)", "env_report")
	p.nvme = p.dir
	wants(t, p.judgeOperations("0.18", lacking), Problem, "cannot be used: async_io", "env_report")
	wants(t, p.judgeOperations("0.18", []operation{{Name: "cpu_adam"}}), Warning, "DeepSpeed 0.18: cannot be used: cpu_adam", "env_report")
}

// Toolkits of several versions cannot be had on one machine.
func TestCompilers(t *testing.T) {
	p := withTorch(t, nil)
	for _, c := range []struct {
		facts      torchFacts
		state      CheckStatus
		found, fix string
	}{
		{torchFacts{}, Warning, "no C++ compiler", "g++"},
		{torchFacts{Compiler: true}, OK, "needs no nvcc", ""},
		{torchFacts{Compiler: true, CUDA: "12.8"}, Warning, "no nvcc", "toolkit 12.8"},
		{torchFacts{Compiler: true, CUDA: "12.8", NVCC: "/opt/cuda/bin/nvcc", NVCCCUDA: "11.5"}, Warning, "/opt/cuda/bin/nvcc is of CUDA 11.5, and torch is built for 12.8", "toolkit 12.8"},
		{torchFacts{Compiler: true, CUDA: "12.8", NVCC: "/opt/cuda/bin/nvcc", NVCCCUDA: "12.4"}, OK, "/opt/cuda/bin/nvcc of CUDA 12.4", ""},
	} {
		c.facts.DeepSpeed = "0.18"
		p.torch = func() (torchFacts, error) { return c.facts, nil }
		wants(t, resultOf(t, p, "compilers"), c.state, c.found, c.fix)
	}
}
