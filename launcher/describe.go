package launcher

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// Describe describes a fact in one line.
func Describe(f strategy.Fact) string {
	who := "the node"
	if f.Rank >= 0 {
		who = fmt.Sprintf("rank %d", f.Rank)
	}
	switch content := f.Content.(type) {
	case *strategy.Finding:
		return fmt.Sprintf("%s, %s, line %d: %s", who, f.Reporter(), content.Line, content.Text)
	case *strategy.Exit:
		if content.Signal != 0 {
			return fmt.Sprintf("%s was ended by signal %d", who, content.Signal)
		}
		return fmt.Sprintf("%s ended with exit code %d", who, content.Code)
	case *strategy.Kills:
		return fmt.Sprintf("%s: the OOM killer ended %d processes of cgroup %s", who, content.Count, content.Group)
	case *strategy.DriverEvent:
		return fmt.Sprintf("%s, GPU driver at %s: %s", who, f.Time.Format(time.TimeOnly),
			strings.TrimPrefix(content.Device+": ", ": ")+f.DriverEvent().Text())
	case *strategy.Tenant:
		return fmt.Sprintf("%s: others hold %s on %s", who, strategy.GiB(content.Bytes), content.Device)
	case *strategy.Stuck:
		return fmt.Sprintf("%s: process %d cannot be ended (%s)", who, content.PID, content.Channel)
	case *strategy.Stall:
		return fmt.Sprintf("no rank made a step for %s", content.For.Duration().Round(time.Second))
	case *strategy.Stack:
		return fmt.Sprintf("%s, process %d: %s", who, content.PID, content.Calls(4))
	}
	return fmt.Sprintf("%s: %s", who, strategy.As[strategy.Gap](f))
}

// Advice is one sentence about what the user should do after an attempt; may be empty. ceiling is
// limits.device_memory in bytes, 0 for none: with a ceiling, memory ran out at that limit, not at the
// machine's.
func Advice(d strategy.Diagnosis, ev strategy.Evidence, ceiling int64) string {
	advice := d.Advice
	if entry, known := cause.Lookup(d.Cause); known && (advice == "" || advice == entry.Hint) {
		advice = entry.Hint
		if closer := closeAdvice(d, ev); closer != "" {
			advice = closer
		}
	}
	switch onCPU := d.Cause == cause.HostOOM && ev.Accelerator == "cpu" && !hostKilled(ev); {
	case d.Growth != nil || d.Cause != cause.CUDAOOM && !onCPU:
		return advice
	case ceiling > 0 && d.Requested != nil && *d.Requested > ceiling:
		return fmt.Sprintf("a single request of %s is more than limits.device_memory = %s: raise it, or look for a wrong shape, a batch or a sequence that is far too long",
			strategy.GiB(*d.Requested), strategy.GiB(ceiling))
	case ceiling > 0 && d.Advice != "": // the ranks that ran out of memory
		return fmt.Sprintf("%s; limits.device_memory holds each of them to %s", d.Advice, strategy.GiB(ceiling))
	case ceiling > 0:
		smaller := "the model or its batch"
		if d.Phase == cause.Load || d.Phase == cause.Optimizer {
			smaller = "the model" // no activations are live, so that a smaller batch would not help
		}
		return fmt.Sprintf("limits.device_memory holds each rank to %s: raise it, or make %s smaller", strategy.GiB(ceiling),
			smaller)
	case onCPU && d.Advice == "":
		return "the job trains on the CPU: use a smaller micro batch or activation checkpointing, or ask for more host memory"
	}
	return advice
}

