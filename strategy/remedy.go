package strategy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A Remedy is one kind of remedy for a job that runs out of memory.
type Remedy string

// The remedies for device memory, then those for host memory.
const (
	RemedyAllocator          Remedy = "allocator"
	RemedyWait               Remedy = "wait"
	RemedyAttention          Remedy = "attention"
	RemedyCheckpointing      Remedy = "checkpointing"
	RemedySplit              Remedy = "split"
	RemedyLossParts          Remedy = "loss-parts"
	RemedyMicroBatch         Remedy = "micro-batch"
	RemedyRollout            Remedy = "rollout"
	RemedyPrecision          Remedy = "precision"
	RemedyShard              Remedy = "shard"
	RemedyOffloadActivations Remedy = "offload-activations"
	RemedyOffloadOptimizer   Remedy = "offload-optimizer"
	RemedyOffloadParam       Remedy = "offload-param"
	RemedyNVMe               Remedy = "nvme"
	RemedyFusedLoss          Remedy = "fused-loss"
	RemedyOptimizer          Remedy = "optimizer"
	RemedySequence           Remedy = "sequence"

	RemedyWorkers      Remedy = "workers"
	RemedyPinnedMemory Remedy = "pinned-memory"
	RemedyUndoOffload  Remedy = "undo-offload"
)

// DeviceRemedies and HostRemedies are the remedies for device and for host memory, in their order.
var DeviceRemedies, HostRemedies []Remedy

// A remedyRow declares one remedy.
type remedyRow struct {
	remedy Remedy
	// turns are the knobs that the remedy changes. recovery.never with one of them bars every
	// change to that knob. The remedy is skipped if the job cannot change the first one, unless
	// anyKnob is set: then the remedy itself checks which knobs the job can change.
	turns   []Knob
	anyKnob bool
	// training is the effect of the change on the training. For a smaller micro batch it
	// depends on the job, and is Average unless more is proven.
	training Training
	changes  changes
	// plans are the changes that the planner weighs; nil: those of the remedy.
	plans func(*situation) []Plan
	// takes reports whether the remedy leads from one plan to another; nil: it does if its first
	// knob changes to a value that needs less memory.
	takes func(from, to Plan) bool
	group int  // of the plans that the remedy leads to
	free  bool // it costs nothing and is applied together with the chosen remedy
	host  bool // it is for host memory
	onCPU bool // it also helps a job that trains on the CPU
	// numerics is what the policy has to allow for it; empty: nothing. barred follows "keeps the".
	numerics Numerics
	barred   string
	// inside is how gpurun's hook can change the first knob in the process; nil: it cannot.
	inside *Inside
	idle   idleIn // the phases in which it cannot help
}

// An Inside describes how gpurun's hook changes a knob in the process, for a job that has no setting for it.
type Inside struct {
	// Values are those that the hook can set. The first one is that of a job without the change.
	Values []Value
	// Caveat is what the process needs for it; it follows "the process, which".
	Caveat string
	// Refusal is a regular expression of the words of a command, with their value, if any, by which the user excludes the
	// change; empty: none.
	Refusal string
	// InCode is how the job itself can have the change, for people.
	InCode string
	// inPlace has the words about the change where a process makes it by itself, in the step that runs out of
	// memory; nil: it cannot.
	inPlace *inPlaceWords
}

// InsideOf returns how gpurun's hook changes a knob; nil: it cannot.
func InsideOf(k Knob) *Inside {
	for i := range remedyRows {
		if row := &remedyRows[i]; row.inside != nil && row.turns[0] == k {
			return row.inside
		}
	}
	return nil
}

// inPlace has the words about the remedy in place; nil: a process cannot take it by itself.
func (r *remedyRow) inPlace() *inPlaceWords {
	if r.inside == nil {
		return nil
	}
	return r.inside.inPlace
}

// An inPlaceWords says of a remedy in place how the step was done, what later steps of its size are (empty: as
// before), and what they do. %d stands for the number of parts.
type inPlaceWords struct{ with, from, does string }

// remedyRows has one row for each remedy, in the order in which they are tried. init sets it
// because the remedies refer to it.
var remedyRows []remedyRow

func init() { setRemedies(slices.Concat(deviceRows(), hostRows())) }

func setRemedies(rows []remedyRow) {
	remedyRows, DeviceRemedies, HostRemedies = rows, nil, nil
	for _, row := range rows {
		if row.host {
			HostRemedies = append(HostRemedies, row.remedy)
		} else {
			DeviceRemedies = append(DeviceRemedies, row.remedy)
		}
	}
}

