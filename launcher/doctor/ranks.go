package doctor

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/environ"
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

//go:embed together.py
var togetherScript string

// together is what together.py tells of one rank.
type together struct {
	Sum   bool    `json:"sum"`   // the sum over all ranks was right
	Speed float64 `json:"speed"` // bytes a second over the slowest link, as NCCL's tests count them
}

// meet lets ranks of a backend sum up what each has; devices are their GPUs, or numbers
// without a meaning.
func (p *patient) meet(ctx context.Context, backend string, devices []int) (together, error) {
	port, err := freePort()
	if err != nil {
		return together{}, err
	}
	s := script{text: togetherScript, env: environ.Vars{"NCCL_DEBUG": "WARN"}}
	all := make([]together, len(devices))
	answers := make([]any, len(devices))
	for rank, device := range devices {
		s.words, answers[rank] = append(s.words, []string{backend, fmt.Sprint(rank), fmt.Sprint(len(devices)), fmt.Sprint(port), fmt.Sprint(device)}), &all[rank]
	}
	if err := p.script(ctx, s, answers...); err != nil {
		return together{}, err
	}
	for _, one := range all {
		if !one.Sum {
			return one, nil
		}
	}
	return all[0], nil
}

// freePort finds a port for the ranks' rendezvous.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

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
	t, err := p.meet(ctx, "nccl", devices)
	return t.overNCCL(len(devices), err)
}

// overNCCL judges what ranks on GPUs told, or why they did not.
func (t together) overNCCL(ranks int, err error) Result {
	switch {
	case errors.Is(err, errBusy):
		return skip("%v", err)
	case err != nil:
		return problem(ncclFix(wordsOf(err)), "%d ranks: %v", ranks, err)
	case !t.Sum:
		return problem("switch off PCI ACS and the IOMMU, or set NCCL_P2P_DISABLE=1", "%d ranks: the sum is wrong", ranks)
	}
	return found("%d ranks: all_reduce at %s (bus)", ranks, speed(t.Speed))
}

// ncclFix is what NCCL's own words ask for.
func ncclFix(words string) string {
	switch {
	case strings.Contains(words, "/dev/shm"), strings.Contains(words, "No space left on device"):
		return moreShared
	case strings.Contains(words, "memlock"), strings.Contains(words, "ibv_reg_mr"):
		return "ulimit -l unlimited, or docker run --ulimit memlock=-1"
	case strings.Contains(words, "no kernel image"), strings.Contains(words, "driver version is insufficient"):
		return "update the driver, or install a PyTorch for the one that is there"
	}
	return ncclMore
}

func gloo(ctx context.Context, p *patient) Result {
	if facts, _ := p.torch(); p.cards().count() > 0 || facts.Devices > 0 {
		return skip("ranks on GPUs use NCCL")
	} else if !facts.Gloo {
		return warn("install another build of PyTorch, unless one rank is all that trains here", "torch %s is built without gloo", facts.Torch)
	}
	t, err := p.meet(ctx, "gloo", []int{0, 1})
	switch {
	case errors.Is(err, errBusy):
		return skip("%v", err)
	case err != nil:
		return problem(glooFix, "2 ranks: %v", err)
	case !t.Sum:
		return problem("have the machine's memory tested", "2 ranks: the sum is wrong")
	}
	return found("2 ranks: all_reduce at %s", speed(t.Speed))
}
