package strategy

import "slices"

// A Rung is one kind of remedy in the decision tree.
type Rung string

// The rungs for device memory, in the order of the ladder. Three more for host
// memory follow; those have a walk of their own.
const (
	RungAllocator          Rung = "allocator"
	RungWait               Rung = "wait"
	RungAttention          Rung = "attention"
	RungCheckpointing      Rung = "checkpointing"
	RungMicroBatch         Rung = "micro-batch"
	RungPrecision          Rung = "precision"
	RungShard              Rung = "shard"
	RungOffloadActivations Rung = "offload-activations"
	RungOffloadOptimizer   Rung = "offload-optimizer"
	RungOffloadParam       Rung = "offload-param"
	RungNVMe               Rung = "nvme"
	RungOptimizer          Rung = "optimizer"
	RungSequence           Rung = "sequence"

	RungWorkers      Rung = "workers"
	RungPinnedMemory Rung = "pinned-memory"
	RungUndoOffload  Rung = "undo-offload"
)

// DeviceRungs is the ladder for device memory; HostRungs the walk for host memory.
var (
	DeviceRungs = []Rung{
		RungAllocator, RungWait, RungAttention, RungCheckpointing, RungMicroBatch, RungPrecision, RungShard,
		RungOffloadActivations, RungOffloadOptimizer, RungOffloadParam, RungNVMe, RungOptimizer, RungSequence,
	}
	HostRungs = []Rung{RungWorkers, RungPinnedMemory, RungUndoOffload}
)

// turns lists the knobs that each rung changes; naming one of them in
// recovery.never keeps the rung from being taken, except that a partner knob
// (accumulation, sharding under offload) only bars what would change it.
var turns = map[Rung][]Knob{
	RungAllocator:          {Allocator},
	RungAttention:          {Attention},
	RungCheckpointing:      {ActivationCheckpointing},
	RungMicroBatch:         {MicroBatchSize, GradientAccumulationSteps, EvalBatchSize},
	RungPrecision:          {Precision},
	RungShard:              {Sharding},
	RungOffloadActivations: {OffloadActivations},
	RungOffloadOptimizer:   {OffloadOptimizer, Sharding},
	RungOffloadParam:       {OffloadParam, OffloadOptimizer, Sharding},
	RungNVMe:               {OffloadOptimizer, OffloadParam, Sharding},
	RungOptimizer:          {Optimizer},
	RungSequence:           {SequenceLength},
	RungWorkers:            {DataloaderWorkers},
	RungPinnedMemory:       {PinMemory},
	RungUndoOffload:        {OffloadParam, OffloadOptimizer},
}

// Turns lists the knobs that a rung may change.
func (r Rung) Turns() []Knob { return slices.Clone(turns[r]) }

// A Skip is a rung that was not taken, and why.
type Skip struct {
	Rung   Rung   `json:"rung"`
	Reason string `json:"reason"`
	// Refused says that only the policy stood in the way.
	Refused bool `json:"refused,omitempty"`
}
