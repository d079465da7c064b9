package job

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/recipes"
)

// A Resolved job is one whose ranks and recipe are known. It does not change.
type Resolved struct {
	Inspected
	local    int // ranks on this node
	at       recipes.Topology
	recipe   recipes.Recipe
	evidence []string        // why this recipe
	command  recipes.Command // with the files that were read to recognise it
}

// Resolve finds out how many ranks a job has, and which recipe. Only a job of some
// framework waits for its interpreter to list the packages.
func Resolve(ctx context.Context, s Inspected) (Resolved, error) {
	r := Resolved{Inspected: s}
	local, warnings, err := s.ranks()
	if err != nil {
		return Resolved{}, err
	}
	r.local, r.warnings = local, slices.Concat(s.warnings, warnings, s.sharedCheckpoints(), s.noCeiling())
	r.at = recipes.Topology{Ranks: local, DataParallel: local, NVMePath: s.job.Recovery.NVMePath}
	if n := s.job.Launch.DataParallel; n > 0 {
		if local%n != 0 {
			return Resolved{}, errext.Errorf("it is the world size divided by tensor, pipeline and context parallel sizes",
				"launch.data_parallel = %d does not divide the %d ranks", n, local)
		}
		r.at.DataParallel = n
	}
	c, err := s.choose(ctx)
	if err != nil {
		return Resolved{}, err
	}
	r.recipe, r.evidence, r.command = c.recipe, c.evidence, c.command
	return r, nil
}

// ranks is the number of ranks on this node, by torchrun's rules.
func (s Inspected) ranks() (n int, warnings []string, err error) {
	count := s.job.Launch.NprocPerNode
	if n, ok := count.Number(); ok {
		if s.gpus.Count > 0 && n > s.gpus.Count && !s.job.Launch.Self {
			warnings = append(warnings, fmt.Sprintf("%d ranks share %d visible GPUs (%s)", n, s.gpus.Count, s.gpus.Source))
		}
		return n, warnings, nil
	}
	switch {
	case count == "gpu" && s.gpus.Count == 0:
		return 0, nil, errext.Errorf("set CUDA_VISIBLE_DEVICES, or ask for a number of processes", "nproc_per_node is \"gpu\", and no GPU is visible")
	case count != "cpu" && s.gpus.Count > 0:
		return s.gpus.Count, nil, nil
	}
	return cpus(), nil, nil
}

// cpus is the number of processors that this process may run on.
func cpus() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return runtime.NumCPU()
	}
	return set.Count()
}
