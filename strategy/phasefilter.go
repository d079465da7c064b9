package strategy

import "github.com/gpurun/gpurun/strategy/cause"

// A phaseFilter holds, for each rung that cannot answer a failure in its phase, the reason.
type phaseFilter map[Rung]string

// serves reports whether a job has no batch of training: an inference server, which makes
// room for requests of full length while it loads.
func (s *situation) serves() bool {
	micro, known := s.job.Knobs[MicroBatchSize]
	accumulation := s.job.Knobs[GradientAccumulationSteps]
	return known && micro.Absent != "" && accumulation.Absent != ""
}

// filterBy is the filter of a phase.
func filterBy(phase cause.Phase) phaseFilter {
	f := phaseFilter{}
	for _, row := range rungRows {
		if reason := row.idle[phase]; reason != "" {
			f[row.rung] = reason
		}
	}
	return f
}

// onCPU adds what only a GPU has.
func (f phaseFilter) onCPU() phaseFilter {
	for _, row := range rungRows {
		if !row.host && !row.onCPU {
			f[row.rung] = "the job trains on the CPU"
		}
	}
	return f
}
