package job

import (
	"context"
	"slices"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/script"
	"github.com/gpurun/gpurun/strategy"
)

// A Resolved job is one whose ranks and recipe are known. It does not change.
type Resolved struct {
	Inspected
	processes
	at       recipes.Topology
	recipe   recipes.Recipe
	evidence []string         // why this recipe
	script   *script.Analysis // what the source of a script of one's own says; nil for another
	written  recipes.Recipe   // of which the user wrote every part in train.toml
	command  recipes.Command  // with the files that were read to recognise it
	loss     strategy.Loss    // as recipe and source show it
}

// Resolve finds out how many ranks a job has, and which recipe. Only a job of some
// framework waits for its interpreter to list the packages.
func Resolve(ctx context.Context, s Inspected) (Resolved, error) {
	r := Resolved{Inspected: s}
	c, err := s.choose(ctx)
	if err != nil {
		return Resolved{}, err
	}
	r.recipe, r.evidence, r.command, r.script, r.written, r.loss = c.recipe, c.evidence, c.command, c.script, c.written, c.loss
	if r.processes, err = s.count(c); err != nil {
		return Resolved{}, err
	}
	if r.plain {
		r.command.Devices = s.gpus.Count
	} else {
		r.env = r.env.With(s.nodeVars(r.local))
	}
	r.warnings = slices.Concat(s.warnings, s.rankWarnings(r.processes), s.sharedCheckpoints(), s.noCeiling(), c.warnings)
	world := r.local * max(1, s.place.Nodes)
	r.at = recipes.Topology{Ranks: world, Plain: r.plain && r.local == 1, DataParallel: world, NVMePath: s.job.Recovery.NVMePath}
	if n := s.job.Launch.DataParallel; n > 0 {
		if world%n != 0 && !r.plain {
			return Resolved{}, errext.Errorf("it is the world size divided by tensor, pipeline and context parallel sizes",
				"launch.data_parallel = %d does not divide the %d ranks", n, world)
		}
		r.at.DataParallel = n
	}
	return r, nil
}
