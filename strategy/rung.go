package strategy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A Rung is one kind of remedy for a job that runs out of memory.
type Rung string

// The remedies for device memory, then those for host memory.
const (
	RungAllocator          Rung = "allocator"
	RungWait               Rung = "wait"
	RungAttention          Rung = "attention"
	RungCheckpointing      Rung = "checkpointing"
	RungSplit              Rung = "split"
	RungLossParts          Rung = "loss-parts"
	RungMicroBatch         Rung = "micro-batch"
	RungRollout            Rung = "rollout"
	RungPrecision          Rung = "precision"
	RungShard              Rung = "shard"
	RungOffloadActivations Rung = "offload-activations"
	RungOffloadOptimizer   Rung = "offload-optimizer"
	RungOffloadParam       Rung = "offload-param"
	RungNVMe               Rung = "nvme"
	RungFusedLoss          Rung = "fused-loss"
	RungOptimizer          Rung = "optimizer"
	RungSequence           Rung = "sequence"

	RungWorkers      Rung = "workers"
	RungPinnedMemory Rung = "pinned-memory"
	RungUndoOffload  Rung = "undo-offload"
)

// DeviceRungs and HostRungs are the remedies for device and for host memory, in their order.
var DeviceRungs, HostRungs []Rung

// A rungRow declares one remedy.
type rungRow struct {
	rung Rung
	// turns are the knobs that the remedy changes. recovery.never with one of them bars every
	// change to that knob. The remedy is skipped if the job cannot change the first one, unless
	// anyKnob is set: then the remedy itself checks which knobs the job can change.
	turns   []Knob
	anyKnob bool
	// training is the effect of the change on the training. For a smaller micro batch it
	// depends on the job, and is Average unless more is proven.
	training Training
	remedy   remedy
	// plans are the changes that the planner weighs; nil: those of the remedy.
	plans func(*situation) []Plan
	// takes reports whether the remedy leads from one plan to another; nil: it does if its first
	// knob changes to a value that needs less memory.
	takes func(from, to Plan) bool
	group int  // of the plans that the remedy leads to
	free  bool // it costs nothing and is applied together with the chosen remedy
	host  bool // it is for host memory
	onCPU bool // it also helps a job that trains on the CPU
	// inPlace has the words about the remedy where a process takes it by itself, in the step that runs out of memory;
	// nil: it cannot.
	inPlace *inPlaceWords
	idle    idleIn // the phases in which it cannot help
}

// An inPlaceWords says of a remedy in place how the step was done, what later steps of its size are (empty: as
// before), and what they do. %d stands for the number of parts.
type inPlaceWords struct{ with, from, does string }

// rungRows has one row for each remedy, in the order in which they are tried. init sets it
// because the remedies refer to it.
var rungRows []rungRow

func init() { setRungs(slices.Concat(deviceRows(), hostRows())) }

func setRungs(rows []rungRow) {
	rungRows, DeviceRungs, HostRungs = rows, nil, nil
	for _, row := range rows {
		if row.host {
			HostRungs = append(HostRungs, row.rung)
		} else {
			DeviceRungs = append(DeviceRungs, row.rung)
		}
	}
}

