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

// filterBy is the filter of a phase. Loading the model and the optimizer step hold no
// activations, so that checkpointing and a smaller micro batch gain nothing there;
// evaluation touches the evaluation batch only; a save, the gather.
func filterBy(phase cause.Phase) phaseFilter {
	f := phaseFilter{}
	switch phase {
	case cause.Load, cause.Optimizer:
		reason := map[cause.Phase]string{
			cause.Load:      "loading the model holds no live activations",
			cause.Optimizer: "the optimizer step holds no live activations",
		}[phase]
		for _, r := range []Rung{RungAttention, RungCheckpointing, RungMicroBatch, RungOffloadActivations, RungSequence} {
			f[r] = reason
		}
	case cause.Eval:
		for _, r := range []Rung{RungCheckpointing, RungOffloadActivations} {
			f[r] = "evaluation keeps no activations for a backward pass"
		}
		for _, r := range []Rung{RungShard, RungOffloadOptimizer, RungOffloadParam, RungNVMe, RungOptimizer, RungSequence, RungPrecision} {
			f[r] = "evaluation touches the evaluation batch only"
		}
	case cause.Save:
		for _, r := range DeviceRungs {
			if r != RungAllocator && r != RungWait {
				f[r] = "saving a checkpoint gathers weights; it does not depend on the batch or the activations"
			}
		}
	}
	return f
}

// onCPU adds what only a GPU has.
func (f phaseFilter) onCPU() phaseFilter {
	for _, r := range DeviceRungs {
		switch r {
		case RungCheckpointing, RungMicroBatch, RungPrecision:
		default:
			f[r] = "the job trains on the CPU"
		}
	}
	return f
}
