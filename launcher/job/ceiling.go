package job

import (
	"context"
	"fmt"
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
	bytes := r.job.Limits.DeviceMemory
	if bytes == 0 {
		return ceiling{}, nil
	}
	if r.accelerator() == "cpu" {
		return limitData(bytes), r.roomForTorch(ctx, bytes)
	}
	if r.gpus.Name != "" {
		return ceiling{}, nil // resolve has warned
	}
	return r.limitFraction(ctx, bytes)
}

// noCeiling warns of a ceiling that cannot be put on an accelerator that gpurun does
// not know.
func (s Inspected) noCeiling() []string {
	if s.gpus.Name == "" || s.gpus.Count == 0 || s.job.Limits.DeviceMemory == 0 {
		return nil
	}
	return []string{fmt.Sprintf("limits.device_memory has no effect: gpurun does not know how to put a ceiling on an %s", s.gpus.Name)}
}

// limitData holds a job on the CPU to its ceiling. glibc keeps freed memory to
// itself in arenas and below its mmap threshold, which would hide what a smaller
// plan saves, so that it is told to give everything large back at once.
func limitData(bytes int64) ceiling {
	return ceiling{data: bytes, env: map[string]string{"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "1"}}
}

func (r Resolved) limitFraction(ctx context.Context, bytes int64) (ceiling, error) {
	total := int64(0)
	for _, d := range r.gpus.Devices {
		if total == 0 || d.Total < total {
			total = d.Total
		}
	}
	if total == 0 {
		return ceiling{}, errext.Errorf("gpurun version says whether NVML is built in; the driver's libnvidia-ml.so.1 must be there",
			"limits.device_memory needs the GPUs' capacity, and NVML does not tell it")
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
	if r.python == nil {
		return nil // no interpreter to ask
	}
	packages, err := r.python.Packages(ctx)
	if err != nil {
		return errext.WithHint(fmt.Errorf("find out whether limits.device_memory can be kept: %w", err), "name another interpreter with job.python")
	}
	version := packages["torch"]
	if version == "" {
		return errext.Errorf("install torch there, or name another interpreter with job.python",
			"limits.device_memory needs PyTorch, and %s has none", r.python.Path())
	}
	if major, minor := majorMinor(version); major > fractionMajor || major == fractionMajor && minor >= fractionMinor {
		return nil
	}
	return errext.Errorf(fmt.Sprintf("PyTorch %d.%d is the first that can be held to a share of a GPU", fractionMajor, fractionMinor),
		"limits.device_memory on a GPU needs a newer PyTorch than %s (%s)", version, r.python.Path())
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
