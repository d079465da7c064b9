package launcher

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// The advice names the user's limit if memory ran out at that limit, and only then. Where no activations are live,
// it does not propose a smaller batch.
func TestAdviceAboutMemory(t *testing.T) {
	const gib = int64(1) << 30
	wanted, capacity, free, none, gib4, half := 2*gib, 16*gib, gib/2, int64(0), 4*gib, 8*gib
	leak := "memory leaks: \"mem\" grew by 1.0 GiB a step"
	oldMessage := strategy.Diagnosis{Cause: cause.CUDAOOM, Phase: cause.Load, Because: []int{0}, Figures: cause.Figures{Capacity: &capacity, Free: &free, Allocated: &gib4}}
	saidTotal := func(total string) strategy.Evidence {
		return strategy.Evidence{Facts: []strategy.Fact{{Content: &strategy.Finding{Text: "CUDA out of memory. (GPU 0; 16.00 GiB total capacity; 4.00 GiB already allocated; 512.00 MiB free; " + total + " reserved in total by PyTorch)"}}}}
	}
	for name, c := range map[string]struct {
		d       strategy.Diagnosis
		ev      strategy.Evidence
		ceiling int64
		want    string
		not     string
	}{
		"a GPU's share":     {d: strategy.Diagnosis{Cause: cause.CUDAOOM}, ceiling: gib, want: "limits.device_memory holds each rank to 1.0 GiB: raise it"},
		"no ceiling":        {d: strategy.Diagnosis{Cause: cause.CUDAOOM}, want: "use less device memory", not: "limits"},
		"one large request": {d: strategy.Diagnosis{Cause: cause.CUDAOOM, Figures: cause.Figures{Requested: &wanted}}, ceiling: gib, want: "a single request of 2.0 GiB is more than limits.device_memory = 1.0 GiB"},
		"one rank of two": {
			d: strategy.Diagnosis{Cause: cause.CUDAOOM, Advice: "rank 1 of 2 alone ran out: look for imbalance"}, ceiling: gib,
			want: "rank 1 of 2 alone ran out: look for imbalance; limits.device_memory holds each of them to 1.0 GiB",
		},
		"a leak":             {d: strategy.Diagnosis{Cause: cause.CUDAOOM, Growth: &cause.Growth{}, Advice: leak}, ceiling: gib, want: leak, not: "limits"},
		"on the CPU":         {d: strategy.Diagnosis{Cause: cause.HostOOM}, ev: strategy.Evidence{Accelerator: "cpu"}, ceiling: gib, want: "limits.device_memory holds", not: "workers"},
		"the host of a GPU":  {d: strategy.Diagnosis{Cause: cause.HostOOM}, ev: strategy.Evidence{Accelerator: "cuda"}, ceiling: gib, want: "use fewer loader workers", not: "limits"},
		"killed by the host": {d: strategy.Diagnosis{Cause: cause.HostOOM}, ev: strategy.Evidence{Accelerator: "cpu", Facts: []strategy.Fact{{Content: &strategy.Kills{Count: 1}}}}, ceiling: gib, want: "use fewer loader workers", not: "limits"},
		"loading":            {d: strategy.Diagnosis{Cause: cause.CUDAOOM, Phase: cause.Load}, want: "the model does not fit: shard it", not: "micro batch"},
		"optimizer step":     {d: strategy.Diagnosis{Cause: cause.CUDAOOM, Phase: cause.Optimizer}, want: "shard or offload the optimizer's state", not: "micro batch"},
		"evaluation":         {d: strategy.Diagnosis{Cause: cause.CUDAOOM, Phase: cause.Eval}, want: "use a smaller evaluation batch", not: "micro batch"},
		"saving":             {d: strategy.Diagnosis{Cause: cause.CUDAOOM, Phase: cause.Save}, want: "save the checkpoint in shards", not: "micro batch"},
		"loading on a host":  {d: strategy.Diagnosis{Cause: cause.HostOOM, Phase: cause.Load}, want: "the model is loaded through host memory", not: "workers"},
		"a huge array":       {d: strategy.Diagnosis{Cause: cause.HostOOM, Device: "cpu", Figures: cause.Figures{Requested: &capacity}}, want: "a single request of 16.0 GiB of host memory failed: look for a wrong shape", not: "workers"},
		"forward on the CPU": {d: strategy.Diagnosis{Cause: cause.HostOOM, Device: "cpu", Phase: cause.Forward}, want: "the forward pass ran out of host memory: use a smaller micro batch or activation checkpointing", not: "workers"},
		"a small array":      {d: strategy.Diagnosis{Cause: cause.HostOOM, Device: "cpu", Figures: cause.Figures{Requested: &wanted}}, want: "use fewer loader workers"},
		"held by others":     {d: strategy.Diagnosis{Cause: cause.CUDAOOM, Phase: cause.Load, Figures: cause.Figures{Capacity: &capacity, Free: &free, Allocated: &none, ReservedUnallocated: &none}}, want: "15.5 GiB are held outside PyTorch", not: "shard"},
		"held by itself":     {d: strategy.Diagnosis{Cause: cause.CUDAOOM, Phase: cause.Load, Figures: cause.Figures{Capacity: &capacity, Free: &free, Allocated: &half, ReservedUnallocated: &none}}, want: "the model does not fit", not: "held"},
		"held by its cache":  {d: oldMessage, ev: saidTotal("14.00 GiB"), want: "the model does not fit", not: "held"},
		"held by others, in the words of PyTorch 1": {d: oldMessage, ev: saidTotal("5120.00 MiB"), want: "10.5 GiB are held outside PyTorch"},
		"an unknown cache":                          {d: oldMessage, want: "the model does not fit", not: "held"},
		"another cause":                             {d: strategy.Diagnosis{Cause: cause.Segfault}, ceiling: gib, want: "run with PYTHONFAULTHANDLER=1", not: "limits"},
	} {
		got := Advice(c.d, c.ev, c.ceiling)
		if !strings.HasPrefix(got, c.want) || c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
