package strategy

import (
	"maps"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// deviceRows are the rungs for device memory, in the order of the ladder.
func deviceRows() []rungRow {
	return []rungRow{
		{rung: RungAllocator, turns: []Knob{Allocator}, training: Exact, free: true, remedy: stepRemedy(Allocator)},
		{rung: RungWait, training: Exact, remedy: wait, takes: neverTaken},
		{rung: RungAttention, turns: []Knob{Attention}, training: Exact, free: true, remedy: attention, idle: actsOnCalls},
		{
			rung: RungCheckpointing, turns: []Knob{ActivationCheckpointing}, training: Exact, onCPU: true,
			remedy: stepRemedy(ActivationCheckpointing), idle: actsOnActivations,
		},
		{
			rung: RungMicroBatch, turns: []Knob{MicroBatchSize, GradientAccumulationSteps, EvalBatchSize}, training: Average, onCPU: true,
			remedy: smallerBatch, plans: (*situation).divided, takes: lowers(MicroBatchSize, EvalBatchSize), idle: actsOnCalls,
		},
		{rung: RungPrecision, turns: []Knob{Precision}, training: Changed, onCPU: true, remedy: lowerPrecision, idle: actsOnTraining},
		{rung: RungShard, turns: []Knob{Sharding}, training: Exact, remedy: shard, takes: takesShard, idle: actsOnTraining},
		{
			rung: RungOffloadActivations, turns: []Knob{OffloadActivations}, training: Exact,
			remedy: offloadActivations, group: groupHost, idle: actsOnActivations,
		},
		{
			rung: RungOffloadOptimizer, turns: []Knob{OffloadOptimizer, Sharding}, training: Exact,
			remedy: offloadOptimizer, takes: takesOffloadOptimizer, group: groupHost, idle: actsOnTraining,
		},
		{
			rung: RungOffloadParam, turns: []Knob{OffloadParam, OffloadOptimizer, Sharding}, training: Exact,
			remedy: offloadParam, takes: takesOffloadParam, group: groupHost, idle: actsOnTraining,
		},
		{
			rung: RungNVMe, turns: []Knob{OffloadOptimizer, OffloadParam, Sharding}, training: Exact,
			remedy: toNVMe, takes: takesNVMe, group: groupNVMe, idle: actsOnTraining,
		},
		{rung: RungOptimizer, turns: []Knob{Optimizer}, training: Changed, remedy: leanerOptimizer, group: groupAllowed, idle: actsOnTraining},
		{
			rung: RungSequence, turns: []Knob{SequenceLength}, training: Changed,
			remedy: shorterSequence, group: groupAllowed, idle: actsOnSamples,
		},
	}
}

// hostRows are the rungs for host memory, in the order of their walk.
func hostRows() []rungRow {
	return []rungRow{
		{rung: RungWorkers, turns: []Knob{DataloaderWorkers}, training: Exact, host: true, remedy: fewerWorkers},
		{rung: RungPinnedMemory, turns: []Knob{PinMemory}, training: Exact, host: true, remedy: stepRemedy(PinMemory)},
		{rung: RungUndoOffload, turns: []Knob{OffloadParam, OffloadOptimizer}, training: Exact, host: true, remedy: undoOffload, takes: takesUndoOffload},
	}
}

// idleIn holds, for the phases in which a rung cannot answer a failure, the reason.
type idleIn map[cause.Phase]string

// Loading the model and the optimizer step hold no activations, so that checkpointing and a
// smaller micro batch gain nothing there; an evaluation touches its own batch only; a save,
// the gather.
var (
	actsOnCalls = idleIn{
		cause.Load:      "loading the model holds no live activations",
		cause.Optimizer: "the optimizer step holds no live activations",
		cause.Save:      "saving a checkpoint gathers weights; it does not depend on the batch or the activations",
	}
	actsOnActivations = actsOnCalls.with(cause.Eval, "evaluation keeps no activations for a backward pass")
	actsOnSamples     = actsOnCalls.with(cause.Eval, actsOnTraining[cause.Eval])
	actsOnTraining    = idleIn{
		cause.Eval: "evaluation touches the evaluation batch only",
		cause.Save: actsOnCalls[cause.Save],
	}
)

func (i idleIn) with(phase cause.Phase, reason string) idleIn {
	more := maps.Clone(i)
	more[phase] = reason
	return more
}

// lowers reports whether one of some knobs goes to a value that takes less memory.
func lowers(knobs ...Knob) func(from, to Plan) bool {
	return func(from, to Plan) bool {
		return slices.ContainsFunc(knobs, func(k Knob) bool { return saves(k, from[k], to[k]) })
	}
}

func neverTaken(_, _ Plan) bool { return false }

// goes reports whether a plan moves a knob to a value that takes less memory.
func goes(k Knob, v Value, from, to Plan) bool { return to[k] == v && saves(k, from[k], v) }

// The rungs that shard and offload share knobs: what belongs to which follows from what is
// offloaded, and where.

func takesShard(from, to Plan) bool {
	return lowers(Sharding)(from, to) && !takesNVMe(from, to) && !goes(OffloadOptimizer, "cpu", from, to) && !goes(OffloadParam, "cpu", from, to)
}

func takesOffloadOptimizer(from, to Plan) bool {
	return goes(OffloadOptimizer, "cpu", from, to) && !goes(OffloadParam, "cpu", from, to)
}

func takesOffloadParam(from, to Plan) bool { return goes(OffloadParam, "cpu", from, to) }

func takesNVMe(from, to Plan) bool {
	return goes(OffloadOptimizer, "nvme", from, to) || goes(OffloadParam, "nvme", from, to)
}

func takesUndoOffload(from, to Plan) bool {
	return slices.ContainsFunc([]Knob{OffloadOptimizer, OffloadParam}, func(k Knob) bool { return from[k] != to[k] && to[k] == "none" })
}
