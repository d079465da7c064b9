package strategy

import (
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// Settled reports whether a decision after an attempt would come out the same for another
// run of the same job on the same device: every allowed rung was tried or is impossible, not
// for a bound of the run, another process's memory, the host's, a checkpoint or what somebody
// did meanwhile.
func Settled(d Decision, last Attempt, inv Inventory) bool {
	alone := inv.Device.Others <= inv.Device.Total/100
	needs := last.Diagnosis.Cause == cause.CUDAOOM && last.Diagnosis.Growth == nil && !last.Diagnosis.Late
	return d.Outcome == Exhausted && len(d.Skipped) > 0 && needs && alone && inv.Checkpoint == "" && last.StopSignal == 0 && last.CutShort == "" &&
		!slices.ContainsFunc(d.Skipped, func(k Skip) bool { return k.Passing })
}
