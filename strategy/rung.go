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

// A rungRow is what there is to know of a rung.
type rungRow struct {
	// turns are the knobs that the rung changes; naming one of them in recovery.never keeps
	// the rung from being taken, except that a partner knob (accumulation, sharding under
	// offload) only bars what would change it.
	turns []Knob
	// training is what a change of these knobs does to the training. That of a smaller micro
	// batch is the job's own, and Average where nothing proves more.
	training Training
}

var rungRows = map[Rung]rungRow{
	RungAllocator:          {[]Knob{Allocator}, Exact},
	RungWait:               {nil, Exact},
	RungAttention:          {[]Knob{Attention}, Exact},
	RungCheckpointing:      {[]Knob{ActivationCheckpointing}, Exact},
	RungMicroBatch:         {[]Knob{MicroBatchSize, GradientAccumulationSteps, EvalBatchSize}, Average},
	RungPrecision:          {[]Knob{Precision}, Changed},
	RungShard:              {[]Knob{Sharding}, Exact},
	RungOffloadActivations: {[]Knob{OffloadActivations}, Exact},
	RungOffloadOptimizer:   {[]Knob{OffloadOptimizer, Sharding}, Exact},
	RungOffloadParam:       {[]Knob{OffloadParam, OffloadOptimizer, Sharding}, Exact},
	RungNVMe:               {[]Knob{OffloadOptimizer, OffloadParam, Sharding}, Exact},
	RungOptimizer:          {[]Knob{Optimizer}, Changed},
	RungSequence:           {[]Knob{SequenceLength}, Changed},
	RungWorkers:            {[]Knob{DataloaderWorkers}, Exact},
	RungPinnedMemory:       {[]Knob{PinMemory}, Exact},
	RungUndoOffload:        {[]Knob{OffloadParam, OffloadOptimizer}, Exact},
}

// Turns lists the knobs that a rung may change.
func (r Rung) Turns() []Knob { return slices.Clone(rungRows[r].turns) }

// A Skip is a rung that was not taken, and why.
type Skip struct {
	Rung   Rung   `json:"rung"`
	Reason string `json:"reason"`
	// Refused says that only the policy stood in the way.
	Refused bool `json:"refused,omitempty"`
	// Passing: the reason may be gone tomorrow, as host memory that others hold, or a part
	// that is installed meanwhile.
	Passing bool `json:"-"`
}
