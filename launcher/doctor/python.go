package doctor

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/python"
)

func hasPython(p *patient) string {
	if p.python == nil {
		return p.why
	}
	return ""
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

// factsBound is how long an interpreter may take to import PyTorch, which may be on a network
// file system.
const factsBound = 30 * time.Second

//go:embed facts.py
var factsScript string

// torchFacts are the output of facts.py.
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
	Libaio        bool     `json:"libaio"`
}

// readTorch runs facts.py. It waits until the cards are read, so that this process is not among their users.
func (p *patient) readTorch(ctx context.Context) (torchFacts, error) {
	if p.python == nil {
		return torchFacts{}, errors.New(p.why)
	}
	p.cards()
	ctx, cancel := context.WithTimeout(ctx, factsBound)
	defer cancel()
	return python.RunOne[torchFacts](ctx, p.python, factsScript)
}

// lacksTorch waits for facts.py, and returns why PyTorch is not available; empty if it is.
func (p *patient) lacksTorch(ctx context.Context) string {
	if p.python == nil {
		return p.why
	}
	known := make(chan string, 1)
	go func() {
		switch facts, err := p.torch(); {
		case err != nil:
			known <- "the interpreter does not list its packages"
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
		return "the interpreter has not listed its packages"
	}
}

const installTorch = "https://pytorch.org/get-started"

func torchFits(_ context.Context, p *patient) Result {
	facts, err := p.torch()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return problem(importHangs, "not imported after %s", factsBound)
	case err != nil:
		return problem("run "+p.python.Path()+" by hand", "%v", err)
	case facts.Missing:
		return problem("install PyTorch into that environment: "+installTorch, "there is none: %s", facts.Error)
	case facts.Torch == "":
		return problem("install it again; its libraries may be of another build or incomplete", "cannot be imported: %s",
			python.Shorten(facts.Error))
	}
	return facts.fits(p.cards())
}

// fits judges whether a PyTorch can use the GPUs of the machine.
func (f torchFacts) fits(c cards) Result {
	built, sees := fmt.Sprintf("%s for CUDA %s", f.Torch, f.CUDA), "which sees "+counted(f.Devices, "GPU")
	switch {
	case f.HIP != "":
		return found("%s for ROCm %s, %s", f.Torch, f.HIP, sees)
	case f.CUDA == "" && c.count() > 0:
		return problem("install a PyTorch with CUDA: "+installTorch, "%s is built for the CPU, and there %s", f.Torch,
			are(c.count()))
	case f.CUDA == "":
		return found("%s for the CPU", f.Torch)
	case c.count() == 0:
		return found("%s", built)
	case c.cuda > 0 && major(f.CUDA) > c.cuda:
		return problem(fmt.Sprintf("have the driver updated (%s), or install a PyTorch for CUDA %d",
			leastDriver(major(f.CUDA)), c.cuda),
			"%s is built for CUDA %s, and driver %s knows CUDA %d at most", f.Torch, f.CUDA, c.version, c.cuda)
	}
	for _, d := range c.view.Devices {
		if !f.has(d.Capability) {
			return problem("install a PyTorch that is built for it: "+installTorch,
				"%s has no code for GPU %d, %s of compute capability %d.%d (it has %s)", f.Torch, d.Index, d.Name, d.Capability[0],
				d.Capability[1], strings.Join(f.Architectures, " "))
		}
	}
	switch {
	case f.CUDAError != "":
		return problem("nvidia-smi shows whether the driver works; docker: --gpus all", "%s cannot use the GPUs: %s", built,
			python.Shorten(f.CUDAError))
	case f.Devices != c.count():
		return warn("compare CUDA_VISIBLE_DEVICES with nvidia-smi -L", "%s sees %s, and there %s", built,
			counted(f.Devices, "GPU"), are(c.count()))
	}
	return found("%s, %s", built, sees)
}

func are(n int) string {
	if n == 1 {
		return "is 1 GPU"
	}
	return fmt.Sprintf("are %d GPUs", n)
}

// has reports whether there is code for a compute capability: a binary for the same major and no newer minor
// version, or PTX, which the driver compiles ("compute_80")
// (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#application-compatibility). It reports true if the
// capability or the list is not known.
func (f torchFacts) has(capability [2]int) bool {
	if capability[0] == 0 || len(f.Architectures) == 0 {
		return true
	}
	for _, name := range f.Architectures {
		kind, suffixed, _ := strings.Cut(name, "_")
		digits := strings.TrimRight(suffixed, "af")
		n, err := strconv.Atoi(digits)
		if err != nil {
			return true // of a kind that is newer than this list
		}
		built := [2]int{n / 10, n % 10}
		older := slices.Compare(built[:], capability[:]) <= 0
		switch {
		case kind == "sm" && digits != suffixed: // only for that capability
			older = built == capability
		case kind == "sm":
			older = older && built[0] == capability[0]
		case kind != "compute":
			older = false
		}
		if older {
			return true
		}
	}
	return false
}

// major returns the number before the first dot, 0 for none.
func major(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(first)
	return n
}

// leastDriver is the oldest driver for a CUDA by its release notes
// (https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/, "minor version compatibility").
func leastDriver(cuda int) string {
	if version := map[int]string{11: "450.80", 12: "525.60", 13: "580"}[cuda]; version != "" {
		return version + " or newer"
	}
	return "the CUDA release notes name the oldest"
}

const ncclMore = "NCCL_DEBUG=INFO shows more; NCCL_P2P_DISABLE=1 tries another way"

// nccl checks that ranks on GPUs reach each other.
func nccl(ctx context.Context, p *patient) Result {
	if facts, _ := p.torch(); !facts.NCCL {
		return problem("install the PyTorch for CUDA on Linux: "+installTorch, "torch %s is built without NCCL", facts.Torch)
	}
	devices := p.free()
	if p.prepared != nil && p.prepared.Ranks > 1 {
		devices = devices[:min(p.prepared.Ranks, len(devices))]
	}
	t, err := python.Meet(ctx, p.python, devices)
	return overNCCL(t, len(devices), err)
}

// overNCCL judges the measurements of ranks on GPUs, or their failure.
func overNCCL(t python.Together, ranks int, err error) Result {
	switch {
	case errors.Is(err, python.ErrBusy):
		return skip("%v", err)
	case err != nil:
		return problem(cmp.Or(python.NCCLFix(python.WordsOf(err)), ncclMore), "%d ranks: %v", ranks, err)
	case !t.Sum:
		return problem("switch off PCI ACS and the IOMMU, or set NCCL_P2P_DISABLE=1", "%d ranks: the sum is wrong", ranks)
	}
	return found("%d ranks: all_reduce at %s (bus)", ranks, speed(t.Speed))
}
