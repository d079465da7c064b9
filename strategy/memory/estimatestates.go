package memory

import (
	"math"
	"slices"
	"strings"
)

// An optimizerCost is the memory of an optimizer: bytes for each parameter with states in fp32
// and with states that follow 16-bit weights, and the temporary bytes of its step: moment as a
// share of the weights' bytes if it takes all weights at once, single as a share of the largest
// parameter's bytes if it takes one after the other.
type optimizerCost struct {
	name string
	// marks are parts of the names of its classes, in lower case.
	marks          []string
	full, half     float64
	moment, single float64
	// embeddings: those of embeddings keep states in fp32, whatever the rest has. doubt: there
	// may be one more state, which its name does not show: momentum of SGD, the first moment of
	// Adafactor.
	embeddings, doubt bool
}

// optimizers are those that plans name. Adam has two states. By default torch's own step uses the
// foreach implementation, which needs the weights' bytes once more ("~ sizeof(params) more peak
// memory", torch.optim); the fused one does not. On a CPU it takes one parameter after the other,
// and Adam then makes two tensors of its size (torch/optim/adam.py, _single_tensor_adam: the root
// of the second moment, and that by the bias correction), and a third one for the weight decay of
// Adam, as SGD does. One that a class may lack counts, as it may have it. 8-bit states are a byte each and a scale in
// fp32 for 256 of them (bitsandbytes); those of embeddings stay in fp32. Adafactor without a first
// moment, as transformers call it, holds rows and columns only; with one it holds 4 bytes and a
// little.
var optimizers = []optimizerCost{
	{name: "adamw", full: 8, half: 4, moment: 1, single: 2},
	{name: "adam", full: 8, half: 4, moment: 1, single: 3},
	{name: "adamw-fused", full: 8, half: 4},
	{name: "adamw-8bit", marks: []string{"8bit", "8-bit"}, full: 2 + 2*4.0/256, half: 2 + 2*4.0/256, embeddings: true},
	{name: "paged-adamw-8bit", full: 2 + 2*4.0/256, half: 2 + 2*4.0/256, embeddings: true},
	{name: "adamw-4bit", full: 1 + 2*4.0/128, half: 1 + 2*4.0/128},
	{name: "lion", marks: []string{"lion"}, full: 4, half: 2, single: 2},
	{name: "momentum", marks: []string{"adagrad", "rmsprop", "muon"}, full: 4, half: 2, single: 1},
	{name: "sgd", marks: []string{"sgd"}, full: 0, half: 0, single: 1, doubt: true},
	{name: "adafactor", marks: []string{"adafactor"}, full: 0.01, half: 0.01, single: 2, doubt: true},
}

// Optimizers are the names of the optimizers whose bytes are known.
func Optimizers() []string {
	var names []string
	for _, o := range optimizers {
		names = append(names, o.name)
	}
	return names
}

// optimizerOf finds an optimizer by its name in a plan, or by the name of its class; an unknown
// one counts as Adam.
func optimizerOf(name string) optimizerCost {
	word := strings.ToLower(name)
	for _, matches := range []func(o optimizerCost) bool{
		func(o optimizerCost) bool { return o.name == word },
		func(o optimizerCost) bool {
			return slices.ContainsFunc(o.marks, func(mark string) bool { return strings.Contains(word, mark) })
		},
	} {
		if i := slices.IndexFunc(optimizers, matches); i >= 0 {
			return optimizers[i]
		}
	}
	return optimizers[0]
}

// states is its bytes for a parameter of a width, if the embedding has a share of the parameters.
func (o optimizerCost) states(width, embedding float64) float64 {
	each := o.full
	if o.half < o.full { // they follow the parameters' dtype
		each = o.full * width / 4
	}
	if share := math.Min(embedding, 1); o.embeddings {
		each = each*(1-share) + 8*share
	}
	return each
}

// A Rate is the bytes for each parameter on one device without sharding.
type Rate struct {
	Weights, Gradients, Master, States float64
	// Cast is the 16-bit copy that autocast keeps from the forward to the backward.
	Cast float64
}