// deviceRows lists the remedies for device memory, in their order.
func deviceRows() []remedyRow {
	return []remedyRow{
		{remedy: RemedyAllocator, turns: []Knob{Allocator}, training: Exact, free: true, changes: stepRemedy(Allocator),
			idle: actsWithoutPool},
		{remedy: RemedyWait, training: Exact, changes: wait, takes: neverTaken},
		{
			remedy: RemedyAttention, turns: []Knob{Attention}, training: Exact, free: true, changes: attention,
			idle: actsOnCalls,
			inside: &Inside{
				Values:  []Value{"eager", "sdpa"},
				Refusal: `(?i)^--?(?:(?:no|disable)[-_](?:sdpa|flash(?:[-_](?:attn|attention))?)|attn[-_]implementation[= ]eager)$`,
				InCode:  `to have it without gpurun, load the model with attn_implementation="sdpa"`,
			},
		},
		{
			remedy: RemedyCheckpointing, turns: []Knob{ActivationCheckpointing}, training: Exact, onCPU: true,
			changes: stepRemedy(ActivationCheckpointing), idle: actsOnActivations,
			inside: &Inside{
				Values: []Value{"none", "full"},
				Refusal: `(?i)^--?(?:(?:no|disable)[-_](?:use[-_])?(?:(?:gradient|grad|activation|act)[-_])?(?:checkpoint(?:ing)?|ckpt|recompute)|` +
					`(?:use[-_])?(?:gradient|grad|activation)[-_](?:checkpoint(?:ing)?|ckpt)[= ](?:false|0|no|off|none))$`,
				InCode:  "to have it without gpurun, " + CheckpointSwitch + CheckpointCall + "each block",
				inPlace: &inPlaceWords{"with activation checkpointing", "recomputed", "recompute activations"},
			},
		},
		{
			remedy: RemedySplit, turns: []Knob{ForwardParts}, training: Exact, onCPU: true,
			changes: inParts, idle: actsOnCalls,
			inside: &Inside{
				Values: []Value{"1", "2", "4", "8", "16", "32"},
				Caveat: "needs several independent samples, and a model without state",
				InCode: "there is no setting for it in PyTorch; where the loss is a mean over the samples, a smaller micro batch " +
					"with more accumulation needs as little memory",
				inPlace: &inPlaceWords{"in %d parts", "split", "run in %d parts"},
			},
		},
		{
			remedy: RemedyLossParts, turns: []Knob{LossParts}, training: Exact, onCPU: true,
			changes: stepRemedy(LossParts), idle: actsOnCalls,
			inside: &Inside{
				Values:  []Value{"off", "on"},
				Caveat:  "needs one over classes, with large logits",
				InCode:  "to have it without gpurun, compute the loss of a part of the rows at a time, each in torch.utils.checkpoint.checkpoint",
				inPlace: &inPlaceWords{"with the loss in parts", "", "compute the loss in parts"},
			},
		},
		{
			remedy: RemedyMicroBatch, turns: []Knob{MicroBatchSize, GradientAccumulationSteps, EvalBatchSize}, anyKnob: true,
			training: Average, onCPU: true,
			changes: smallerBatch, plans: (*situation).divided, takes: lowers(MicroBatchSize, EvalBatchSize), idle: actsOnCalls,
		},
		{
			remedy: RemedyRollout, turns: []Knob{RolloutMemory, RolloutBatchSize, RolloutSleep}, anyKnob: true,
			training: Average, changes: lessGeneration,
			takes: lowers(RolloutMemory, RolloutBatchSize, RolloutSleep), idle: actsOnGeneration,
		},
		// Not on a CPU, which may take several times as long in 16 bits.
		{
			remedy: RemedyPrecision, turns: []Knob{Precision}, training: Changed, numerics: MixedPrecision, barred: "precision",
			changes: lowerPrecision,
			idle:    actsOnTraining.with(cause.Rollout, actsOnCalls[cause.Rollout]),
			inside: &Inside{
				Values: []Value{"fp32", "bf16"},
				Refusal: `(?i)^--?(?:(?:no|disable)[-_](?:amp|mixed[-_]precision|autocast|fp16|bf16)|fp32|float32|full[-_]precision|` +
					`(?:precision|dtype|mixed[-_]precision|amp)[= ](?:32|32-true|fp32|float32|full|no|none|false|0))$`,
				InCode: `to have it without gpurun, run the forward pass in: with torch.autocast("cuda", torch.bfloat16)`,
			},
		},
		{remedy: RemedyShard, turns: []Knob{Sharding}, training: Exact, changes: shard, takes: takesShard,
			idle: actsOnTraining},
		{
			remedy: RemedyOffloadActivations, turns: []Knob{OffloadActivations}, training: Exact,
			changes: stepRemedy(OffloadActivations), group: groupHost, idle: actsOnActivations,
			inside: &Inside{
				Values:  []Value{"none", "cpu"},
				InCode:  "to have it without gpurun, run the forward pass in: with torch.autograd.graph.save_on_cpu(pin_memory=True)",
				inPlace: &inPlaceWords{"with activations in host memory", "offloaded", "keep activations in host memory"},
			},
		},
		{
			remedy: RemedyOffloadOptimizer, turns: []Knob{OffloadOptimizer, Sharding}, training: Exact,
			changes: offload(OffloadOptimizer, "zero2", "zero3"), takes: takesOffloadOptimizer, group: groupHost,
			idle: actsOnTraining,
			inside: &Inside{
				Values:  []Value{"none", "cpu"},
				Caveat:  "needs an optimizer of PyTorch that treats each parameter by itself",
				InCode:  "to have it without gpurun, use an optimizer that keeps its states in host memory, such as torchao's CPUOffloadOptimizer",
				inPlace: &inPlaceWords{"with optimizer states in host memory", "", "keep optimizer states in host memory"},
			},
		},
		{
			remedy: RemedyOffloadParam, turns: []Knob{OffloadParam, OffloadOptimizer, Sharding}, training: Exact,
			changes: offload(OffloadParam, "zero3"), takes: takesOffloadParam, group: groupHost, idle: actsOnTraining,
		},
		{
			remedy: RemedyNVMe, turns: []Knob{OffloadOptimizer, OffloadParam, Sharding}, anyKnob: true, training: Exact,
			changes: toNVMe, takes: takesNVMe, group: groupNVMe, idle: actsOnTraining,
		},
		{
			remedy: RemedyFusedLoss, turns: []Knob{FusedLoss}, training: Changed, numerics: Any, barred: "loss",
			changes: stepRemedy(FusedLoss), group: groupAllowed, idle: actsOnSamples,
		},
		{
			remedy: RemedyOptimizer, turns: []Knob{Optimizer}, training: Changed, numerics: Any, barred: "optimizer",
			changes: leanerOptimizer, group: groupAllowed, idle: actsOnTraining,
		},
		{
			remedy: RemedySequence, turns: []Knob{SequenceLength}, training: Changed, numerics: Any, barred: "sequence",
			changes: halve(SequenceLength), group: groupAllowed, idle: actsOnSamples,
		},
	}
}

