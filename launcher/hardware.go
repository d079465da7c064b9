package launcher

import "github.com/gpurun/gpurun/strategy/cause"

// AfterHardware reports whether the last that was decided in a run is about a GPU that
// failed.
func AfterHardware(events []Event) bool {
	failed := false
	for _, e := range events {
		if d, decided := e.(Decided); decided {
			failed = d.Diagnosis.Cause == cause.GPUHardware && d.Diagnosis.Lost == nil
		}
	}
	return failed
}