// RateOf is the cost of a plan for each parameter. The sums are those of the published tables: 16
// in fp32, 18 with autocast (16 lasting, and its copy), 8 with weights and states in 16 bits, 16
// with DeepSpeed's fp32 master copy and 16-bit weights. DeepSpeed also makes that copy of weights
// in fp32, if it shards anything (stage_1_and_2.py clones each partition).
func RateOf(p RankPlan) Rate {
	o := optimizerOf(p.Optimizer)
	switch {
	case p.DeepSpeed && p.Compute == "fp32":
		r := Rate{Weights: 4, Gradients: 4, States: o.full}
		if stage(p) > 0 {
			r.Master = 4
		}
		return r
	case p.DeepSpeed:
		return Rate{Weights: 2, Gradients: 2, Master: 4, States: o.full}
	case p.Weights != "fp32":
		return Rate{Weights: 2, Gradients: 2, States: o.half}
	case p.Compute != "fp32":
		return Rate{Weights: 4, Gradients: 4, States: o.full, Cast: 2}
	}
	return Rate{Weights: 4, Gradients: 4, States: o.full}
}

// stage is the ZeRO stage of a plan; FSDP divides the same as the third.
func stage(p RankPlan) int {
	return map[string]int{"zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}[p.Sharding]
}

// share is a number of bytes a parameter on one of n ranks.
func share(parameters int64, each float64, n int) int64 {
	return ceil(float64(parameters) * each / float64(n))
}

// statesOf is the table's states of a model of which only the shape is known.
func statesOf(a Architecture, p RankPlan) states {
	r, o, all := RateOf(p), optimizerOf(p.Optimizer), float64(a.Parameters)
	whole := states{weights: r.Weights * all, gradients: r.Gradients * all, optimizer: r.States * all,
		step: r.Weights * all * o.moment}
	if p.StepInBackward { // the largest gradient, and its parameter's step
		largest := math.Min(float64(a.largest()), all)
		whole.gradients, whole.step = r.Gradients*largest, r.Weights*largest*o.moment
	}
	if o.embeddings {
		whole.optimizer += float64(min(a.embedding(), a.Parameters)) * (8 - o.full)
	}
	return whole.on(parameterCounts{all, all, float64(a.largest()), float64(a.block()), float64(a.outside())}, p)
}

// doubted is the bytes of a state that an optimizer may have and its name does not show.
func doubted(a Architecture, p RankPlan) int64 {
	if !optimizerOf(p.Optimizer).doubt || p.OffloadOptimizer != "none" {
		return 0
	}
	each, n := 4.0, 1
	if !p.DeepSpeed && p.Weights != "fp32" {
		each = 2
	}
	if stage(p) >= 1 {
		n = p.DataParallel
	}
	return share(a.Parameters, each, n)
}

// casts is the bytes of autocast's copies. Checkpointed blocks make their copies again one by
// one, and sharded weights are cast when they are gathered: then only the copies of the output
// stay.
func casts(a Architecture, p RankPlan) int64 {
	r := RateOf(p)
	switch {
	case r.Cast == 0:
		return 0
	case p.Checkpointing == "full" || stage(p) == 3:
		return share(min(a.embedding(), a.Parameters), r.Cast, 1)
	}
	return share(a.Parameters, r.Cast, 1)
}

// ceil is a number of bytes, rounded up.
func ceil(bytes float64) int64 { return int64(math.Ceil(bytes)) }

// activated is the bytes of activations on one device.
type activated struct {
	held   int64 // at the end of the forward, with the logits that the loss holds
	loss   int64 // more, for a moment, as the loss and its gradient are computed
	window int64 // while the last checkpointed block is computed again
	late   int64 // while the first block's gradients are computed
}

// recomputed is the share of a block that is held while a checkpointed one is computed again,
// with its gradients.
const recomputed = 1.5

// activations returns the activations of one micro batch, each times a factor. More samples,
// longer sequences and larger shapes never need less.
func activations(a Architecture, p RankPlan, factor float64) activated {
	m, seq := float64(p.MicroBatch), float64(p.Sequence)
	x := hidden(a, p) * m
	b := block(a, p) * m
	logits := 4 * seq * float64(a.Vocabulary) * m // in fp32, as the loss has them
	kept, late := b, recomputed*b
	switch p.Checkpointing {
	case "full":
		kept = x
	case "selective":
		kept = min(selected(a, p)*m, b)
	default:
		late = 0
	}
	blocks := float64(a.Layers) * kept
	if p.OffloadActivations != "none" {
		blocks = min(blocks, 2*kept) // one that is copied while the next is computed
	}
	head, temporary := headOfPlan(p)
	return activated{
		held:   ceil(factor * (blocks + x + head*logits)),
		loss:   ceil(factor * temporary * logits),
		window: ceil(factor * (blocks + x + late)),
		late:   ceil(factor * late),
	}
}

// headOfPlan is the bytes that head and loss hold, and need for a moment, in units of the logits in fp32.
func headOfPlan(p RankPlan) (held, temporary float64) {
	switch p.LossParts {
	case "fused":
		return 0, headFused
	case "chunked": // logits and their gradients in 16 bits, a part at a time in fp32
		return .5, .5 + headChunk
	}
	return headHeld, headTemporary
}

// selected is the bytes of one sample that selective checkpointing keeps of a block: its input, the output of
// the attention, and of every second matrix product (torchtitan's selective activation checkpointing by
// operation): the queries, the values, the first product inside, and the last. Megatron's selective checkpointing
// keeps more: it spares the scores of the attention only.
func selected(a Architecture, p RankPlan) float64 {
	each := 2.0
	if p.Compute == "fp32" {
		each = 4
	}
	products := a.queries() + a.keys() + a.Intermediate + a.Hidden
	if !a.Gated { // one product makes queries, keys and values
		products = a.queries() + 2*a.keys() + a.Intermediate
	}
	return each * float64(p.Sequence) * float64(products+a.queries()+a.Hidden)
}

// hidden is the bytes of one sample's hidden state.
func hidden(a Architecture, p RankPlan) float64 {
	each := stream(p)
	if p.DeepSpeed {
		each = computes(p)
	}
	return each * float64(p.Sequence) * float64(a.Hidden)
}

// Widths of the tensors that a block holds, relative to weights and activations in 16 bits. fp32
// is twice that; autocast keeps norms and softmax in fp32: measured 1.19 and 1.24, and 1.48 with
// an activation function of several operations.
const (
	wide             = 2.0
	autocastWide     = 1.25
	autocastComposed = 1.48
)

// eagerly is the factor by which a block of Llama's type in transformers exceeds its formula: its
// norms are in fp32, and activation and gate are held apart. Measured 1.13 (16 layers, 2048 wide)
// to 1.31 (Llama-3.1-8B), 1.65 with norms on queries and keys.
const eagerly = 1.25

// block is the bytes that one block holds of one sample for the backward, without checkpointing.
//
// With a gate, as in Llama: 2·s·[(5+2g)h + 2h + 4f] in 16 bits with a fused attention, g the
// share of keys and values. Without one: s·(18h + 4f), which is Korthikanti's 34·s·h for f = 4h
// ("Reducing Activation Recomputation in Large Transformer Models"); an activation function of
// several operations holds 6·s·f more. Attention that computes its scores holds, with dropout, 5 bytes of
// each in 16 bits and 9 in fp32 (the same paper), 7 under autocast as measured; without
// dropout, as in Llama, 4 in fp32 and 6 else. A block that is checkpointed selectively does not hold them.
func block(a Architecture, p RankPlan) float64 {
	seq, h, f := float64(p.Sequence), float64(a.Hidden), float64(a.Intermediate)
	scale, score := 1.0, 5.0
	switch {
	case p.Compute == "fp32":
		scale, score = wide, 9
	case autocast(p):
		scale, score = autocastWide, 7
	}
	held := 18*h + 4*f
	switch {
	case a.Gated:
		score = map[bool]float64{true: 4, false: 6}[p.Compute == "fp32"]
		held = eagerly * 2 * (5*h + 2*float64(a.keys()) + 2*float64(a.queries()) + 4*f)
	case a.Composed:
		held += 6 * f
		if scale == autocastWide {
			scale = autocastComposed
		}
	}
	scores := 0.0
	switch {
	case p.Checkpointing == "selective":
	case p.Attention == "eager":
		scores = score
	case p.Attention == "sdpa" && p.Compute == "fp32" && a.KVHeads < a.Heads:
		scores = score // PyTorch has no fused attention for grouped heads in fp32
	}
	return scale*seq*held + scores*float64(a.Heads)*seq*seq
}
