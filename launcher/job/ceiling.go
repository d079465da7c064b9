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

// A ceiling is how gpurun applies limits.device_memory to the ranks.
type ceiling struct {
	data int64             // RLIMIT_DATA in bytes, 0: none
	env  map[string]string // variables for the ranks
	// allocator is a setting of PyTorch's CUDA allocator, empty for none.
	allocator string
}

const (
	// The first version of PyTorch that reads per_process_memory_fraction from its allocator's variable
	// (PyTorch pull request 161035).
	fractionMajor, fractionMinor = 2, 10
	fractionKey                  = "per_process_memory_fraction"
)

// limit computes the ceiling for limits.device_memory.
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

// noCeiling warns that gpurun cannot apply a ceiling on an unknown accelerator.
func (s Inspected) noCeiling() []string {
	if s.GPUs.Name == "" || s.GPUs.Count == 0 || s.Job.DeviceMemory == 0 {
		return nil
	}
	return []string{fmt.Sprintf("limits.device_memory has no effect: gpurun does not know how to put a ceiling on an %s",
		s.GPUs.Name)}
}

// limitData applies the ceiling to a job on the CPU. glibc keeps freed memory in arenas and below its mmap
// threshold, which would hide the savings of a smaller plan. So glibc is set to return all large blocks at
// once.
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
		return ceiling{}, errext.Errorf(
			"gpurun version shows whether NVML is built in; the driver's libnvidia-ml.so.1 must be there",
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

// torchKnowsFraction makes sure that the job's PyTorch can be limited to a share of a GPU.
func (r Resolved) torchKnowsFraction(ctx context.Context) error {
	if r.Interpreter == nil {
		return nil // no interpreter to query
	}
	packages, err := r.Interpreter.Packages(ctx)
	if err != nil {
		return errext.WithHint(fmt.Errorf("find out whether limits.device_memory can be kept: %w", err),
			"name another interpreter with job.python")
	}
	version := packages["torch"]
	if version == "" {
		return errext.Errorf("install torch there, or name another interpreter with job.python",
			"limits.device_memory needs PyTorch, and %s has none", r.Interpreter.Path())
	}
	if major, minor := majorMinor(version); major > fractionMajor || major == fractionMajor && minor >= fractionMinor {
		return nil
	}
	return errext.Errorf(fmt.Sprintf("PyTorch %d.%d is the first that can be held to a share of a GPU", fractionMajor,
		fractionMinor),
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

// withAllocator adds the ceiling to the allocator's variable, key by key. It never replaces a key that the
// user set.
func (c ceiling) withAllocator(env, set map[string]string) {
	if c.allocator == "" {
		return
	}
	name, since := strategy.AllocatorVariables[0], strategy.AllocatorVariables[1]
	if _, own := env[since]; own {
		name = since
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

// DataLimit is RLIMIT_DATA of each rank in bytes, 0 for none. It applies limits.device_memory to a job on the
// CPU.
func (p *Prepared) DataLimit() int64 { return p.ceiling.data }

const (
	// leastData is the least RLIMIT_DATA if PyTorch's needs are not measured.
	leastData = 512 << 20
	// PyTorch alone never needs more than enoughData and enoughPerThread. For a higher ceiling its needs are
	// not measured, since that takes a second or two.
	enoughData, enoughPerThread = 896 << 20, 16 << 20
	// dataStep is the unit to which the least is rounded up.
	dataStep = 64 << 20
)

// bare does what a training process does before it has a model, and prints its data in KiB. If memory is
// missing, some versions of OpenBLAS request their working memory forever, and threads cannot start.
const bare = `
import torch
torch.ones(256, 256) @ torch.ones(256, 256)
torch.ones(32768 * torch.get_num_threads()).exp()
print("\n" + [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmData")][0])
`

// roomForTorch refuses a ceiling that is too low for PyTorch itself.
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

// bareData returns the data in bytes of a rank that has no model yet, 0 if not known.
func (r Resolved) bareData(ctx context.Context) int64 {
	if r.Interpreter == nil {
		return 0
	}
	said, err := r.Interpreter.OutputInJob(ctx, bare, r.threads())
	words := strings.Fields(said)
	if err != nil || len(words) == 0 {
		return 0 // PyTorch is missing, for example: the ranks will report it
	}
	kib, _ := strconv.ParseInt(words[len(words)-1], 10, 32)
	return kib << 10
}

// threads returns the variables for the number of threads of a rank.
func (r Resolved) threads() map[string]string {
	if _, set := r.env.Lookup("OMP_NUM_THREADS"); set || r.Plain || r.Ranks <= 1 {
		return nil
	}
	return map[string]string{"OMP_NUM_THREADS": "1"} // package node sets this, as torchrun does
}
