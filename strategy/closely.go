package strategy

import "github.com/gpurun/gpurun/strategy/cause"

// Closely reports whether the next attempt's allocations are to be recorded from its start
// to its end: the last one that ran out of a GPU's memory did so late, by a leak, or in a
// phase that nobody saw, and what was recorded of its first steps does not tell why.
func Closely(history []Attempt) bool {
	for i := len(history) - 1; i >= 0; i-- {
		if d := history[i].Diagnosis; d.Fatal && d.Cause == cause.CUDAOOM {
			return d.Late || d.Growth != nil || d.Phase == cause.NoPhase
		}
	}
	return false
}