// closeAdvice is advice that fits the evidence better than the catalogue's: about memory that others hold, or that ran
// out where no activations are live, so that a smaller batch does not help. It is empty elsewhere.
func closeAdvice(d strategy.Diagnosis, ev strategy.Evidence) string {
	const large = 8 << 30 // bytes of one tensor or array
	switch {
	case d.Cause == cause.HostOOM && d.Device == "cpu" && d.Requested != nil && *d.Requested >= large:
		return fmt.Sprintf("a single request of %s of host memory failed: look for a wrong shape, data type or size, or work on the data in pieces", strategy.GiB(*d.Requested))
	case d.Cause == cause.HostOOM && d.Phase == cause.Load && ev.Accelerator != "cpu":
		return "the model is loaded through host memory: load it in its own dtype and without a second copy (low_cpu_mem_usage, mmap), on fewer ranks at a time, or ask for more host memory"
	case d.Cause == cause.HostOOM && d.Device == "cpu" && ev.Accelerator == "" &&
		(d.Phase == cause.Forward || d.Phase == cause.Backward):
		return "the " + string(d.Phase) +
			" pass ran out of host memory: use a smaller micro batch or activation checkpointing, or ask for more host memory"
	case d.Cause != cause.CUDAOOM:
		return ""
	}
	if held := d.OutsidePyTorch(ev); d.Capacity != nil && held >= *d.Capacity/2 {
		return fmt.Sprintf("%s are held outside PyTorch in this process or by others: stop what holds them (nvidia-smi or rocm-smi lists it), or choose another device", strategy.GiB(held))
	}
	switch d.Phase {
	case cause.Load:
		return "the model does not fit: shard it (ZeRO-3, FSDP), offload it, or load it in a smaller dtype; a smaller batch does not help"
	case cause.Optimizer:
		return "shard or offload the optimizer's state (ZeRO, FSDP), or use one with less state (8-bit, Adafactor); a smaller batch hardly helps"
	case cause.Eval:
		return "use a smaller evaluation batch, evaluate under torch.no_grad(), and move the results to the host as they come"
	case cause.Rollout:
		return "memory ran out in generation: give the engine a smaller share of the device (gpu_memory_utilization, mem_fraction_static), let it sleep while the model trains, or generate for fewer samples at once (the rollout's micro batch, max_num_seqs)"
	case cause.Save:
		return "save the checkpoint in shards, or gather it in host memory; the one that was being written may be incomplete, so resume from the one before"
	}
	return ""
}

// hostKilled reports whether the kernel ended processes because host memory ran out.
func hostKilled(ev strategy.Evidence) bool {
	return slices.ContainsFunc(ev.Facts, func(f strategy.Fact) bool { return strategy.As[*strategy.Kills](f) != nil })
}

// tracebackLines is how many of a traceback's last lines are kept: the frame that raised the exception is at
// the end.
const tracebackLines = 50

// Traceback returns the failing rank's traceback, oldest line first, exception last, without gpurun's own
// frames. It prefers the traceback that the diagnosis uses, then that in the rank's report of its end
// (error.json, or the hook's report), then the last one in its output. It is nil if no failing rank or no
// traceback is known.
func Traceback(e strategy.Evidence, d strategy.Diagnosis) []string {
	if !d.Fatal || d.Rank < 0 {
		return nil
	}
	var best *cause.Finding
	for _, f := range slices.Backward(d.Facts(&e)) { // backward: the strongest fact comes first and must be kept last
		best = tracedBy(f, d.Rank, best)
	}
	if best != nil {
		return linesOf(best)
	}
	for _, f := range e.Facts {
		best = tracedBy(f, d.Rank, best)
	}
	for _, f := range e.Facts {
		if f.Source == "error.json" || f.Source == "probe" {
			best = tracedBy(f, d.Rank, best)
		}
	}
	return linesOf(best)
}

// tracedBy returns a fact's finding if it has a traceback of the rank, else known.
func tracedBy(f strategy.Fact, rank int, known *cause.Finding) *cause.Finding {
	if f.Finding() == nil || f.Rank != rank || len(f.Finding().Traceback) == 0 {
		return known
	}
	return f.Finding()
}

// linesOf returns a traceback with its exception, which may be a separate field.
func linesOf(s *cause.Finding) []string {
	if s == nil {
		return nil
	}
	lines := slices.Clone(s.Traceback)
	if !sameLine(lines[len(lines)-1], s.Text) {
		lines = append(lines, s.Text)
	}
	return cause.Shown(lines, tracebackLines)
}

// sameLine reports whether two lines are the same; either may be shortened.
func sameLine(a, b string) bool {
	a, b = strings.TrimSuffix(strings.TrimSpace(a), "…"), strings.TrimSuffix(strings.TrimSpace(b), "…")
	return a != "" && b != "" && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
}
