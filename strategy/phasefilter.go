package strategy

import "github.com/gpurun/gpurun/strategy/cause"

// A phaseFilter says which rungs the phase of a failure leaves open: for a rung that is
// shut it holds the reason.
type phaseFilter map[Rung]string

// filterBy tells which rungs cannot answer a failure in this phase. Loading the
// model and the optimizer step hold no activations, so that checkpointing and a
// smaller micro batch gain nothing there; evaluation touches the evaluation
// batch only; a save, the gather.
func filterBy(phase cause.Phase) phaseFilter {
	d := phaseFilter{}
	switch phase {
	case cause.Load, cause.Optimizer:
		reason := map[cause.Phase]string{
			cause.Load:      "loading the model holds no live activations",
			cause.Optimizer: "the optimizer step holds no live activations",
		}[phase]
		for _, r := range []Rung{RungAttention, RungCheckpointing, RungMicroBatch, RungOffloadActivations, RungSequence} {
			d[r] = reason
		}
	case cause.Eval:
		for _, r := range []Rung{RungCheckpointing, RungOffloadActivations} {
			d[r] = "evaluation keeps no activations for a backward pass"
		}
		for _, r := range []Rung{RungShard, RungOffloadOptimizer, RungOffloadParam, RungNVMe, RungOptimizer, RungSequence, RungPrecision} {
			d[r] = "evaluation touches the evaluation batch only"
		}
	case cause.Save:
		for _, r := range DeviceRungs {
			if r != RungAllocator && r != RungWait {
				d[r] = "a checkpoint save gathers weights; the batch and the activations have no part in it"
			}
		}
	}
	return d
}

// shutOnCPU adds what only a GPU has.
func (d phaseFilter) shutOnCPU() phaseFilter {
	for _, r := range DeviceRungs {
		switch r {
		case RungCheckpointing, RungMicroBatch, RungPrecision:
		default:
			d[r] = "the job trains on the CPU"
		}
	}
	return d
}
