package launcher

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// Advice is what a person should do about the way an attempt ended, one sentence;
// empty where there is nothing to say. ceiling is what limits.device_memory held each
// rank to, in bytes, 0 for nothing: then that is the memory that was used up, not the
// machine's.
func Advice(d strategy.Diagnosis, ev strategy.Evidence, ceiling int64) string {
	advice := d.Advice
	if entry, known := cause.Lookup(d.Cause); advice == "" && known {
		advice = entry.Hint
	}
	switch onCPU := d.Cause == cause.HostOOM && ev.Accelerator == "cpu" && !hostKilled(ev); {
	case d.Growth != nil || d.Cause != cause.CUDAOOM && !onCPU:
		return advice
	case ceiling > 0 && d.Requested != nil && *d.Requested > ceiling:
		return fmt.Sprintf("a single request of %s is more than limits.device_memory = %s: raise it, or look for a wrong shape, a batch or a sequence that is far too long",
			strategy.GiB(*d.Requested), strategy.GiB(ceiling))
	case ceiling > 0 && d.Advice != "": // on which ranks it ran out
		return fmt.Sprintf("%s; limits.device_memory holds each of them to %s", d.Advice, strategy.GiB(ceiling))
	case ceiling > 0:
		smaller := "the model or its batch"
		if d.Phase == cause.Load || d.Phase == cause.Optimizer {
			smaller = "the model" // no activations are live: the batch is not what fills it
		}
		return fmt.Sprintf("limits.device_memory holds each rank to %s: raise it, or make %s smaller", strategy.GiB(ceiling), smaller)
	case onCPU && d.Advice == "":
		return "the job trains on the CPU: use a smaller micro batch or activation checkpointing, or ask for more host memory"
	}
	return advice
}

// hostKilled reports whether the kernel ended processes because host memory ran out.
func hostKilled(ev strategy.Evidence) bool {
	return slices.ContainsFunc(ev.Facts, func(f strategy.Fact) bool { return f.Kills != nil })
}
