package doctor

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/launcher/python"
)

// pythonChecks: the interpreter, and whether its PyTorch fits the GPUs and their driver.
var pythonChecks = []check{
	{name: "interpreter", look: interpreter, late: "run it by hand: its sitecustomize hangs, or the disk that it lies on"},
	{name: "torch", look: torchFits, bound: factsBound + 5*time.Second, late: "import torch by hand: the disk that it lies on hangs, or the driver"},
}

func interpreter(ctx context.Context, p *patient) Result {
	switch {
	case p.lost != nil:
		return problem(errext.Hint(p.lost), "%v", p.lost)
	case p.python == nil:
		return skip("%s", p.why)
	}
	version, err := p.python.Version(ctx)
	if err != nil {
		return problem("name one that runs: job.python, PYTHON_EXEC, or an active environment", "%v", err)
	}
	return found("Python %s, %s (%s)", version, p.python.Path(), p.why)
}

// factsBound is how long an interpreter may take to import PyTorch, which lies on
// network file systems at times.
const factsBound = 30 * time.Second

//go:embed facts.py
var factsScript string

// torchFacts are what facts.py tells.
type torchFacts struct {
	Torch         string   `json:"torch"` // its version; empty where it cannot be imported
	Missing       bool     `json:"missing"`
	Error         string   `json:"error"`
	CUDA          string   `json:"cuda"` // that it was built for; empty for none
	HIP           string   `json:"hip"`
	Architectures []string `json:"architectures"` // "sm_90", "compute_90"
	Devices       int      `json:"devices"`
	CUDAError     string   `json:"cuda_error"`
	NCCL          bool     `json:"nccl"`
	Gloo          bool     `json:"gloo"`
	DeepSpeed     string   `json:"deepspeed"`
	Compiler      bool     `json:"compiler"`
	NVCC          string   `json:"nvcc"`
	NVCCCUDA      string   `json:"nvcc_cuda"`
	Libaio        bool     `json:"libaio"`
}

// askTorch asks the interpreter once the cards were looked at: who uses them is to be
// others.
func (p *patient) askTorch(ctx context.Context) (torchFacts, error) {
	var facts torchFacts
	if p.python == nil {
		return facts, errors.New(p.why)
	}
	p.cards()
	ctx, cancel := context.WithTimeout(ctx, factsBound)
	defer cancel()
	err := python.Trial{Text: factsScript, Words: [][]string{nil}}.Run(ctx, p.python, &facts)
	return facts, err
}

// lacksTorch waits for the facts, and says why there is no PyTorch to try something
// with; empty where there is.
func (p *patient) lacksTorch(ctx context.Context) string {
	if p.python == nil {
		return p.why
	}
	known := make(chan string, 1)
	go func() {
		switch facts, err := p.torch(); {
		case err != nil:
			known <- "the interpreter does not say what it has"
		case facts.Torch == "":
			known <- "torch cannot be imported"
		default:
			known <- ""
		}
	}()
	select {
	case lack := <-known:
		return lack
	case <-ctx.Done():
		return "the interpreter has not said what it has"
	}
}

const installTorch = "install PyTorch into that environment: https://pytorch.org/get-started"

func torchFits(_ context.Context, p *patient) Result {
	if p.python == nil {
		return skip("%s", p.why)
	}
	facts, err := p.torch()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return problem("import torch by hand: the disk that it lies on hangs, or the driver", "not imported after %s", factsBound)
	case err != nil:
		return problem("run "+p.python.Path()+" by hand", "%v", err)
	case facts.Missing:
		return problem(installTorch, "there is none: %s", facts.Error)
	case facts.Torch == "":
		return problem("install it again; its libraries may be of another build or incomplete", "cannot be imported: %s", python.Shorten(facts.Error))
	}
	return facts.fits(p.cards())
}

// fits says whether a PyTorch can use the cards that there are.
func (f torchFacts) fits(c cards) Result {
	cuda := "CUDA " + f.CUDA
	switch {
	case f.HIP != "":
		return found("%s for ROCm %s, which sees %s", f.Torch, f.HIP, counted(f.Devices, "GPU"))
	case f.CUDA == "" && c.count() > 0:
		return problem("install a PyTorch with CUDA: https://pytorch.org/get-started", "%s is built for the CPU, and there %s", f.Torch, are(c.count()))
	case f.CUDA == "":
		return found("%s for the CPU", f.Torch)
	case c.count() == 0:
		return found("%s for %s", f.Torch, cuda)
	}
	if has := c.cuda; has > 0 && major(f.CUDA) > has {
		return problem(fmt.Sprintf("have the driver updated (%s), or install a torch for CUDA %d", leastDriver(major(f.CUDA)), has),
			"%s is built for %s, and driver %s knows CUDA %d at most", f.Torch, cuda, c.version, has)
	}
	for _, d := range c.devices() {
		if !f.has(d.Capability) {
			return problem("install a PyTorch that is built for it: https://pytorch.org/get-started",
				"%s has no code for GPU %d, %s of compute capability %d.%d (it has %s)", f.Torch, d.Index, d.Name, d.Capability[0], d.Capability[1], strings.Join(f.Architectures, " "))
		}
	}
	if f.CUDAError != "" {
		return problem("nvidia-smi says whether the driver works; docker: --gpus all", "%s for %s cannot use the GPUs: %s", f.Torch, cuda, python.Shorten(f.CUDAError))
	}
	if f.Devices != c.count() {
		return warn("compare CUDA_VISIBLE_DEVICES with nvidia-smi -L", "%s for %s sees %s, and there %s", f.Torch, cuda, counted(f.Devices, "GPU"), are(c.count()))
	}
	return found("%s for %s, which sees %s", f.Torch, cuda, counted(f.Devices, "GPU"))
}

// are says that there are GPUs.
func are(n int) string {
	if n == 1 {
		return "is 1 GPU"
	}
	return fmt.Sprintf("are %d GPUs", n)
}

// has reports whether there is code for a compute capability: a binary of the same
// major one that is not newer, or text that the driver translates ("compute_80")
// (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#application-compatibility).
// A capability or a list that is not known is no reason to complain.
func (f torchFacts) has(capability [2]int) bool {
	if capability[0] == 0 || len(f.Architectures) == 0 {
		return true
	}
	for _, name := range f.Architectures {
		kind, digits, _ := strings.Cut(name, "_")
		n, err := strconv.Atoi(strings.TrimRight(digits, "af"))
		if err != nil {
			return true // of a kind that is newer than this list
		}
		mine, theirs := [2]int{n / 10, n % 10}, capability
		if kind == "sm" && strings.TrimRight(digits, "af") != digits {
			if mine == theirs {
				return true
			}
			continue // for that one capability only
		}
		binary := kind == "sm" && mine[0] == theirs[0] && mine[1] <= theirs[1]
		text := kind == "compute" && (mine[0] < theirs[0] || mine[0] == theirs[0] && mine[1] <= theirs[1])
		if binary || text {
			return true
		}
	}
	return false
}

// major is the number before the first dot, 0 where there is none.
func major(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(first)
	return n
}

// leastDriver is the oldest driver for a CUDA, which says so in its release notes
// (https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/, "minor version compatibility").
func leastDriver(cuda int) string {
	switch cuda {
	case 11:
		return "450.80 or newer"
	case 12:
		return "525.60 or newer"
	case 13:
		return "580 or newer"
	}
	return "the CUDA release notes name the oldest"
}

// devices are those whose figures are known.
func (c cards) devices() []gpu.Device { return c.view.Devices }
