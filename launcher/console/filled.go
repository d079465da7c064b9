package console

import (
	"github.com/gpurun/gpurun/launcher/runstate"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// filled is what filled the GPU's memory where an attempt ran out of it: on the rank where
// that began, if its snapshot is there.
func filled(d strategy.Diagnosis, e *strategy.Evidence) strategy.Snapshot {
	if !d.Fatal || d.Cause != cause.CUDAOOM {
		return strategy.Snapshot{}
	}
	all := e.Snapshots()
	for _, s := range all {
		if s.Rank == d.Rank {
			return s
		}
	}
	if len(all) > 0 {
		return all[0]
	}
	return strategy.Snapshot{}
}

// memory says of a run that failed what filled the memory last.
func (p *People) memory(a *runstate.Attempt) {
	for _, line := range filled(a.Diagnosis, &a.Evidence).Words() {
		p.say("%s", line)
	}
}
