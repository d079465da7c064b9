package strategy

import (
	"cmp"
	"slices"
)

// A Knob is one setting of a training job, under a framework-neutral name.
type Knob string

// The knobs. The global batch size is the product of micro batch size, gradient accumulation
// steps and data-parallel ranks, and is not a knob.
const (
	MicroBatchSize            Knob = "micro_batch_size"
	GradientAccumulationSteps Knob = "gradient_accumulation_steps"
	EvalBatchSize             Knob = "eval_batch_size"
	RolloutBatchSize          Knob = "rollout_batch_size"
	RolloutMemory             Knob = "rollout_memory"
	RolloutSleep              Knob = "rollout_sleep"
	SequenceLength            Knob = "sequence_length"
	ActivationCheckpointing   Knob = "activation_checkpointing"
	ForwardParts              Knob = "forward_parts"
	Precision                 Knob = "precision"
	Attention                 Knob = "attention"
	Optimizer                 Knob = "optimizer"
	Sharding                  Knob = "sharding"
	OffloadOptimizer          Knob = "offload_optimizer"
	OffloadParam              Knob = "offload_param"
	OffloadActivations        Knob = "offload_activations"
	LossParts                 Knob = "loss_parts"
	FusedLoss                 Knob = "fused_loss"
	Allocator                 Knob = "allocator"
	DataloaderWorkers         Knob = "dataloader_workers"
	PinMemory                 Knob = "pin_memory"
)

// A knobRow declares one knob.
type knobRow struct {
	knob  Knob
	short string // its name in a sentence
	// values are ordered from the one that needs the most device memory to the one that needs the
	// least; nil for whole numbers and open vocabularies (an optimizer's name).
	values []Value
	whole  bool // its values are whole numbers
	share  bool // its values are parts of a whole, between 0 and 1
}

// knobRows has one row for each knob, in the order in which plans are printed.
var knobRows = []knobRow{
	{MicroBatchSize, "micro batch", nil, true, false},
	{GradientAccumulationSteps, "accumulation", nil, true, false},
	{EvalBatchSize, "eval batch", nil, true, false},
	{RolloutBatchSize, "rollout batch", nil, true, false},
	{RolloutMemory, "engine's share of the device", nil, false, true},
	{RolloutSleep, "engine's sleep", []Value{"off", "on"}, false, false},
	{SequenceLength, "sequence length", nil, true, false},
	{ActivationCheckpointing, "checkpointing", []Value{"none", "selective", "full"}, false, false},
	{ForwardParts, "forward parts", []Value{"1", "2", "4", "8", "16", "32"}, false, false},
	{LossParts, "cross entropy in parts", []Value{"off", "on"}, false, false},
	{FusedLoss, "fused loss", []Value{"off", "on"}, false, false},
	{Precision, "precision", []Value{"fp32", "tf32", "fp16", "bf16", "fp8"}, false, false},
	{Attention, "attention", []Value{"eager", "sdpa", "flash"}, false, false},
	{Optimizer, "optimizer", nil, false, false},
	{Sharding, "sharding", []Value{"none", "zero1", "zero2", "zero3", "fsdp"}, false, false},
	{OffloadOptimizer, "optimizer offload", []Value{"none", "cpu", "nvme"}, false, false},
	{OffloadParam, "parameter offload", []Value{"none", "cpu", "nvme"}, false, false},
	{OffloadActivations, "activation offload", []Value{"none", "cpu"}, false, false},
	{Allocator, "allocator", []Value{"default", "expandable"}, false, false},
	{DataloaderWorkers, "loader workers", nil, true, false},
	{PinMemory, "pinned memory", []Value{"true", "false"}, false, false},
}

// Knobs lists every knob in the order in which plans are printed.
var Knobs []Knob

var rowOfKnob map[Knob]knobRow

func init() { setKnobs(knobRows) }

func setKnobs(rows []knobRow) {
	knobRows, Knobs, rowOfKnob = rows, nil, map[Knob]knobRow{}
	for _, row := range rows {
		Knobs = append(Knobs, row.knob)
		rowOfKnob[row.knob] = row
	}
}