// deviceRows lists the remedies for device memory, in their order.
func deviceRows() []rungRow {
	return []rungRow{
		{rung: RungAllocator, turns: []Knob{Allocator}, training: Exact, free: true, remedy: stepRemedy(Allocator), idle: actsWithoutPool},
		{rung: RungWait, training: Exact, remedy: wait, takes: neverTaken},
		{rung: RungAttention, turns: []Knob{Attention}, training: Exact, free: true, remedy: attention, idle: actsOnCalls},
		{
			rung: RungCheckpointing, turns: []Knob{ActivationCheckpointing}, training: Exact, onCPU: true,
			inPlace: &inPlaceWords{"with activation checkpointing", "recomputed", "recompute activations"},
			remedy:  stepRemedy(ActivationCheckpointing), idle: actsOnActivations,
		},
		{
			rung: RungSplit, turns: []Knob{ForwardParts}, training: Exact, onCPU: true,
			inPlace: &inPlaceWords{"in %d parts", "split", "run in %d parts"},
			remedy:  inParts, idle: actsOnCalls,
		},
		{
			rung: RungLossParts, turns: []Knob{LossParts}, training: Exact, onCPU: true,
			inPlace: &inPlaceWords{"with the loss in parts", "", "compute the loss in parts"},
			remedy:  stepRemedy(LossParts), idle: actsOnCalls,
		},
		{
			rung: RungMicroBatch, turns: []Knob{MicroBatchSize, GradientAccumulationSteps, EvalBatchSize}, anyKnob: true, training: Average, onCPU: true,
			remedy: smallerBatch, plans: (*situation).divided, takes: lowers(MicroBatchSize, EvalBatchSize), idle: actsOnCalls,
		},
		{
			rung: RungRollout, turns: []Knob{RolloutMemory, RolloutBatchSize, RolloutSleep}, anyKnob: true, training: Average, remedy: lessGeneration,
			takes: lowers(RolloutMemory, RolloutBatchSize, RolloutSleep), idle: actsOnGeneration,
		},
		// Not on a CPU, which may take several times as long in 16 bits.
		{rung: RungPrecision, turns: []Knob{Precision}, training: Changed, remedy: lowerPrecision, idle: actsOnTraining.with(cause.Rollout, actsOnCalls[cause.Rollout])},
		{rung: RungShard, turns: []Knob{Sharding}, training: Exact, remedy: shard, takes: takesShard, idle: actsOnTraining},
		{
			rung: RungOffloadActivations, turns: []Knob{OffloadActivations}, training: Exact,
			inPlace: &inPlaceWords{"with activations in host memory", "offloaded", "keep activations in host memory"},
			remedy:  stepRemedy(OffloadActivations), group: groupHost, idle: actsOnActivations,
		},
		{
			rung: RungOffloadOptimizer, turns: []Knob{OffloadOptimizer, Sharding}, training: Exact,
			remedy: offload(OffloadOptimizer, "zero2", "zero3"), takes: takesOffloadOptimizer, group: groupHost, idle: actsOnTraining,
		},
		{
			rung: RungOffloadParam, turns: []Knob{OffloadParam, OffloadOptimizer, Sharding}, training: Exact,
			remedy: offload(OffloadParam, "zero3"), takes: takesOffloadParam, group: groupHost, idle: actsOnTraining,
		},
		{
			rung: RungNVMe, turns: []Knob{OffloadOptimizer, OffloadParam, Sharding}, anyKnob: true, training: Exact,
			remedy: toNVMe, takes: takesNVMe, group: groupNVMe, idle: actsOnTraining,
		},
		{rung: RungFusedLoss, turns: []Knob{FusedLoss}, training: Changed, remedy: stepRemedy(FusedLoss), group: groupAllowed, idle: actsOnSamples},
		{rung: RungOptimizer, turns: []Knob{Optimizer}, training: Changed, remedy: leanerOptimizer, group: groupAllowed, idle: actsOnTraining},
		{
			rung: RungSequence, turns: []Knob{SequenceLength}, training: Changed,
			remedy: halve(SequenceLength), group: groupAllowed, idle: actsOnSamples,
		},
	}
}

// hostRows lists the remedies for host memory, in the order in which they are tried.
func hostRows() []rungRow {
	return []rungRow{
		{rung: RungWorkers, turns: []Knob{DataloaderWorkers}, training: Average, host: true, remedy: fewerWorkers},
		{rung: RungPinnedMemory, turns: []Knob{PinMemory}, training: Exact, host: true, remedy: stepRemedy(PinMemory)},
		{
			rung: RungUndoOffload, turns: []Knob{OffloadParam, OffloadOptimizer}, anyKnob: true, training: Exact, host: true,
			remedy: undoOffload, takes: takesUndoOffload,
		},
	}
}

// idleIn has the phases in which a remedy cannot help, each with the reason.
type idleIn map[cause.Phase]string

