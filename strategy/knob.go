package strategy

import (
	"cmp"
	"slices"
)

// A Knob is one setting of a training job, under a name that no framework owns.
type Knob string

// The knobs. The global batch size is none of them: it is the product of micro
// batch size, gradient accumulation steps and data-parallel ranks.
const (
	MicroBatchSize            Knob = "micro_batch_size"
	GradientAccumulationSteps Knob = "gradient_accumulation_steps"
	EvalBatchSize             Knob = "eval_batch_size"
	SequenceLength            Knob = "sequence_length"
	ActivationCheckpointing   Knob = "activation_checkpointing"
	Precision                 Knob = "precision"
	Attention                 Knob = "attention"
	Optimizer                 Knob = "optimizer"
	Sharding                  Knob = "sharding"
	OffloadOptimizer          Knob = "offload_optimizer"
	OffloadParam              Knob = "offload_param"
	OffloadActivations        Knob = "offload_activations"
	Allocator                 Knob = "allocator"
	DataloaderWorkers         Knob = "dataloader_workers"
	PinMemory                 Knob = "pin_memory"
)

// A knobRow is all that there is to know of a knob.
type knobRow struct {
	knob  Knob
	short string // its name in a sentence
	// values are its words, from the one that needs the most device memory to the one that
	// needs the least; nil where they are whole numbers or open words (an optimizer's name).
	values []Value
	whole  bool // its values are whole numbers
}

// knobRows has one row for each knob, in the order in which plans are printed.
var knobRows = []knobRow{
	{MicroBatchSize, "micro batch", nil, true},
	{GradientAccumulationSteps, "accumulation", nil, true},
	{EvalBatchSize, "eval batch", nil, true},
	{SequenceLength, "sequence length", nil, true},
	{ActivationCheckpointing, "checkpointing", []Value{"none", "selective", "full"}, false},
	{Precision, "precision", []Value{"fp32", "tf32", "fp16", "bf16", "fp8"}, false},
	{Attention, "attention", []Value{"eager", "sdpa", "flash"}, false},
	{Optimizer, "optimizer", nil, false},
	{Sharding, "sharding", []Value{"none", "zero1", "zero2", "zero3", "fsdp"}, false},
	{OffloadOptimizer, "optimizer offload", []Value{"none", "cpu", "nvme"}, false},
	{OffloadParam, "parameter offload", []Value{"none", "cpu", "nvme"}, false},
	{OffloadActivations, "activation offload", []Value{"none", "cpu"}, false},
	{Allocator, "allocator", []Value{"default", "expandable"}, false},
	{DataloaderWorkers, "loader workers", nil, true},
	{PinMemory, "pinned memory", []Value{"true", "false"}, false},
}

// Knobs lists every knob in the order in which plans are printed.
var Knobs []Knob

// rowOfKnob has the row of each knob.
var rowOfKnob map[Knob]knobRow

func init() { setKnobs(knobRows) }

// setKnobs makes rows the knobs that there are.
func setKnobs(rows []knobRow) {
	knobRows, Knobs, rowOfKnob = rows, nil, map[Knob]knobRow{}
	for _, row := range rows {
		Knobs = append(Knobs, row.knob)
		rowOfKnob[row.knob] = row
	}
}

// Vocabulary returns the values that a knob can have, or nil for a knob whose
// values are whole numbers or open words (an optimizer's name).
func Vocabulary(k Knob) []Value { return slices.Clone(k.words()) }

// words are the values that a knob can have; callers do not change them.
func (k Knob) words() []Value { return rowOfKnob[k].values }

// Whole reports whether a knob's values are whole numbers.
func (k Knob) Whole() bool { return rowOfKnob[k].whole }

// Short is the knob's name in a sentence: "micro batch".
func (k Knob) Short() string { return cmp.Or(rowOfKnob[k].short, string(k)) }
