package doctor

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/gpurun/gpurun/launcher/python"
)

// rankChecks: whether ranks reach each other, as they would in the job.
var rankChecks = []check{
	{name: "NCCL", lane: "gpus", torch: true, look: underWatch(nccl), bound: 20 * time.Second, late: ncclMore},
	{name: "gloo", lane: "torch", torch: true, look: gloo, bound: 20 * time.Second, late: glooFix},
}

const (
	ncclMore = "NCCL_DEBUG=INFO says more; NCCL_P2P_DISABLE=1 tries another way"
	glooFix  = "let the host's name resolve: /etc/hosts; or set GLOO_SOCKET_IFNAME=lo"
)

func nccl(ctx context.Context, p *patient) Result {
	if why := p.triable(2); why != "" {
		return skip("%s", why)
	}
	if facts, _ := p.torch(); !facts.NCCL {
		return problem("install the PyTorch for CUDA on Linux: https://pytorch.org/get-started", "torch %s is built without NCCL", facts.Torch)
	}
	devices := p.free()
	if p.prepared != nil && p.prepared.Ranks() > 1 {
		devices = devices[:min(p.prepared.Ranks(), len(devices))]
	}
	t, err := python.Meet(ctx, p.python, "nccl", devices)
	return overNCCL(t, len(devices), err)
}

// overNCCL judges what ranks on GPUs told, or why they did not.
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

func gloo(ctx context.Context, p *patient) Result {
	if facts, _ := p.torch(); p.cards().count() > 0 || facts.Devices > 0 {
		return skip("ranks on GPUs use NCCL")
	} else if !facts.Gloo {
		return warn("install another build of PyTorch, unless one rank is all that trains here", "torch %s is built without gloo", facts.Torch)
	}
	t, err := python.Meet(ctx, p.python, "gloo", []int{0, 1})
	switch {
	case errors.Is(err, python.ErrBusy):
		return skip("%v", err)
	case err != nil:
		return problem(glooFix, "2 ranks: %v", err)
	case !t.Sum:
		return problem("have the machine's memory tested", "2 ranks: the sum is wrong")
	}
	return found("2 ranks: all_reduce at %s", speed(t.Speed))
}