// Loading the model and the optimizer step hold no activations, so checkpointing and a smaller
// micro batch save nothing there. An evaluation depends on its own batch, a save on the weights
// that it gathers.
var (
	actsOnCalls = idleIn{
		cause.Load:      "loading the model holds no live activations",
		cause.Optimizer: "the optimizer step holds no live activations",
		cause.Save:      "saving a checkpoint gathers weights; it does not depend on the batch or the activations",
		cause.Rollout:   "generation keeps no activations; the engine has other settings",
	}
	// vLLM's memory pool, which sleeps, refuses expandable segments.
	actsWithoutPool   = idleIn{cause.Rollout: "the memory pools of engines refuse expandable segments"}
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

// lowers reports whether one of the knobs changes to a value that needs less memory.
func lowers(knobs ...Knob) func(from, to Plan) bool {
	return func(from, to Plan) bool {
		return slices.ContainsFunc(knobs, func(k Knob) bool { return saves(k, from[k], to[k]) })
	}
}

func neverTaken(_, _ Plan) bool { return false }

// goes reports whether the knob changes to v, and v needs less memory.
func goes(k Knob, v Value, from, to Plan) bool { return to[k] == v && saves(k, from[k], v) }

// The remedies that shard and offload change the same knobs. The remedy that leads to a plan
// follows from what is offloaded, and to where.

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

func (r Rung) known() bool {
	return slices.ContainsFunc(rungRows, func(row rungRow) bool { return row.rung == r })
}

func (r Rung) row() *rungRow {
	at := slices.IndexFunc(rungRows, func(row rungRow) bool { return row.rung == r })
	if at < 0 {
		panic(fmt.Sprintf("strategy: the remedy %s has no row: add one to rung.go", r))
	}
	return &rungRows[at]
}

// leads reports whether the remedy leads from one plan to another.
func (r *rungRow) leads(from, to Plan) bool {
	if r.takes != nil {
		return r.takes(from, to)
	}
	return lowers(r.turns[0])(from, to)
}

// needs lists the remedies for device memory that lead from one plan to another, in their order.
func needs(from, to Plan) (rungs []Rung) {
	for i := range rungRows {
		if row := &rungRows[i]; !row.host && row.leads(from, to) {
			rungs = append(rungs, row.rung)
		}
	}
	return rungs
}

// A Skip is a remedy that was not taken, with the reason.
type Skip struct {
	Rung    Rung     `json:"rung"`
	Code    SkipCode `json:"code,omitempty"` // empty from an earlier version
	Reason  string   `json:"reason"`
	Refused bool     `json:"refused,omitempty"` // only the policy bars it
}

// A SkipCode is the kind of reason why a remedy was not taken.
type SkipCode string

// The kinds of reasons, in the order in which they are checked.
const (
	SkipPhase      SkipCode = "phase"       // it does not help in the phase, or on the device
	SkipSetting    SkipCode = "setting"     // the job has no setting for it
	SkipValue      SkipCode = "value"       // the setting has no value that needs less memory
	SkipPipeline   SkipCode = "pipeline"    // DeepSpeed's pipeline refuses it
	SkipDoubted    SkipCode = "doubted"     // the job may not train the same with it
	SkipHostMemory SkipCode = "host-memory" // too little host memory is free
	SkipDisk       SkipCode = "disk"        // too little of the disk is free
	SkipMissing    SkipCode = "missing"     // a part is not installed
	SkipPolicy     SkipCode = "policy"      // the policy bars it
	SkipFree       SkipCode = "free"        // it is applied together with another one
	SkipCheckpoint SkipCode = "checkpoint"  // the checkpoint could not be resumed with it
	SkipRequest    SkipCode = "request"     // the request that failed would fail again
	SkipTooLarge   SkipCode = "too-large"   // what does not change needs more than there is
	SkipPredicted  SkipCode = "predicted"   // predictions exclude it
	SkipTried      SkipCode = "tried"       // it ran out of memory before
)

// passing reports whether the reason is temporary, such as too little free host memory or a package that is not
// installed.
func (k Skip) passing() bool {
	return slices.Contains([]SkipCode{SkipHostMemory, SkipDisk, SkipMissing}, k.Code)
}