// hostRows lists the remedies for host memory, in the order in which they are tried.
func hostRows() []remedyRow {
	return []remedyRow{
		{remedy: RemedyWorkers, turns: []Knob{DataloaderWorkers}, training: Average, host: true, changes: fewerWorkers},
		{remedy: RemedyPinnedMemory, turns: []Knob{PinMemory}, training: Exact, host: true, changes: stepRemedy(PinMemory)},
		{
			remedy: RemedyUndoOffload, turns: []Knob{OffloadParam, OffloadOptimizer}, anyKnob: true, training: Exact, host: true,
			changes: undoOffload, takes: takesUndoOffload,
		},
	}
}

// CheckpointSwitch and CheckpointCall are how the code of a job recomputes activations: by the switch that models of
// libraries have, or by a call for each block; what it is called on follows.
const (
	CheckpointSwitch = "call model.gradient_checkpointing_enable() where the model has it, or "
	CheckpointCall   = "import torch.utils.checkpoint and call torch.utils.checkpoint.checkpoint(block, *arguments, use_reentrant=False) in place of "
)

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
	return lowers(Sharding)(from, to) && !takesNVMe(from, to) && !goes(OffloadOptimizer, "cpu", from, to) &&
		!goes(OffloadParam, "cpu", from, to)
}

func takesOffloadOptimizer(from, to Plan) bool {
	return goes(OffloadOptimizer, "cpu", from, to) && !goes(OffloadParam, "cpu", from, to)
}

func takesOffloadParam(from, to Plan) bool { return goes(OffloadParam, "cpu", from, to) }

func takesNVMe(from, to Plan) bool {
	return goes(OffloadOptimizer, "nvme", from, to) || goes(OffloadParam, "nvme", from, to)
}

func takesUndoOffload(from, to Plan) bool {
	return slices.ContainsFunc([]Knob{OffloadOptimizer, OffloadParam},
		func(k Knob) bool { return from[k] != to[k] && to[k] == "none" })
}

func (r Remedy) known() bool {
	return slices.ContainsFunc(remedyRows, func(row remedyRow) bool { return row.remedy == r })
}

func (r Remedy) row() *remedyRow {
	at := slices.IndexFunc(remedyRows, func(row remedyRow) bool { return row.remedy == r })
	if at < 0 {
		panic(fmt.Sprintf("strategy: the remedy %s has no row: add one to remedy.go", r))
	}
	return &remedyRows[at]
}

// leads reports whether the remedy leads from one plan to another.
func (r *remedyRow) leads(from, to Plan) bool {
	if r.takes != nil {
		return r.takes(from, to)
	}
	return lowers(r.turns[0])(from, to)
}

// needs lists the remedies for device memory that lead from one plan to another, in their order.
func needs(from, to Plan) (remedies []Remedy) {
	for i := range remedyRows {
		if row := &remedyRows[i]; !row.host && row.leads(from, to) {
			remedies = append(remedies, row.remedy)
		}
	}
	return remedies
}

// A Skip is a remedy that was not taken, with the reason.
type Skip struct {
	Remedy  Remedy   `json:"rung"`
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