// Vocabulary returns the values that a knob can have; nil for whole numbers and open
// vocabularies (an optimizer's name).
func Vocabulary(k Knob) []Value { return slices.Clone(k.words()) }

// words is Vocabulary for callers that do not change it.
func (k Knob) words() []Value { return rowOfKnob[k].values }

// Whole reports whether a knob's values are whole numbers.
func (k Knob) Whole() bool { return rowOfKnob[k].whole }

// Share reports whether a knob's values are parts of a whole, between 0 and 1.
func (k Knob) Share() bool { return rowOfKnob[k].share }

// Short is the knob's name in a sentence: "micro batch".
func (k Knob) Short() string { return cmp.Or(rowOfKnob[k].short, string(k)) }

// A Range limits the changes that gpurun may make to one knob of a job.
type Range struct {
	// Values are the allowed values, in the order of the knob's vocabulary; nil for a whole
	// number.
	Values []Value `json:"values,omitempty"`
	// Min and Max bound a whole number; 0: no bound.
	Min int `json:"min,omitempty"`
	Max int `json:"max,omitempty"`
	// Absent is the reason why the job cannot change the knob; empty: it can.
	Absent string `json:"absent,omitempty"`
	// Caveat is what the job's process needs, or may refuse: it follows "the process, which".
	Caveat string `json:"caveat,omitempty"`
	// Follows is the knob that gives an absent one its value: the evaluation's batch may be the
	// training's.
	Follows Knob `json:"follows,omitempty"`
	// Weights: the precision also sets the dtype of the weights, so a lower one shrinks the
	// memory that is held between steps.
	Weights bool `json:"weights,omitempty"`
	// Scope is the way of counting the accumulation: "" on each rank, ScopeGlobal or
	// ScopeDerived.
	Scope string `json:"scope,omitempty"`
	By    By     `json:"by,omitempty"`
	// Told: the job's code computes the value, and its process reports it.
	Reported bool `json:"told,omitempty"`
	// Likely are the settings that may be the knob, in the order of their names. The plan has no value of it
	// before a process has reported one; nil: its place is known.
	Likely []Likely `json:"likely,omitempty"`
	// Doubtful: the job's code may set the value, so none is assumed before a process has
	// reported it.
	Doubtful bool `json:"doubtful,omitempty"`
	// Checkpoint lists the changes after which a checkpoint can still be read; nil: all.
	Checkpoint *Survival `json:"checkpoint,omitempty"`
}

// By is the part that changes a knob: the recipe, in the job's own configuration, or gpurun's
// hook in the process, at the first call of the root module. A knob that the process does not
// report, or refuses to change, is not changed.
type By string

// The two ways to change a knob.
const (
	ByRecipe By = ""
	ByHook   By = "hook"
)

// A Survival lists groups of values. A job can change a value within a group and still resume
// from a checkpoint. No groups: a checkpoint survives no change.
type Survival struct {
	Groups [][]Value `json:"groups"`
	Reason string    `json:"reason"`
}

// The scopes of gradient accumulation: counted over all data-parallel ranks, or computed by the
// framework from a global batch size that does not change.
const (
	ScopeGlobal  = "global"
	ScopeDerived = "derived"
)

// Outlives reports whether a checkpoint written with one value can be resumed with the other.
func (r Range) Outlives(from, to Value) bool {
	return r.Checkpoint == nil || from == to || slices.ContainsFunc(r.Checkpoint.Groups, func(g []Value) bool {
		return slices.Contains(g, from) && slices.Contains(g, to)
	})
}

// Allows reports whether the knob can be set to v.
func (r Range) Allows(v Value) bool {
	switch n, whole := v.Number(); {
	case r.Absent != "":
		return false
	case r.Values != nil:
		return slices.Contains(r.Values, v)
	default:
		return !whole || n >= r.Min && (r.Max == 0 || n <= r.Max)
	}
}
