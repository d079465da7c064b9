package job

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// A ceiling is how limits.device_memory is put on the ranks.
type ceiling struct {
	data int64             // RLIMIT_DATA in bytes, 0: none
	env  map[string]string // variables for the ranks
	// allocator is a setting of PyTorch's CUDA allocator, empty: none.
	allocator string
}

const (
	// fractionSince is the first PyTorch that reads per_process_memory_fraction
	// from its allocator's variable (pytorch pull request 161035).
	fractionMajor, fractionMinor = 2, 10
	fractionKey                  = "per_process_memory_fraction"
)

// limit works out the ceiling of limits.device_memory.
func (r Resolved) limit(ctx context.Context) (ceiling, error) {
	bytes := r.Job.DeviceMemory
	if bytes == 0 {
		return ceiling{}, nil
	}
	if r.Accelerator() == "cpu" {
		return limitData(bytes), r.roomForTorch(ctx, bytes)
	}
	if r.GPUs.Name != "" {
		return ceiling{}, nil // resolve has warned
	}
	return r.limitFraction(ctx, bytes)
}

// noCeiling warns of a ceiling that cannot be put on an accelerator that gpurun does
// not know.
func (s Inspected) noCeiling() []string {
	if s.GPUs.Name == "" || s.GPUs.Count == 0 || s.Job.DeviceMemory == 0 {
		return nil
	}
	return []string{fmt.Sprintf("limits.device_memory has no effect: gpurun does not know how to put a ceiling on an %s", s.GPUs.Name)}
}

// limitData holds a job on the CPU to its ceiling. glibc keeps freed memory to
// itself in arenas and below its mmap threshold, which would hide what a smaller
// plan saves, so that it is set to return everything large at once.
func limitData(bytes int64) ceiling {
	return ceiling{data: bytes, env: map[string]string{"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "1"}}
}

func (r Resolved) limitFraction(ctx context.Context, bytes int64) (ceiling, error) {
	total := int64(0)
	for _, d := range r.GPUs.Devices {
		if total == 0 || d.Total < total {
			total = d.Total
		}
	}
	if total == 0 {
		return ceiling{}, errext.Errorf("gpurun version says whether NVML is built in; the driver's libnvidia-ml.so.1 must be there",
			"limits.device_memory needs the GPUs' capacity, which NVML does not report")
	}
	if bytes > total {
		return ceiling{}, errext.Errorf("leave limits.device_memory out to use all of it",
			"limits.device_memory = %s is more than the GPU's %s", strategy.GiB(bytes), strategy.GiB(total))
	}
	if err := r.torchKnowsFraction(ctx); err != nil {
		return ceiling{}, err
	}
	return ceiling{allocator: fmt.Sprintf("%s:%.6f", fractionKey, float64(bytes)/float64(total))}, nil
}

// torchKnowsFraction makes sure that the job's PyTorch can be held to a share of a GPU.
func (r Resolved) torchKnowsFraction(ctx context.Context) error {
	if r.Interpreter == nil {
		return nil // no interpreter to ask
	}
	packages, err := r.Interpreter.Packages(ctx)
	if err != nil {
		return errext.WithHint(fmt.Errorf("find out whether limits.device_memory can be kept: %w", err), "name another interpreter with job.python")
	}
	version := packages["torch"]
	if version == "" {
		return errext.Errorf("install torch there, or name another interpreter with job.python",
			"limits.device_memory needs PyTorch, and %s has none", r.Interpreter.Path())
	}
	if major, minor := majorMinor(version); major > fractionMajor || major == fractionMajor && minor >= fractionMinor {
		return nil
	}
	return errext.Errorf(fmt.Sprintf("PyTorch %d.%d is the first that can be held to a share of a GPU", fractionMajor, fractionMinor),
		"limits.device_memory on a GPU needs a newer PyTorch than %s (%s)", version, r.Interpreter.Path())
}

func majorMinor(version string) (major, minor int) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return 0, 0
	}
	major, _ = strconv.Atoi(parts[0])
	minor, _ = strconv.Atoi(parts[1])
	return major, minor
}

// withAllocator adds the ceiling to the allocator's variable, key by key: a key
// that the user set is never replaced.
func (c ceiling) withAllocator(env, set map[string]string) {
	if c.allocator == "" {
		return
	}
	name := "PYTORCH_CUDA_ALLOC_CONF"
	if _, own := env["PYTORCH_ALLOC_CONF"]; own {
		name = "PYTORCH_ALLOC_CONF"
	}
	value, changed := set[name]
	if !changed {
		value = env[name]
	}
	if strings.Contains(value, fractionKey+":") {
		return
	}
	if value = strings.TrimRight(value, ", "); value != "" {
		value += ","
	}
	set[name] = value + c.allocator
}

// DataLimit is the RLIMIT_DATA of each rank in bytes, 0 for none: how a job that trains
// on the CPU is held to limits.device_memory.
func (p *Prepared) DataLimit() int64 { return p.ceiling.data }

const (
	// leastData is the least RLIMIT_DATA where nothing is measured.
	leastData = 512 << 20
	// enoughData and enoughPerThread are what PyTorch alone never fills; it is not measured
	// for a ceiling above, which takes a second or two.
	enoughData, enoughPerThread = 896 << 20, 16 << 20
	// dataStep is what the least is rounded up to.
	dataStep = 64 << 20
)

// bare is what a process that trains does before it has a model: what it prints is its data
// then, in KiB. Some versions of OpenBLAS ask for their working memory for ever where there
// is none, and threads cannot be started.
const bare = `
import torch
torch.ones(256, 256) @ torch.ones(256, 256)
torch.ones(32768 * torch.get_num_threads()).exp()
print("\n" + [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmData")][0])
`

// roomForTorch refuses a ceiling under which PyTorch itself has no room.
func (r Resolved) roomForTorch(ctx context.Context, bytes int64) error {
	if bytes >= enoughData+int64(runtime.NumCPU())*enoughPerThread {
		return nil
	}
	least, hint := int64(leastData), "a job that trains on the CPU needs at least 512MiB: below that OpenBLAS never returns instead of failing"
	if taken := r.bareData(ctx); taken > 0 {
		least = (taken/dataStep + 1) * dataStep
		hint = fmt.Sprintf("PyTorch alone takes %s of each rank's memory here: %dMiB is the least, and the model and its batch come on top of that", strategy.GiB(taken), least>>20)
	}
	if bytes < least {
		return errext.Errorf(hint, "limits.device_memory = %s is too small", strategy.GiB(bytes))
	}
	return ctx.Err()
}

// bareData is the data of a rank that has no model yet, in bytes, 0 where it is not known.
func (r Resolved) bareData(ctx context.Context) int64 {
	if r.Interpreter == nil {
		return 0
	}
	said, err := r.Interpreter.OutputInJob(ctx, bare, r.threads())
	words := strings.Fields(said)
	if err != nil || len(words) == 0 {
		return 0 // without PyTorch, for example, which the ranks will say
	}
	kib, _ := strconv.ParseInt(words[len(words)-1], 10, 32)
	return kib << 10
}

// threads are the variables that say how many threads a rank starts.
func (r Resolved) threads() map[string]string {
	if _, set := r.env.Lookup("OMP_NUM_THREADS"); set || r.Plain || r.Ranks <= 1 {
		return nil
	}
	return map[string]string{"OMP_NUM_THREADS": "1"} // package node sets it as torchrun does
}
