package memory

import (
	"math"
	"slices"
	"strings"
)

// An optimizerCost is what an optimizer holds: bytes for each parameter with states in fp32
// and with states that follow 16-bit weights, and what its step needs for a moment, as a
// share of the weights' bytes.
type optimizerCost struct {
	name string
	// marks are what names of its classes have in them, in lower case.
	marks      []string
	full, half float64
	moment     float64
	// embeddings: those keep states in fp32, whatever the rest has. doubt says that there may be one more
	// state, which its name does not show: momentum of SGD, the first moment of Adafactor.
	embeddings, doubt bool
}

// optimizers are those that plans name. Adam has two states. torch's own step takes the
// foreach implementation by default, which needs the weights' bytes once more ("~ sizeof(params)
// more peak memory", torch.optim); the fused one does not. 8-bit states are a byte each and a
// scale in fp32 for 256 of them (bitsandbytes); those of embeddings stay in fp32. Adafactor
// without a first moment, as transformers call it, holds rows and columns only; with one it
// is 4 bytes and a little.
var optimizers = []optimizerCost{
	{name: "adamw", full: 8, half: 4, moment: 1},
	{name: "adam", full: 8, half: 4, moment: 1},
	{name: "adamw-fused", full: 8, half: 4},
	{name: "adamw-8bit", marks: []string{"8bit", "8-bit"}, full: 2 + 2*4.0/256, half: 2 + 2*4.0/256, embeddings: true},
	{name: "paged-adamw-8bit", full: 2 + 2*4.0/256, half: 2 + 2*4.0/256, embeddings: true},
	{name: "adamw-4bit", full: 1 + 2*4.0/128, half: 1 + 2*4.0/128},
	{name: "lion", marks: []string{"lion"}, full: 4, half: 2},
	{name: "momentum", marks: []string{"adagrad", "rmsprop", "muon"}, full: 4, half: 2},
	{name: "sgd", marks: []string{"sgd"}, full: 0, half: 0, doubt: true},
	{name: "adafactor", marks: []string{"adafactor"}, full: 0.01, half: 0.01, doubt: true},
}

// Optimizers are the names of the optimizers whose bytes are known.
func Optimizers() []string {
	var names []string
	for _, o := range optimizers {
		names = append(names, o.name)
	}
	return names
}

// optimizerOf is an optimizer by its name in a plan, or by that of its class; an unknown one
// counts as Adam.
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

// states are its bytes for a parameter of a width, of which a share is the embedding's.
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

// A Rate is bytes for each parameter on one device without sharding.
type Rate struct {
	Weights, Gradients, Master, States float64
	// Cast is the 16-bit copy that autocast keeps from the forward to the backward.
	Cast float64
}

// RateOf is what a plan costs for each parameter. The sums are those of the published
// tables: 16 in fp32, 18 with autocast (16 lasting, and its copy), 8 with weights and states in 16
// bits, 16 with DeepSpeed's fp32 master copy and 16-bit weights. DeepSpeed makes that copy
// also of weights in fp32, where it shards anything (stage_1_and_2.py clones each partition).
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

// statesOf are the bytes of weights, gradients and optimizer on one device: ZeRO's table, with
// the optimizer divided from stage 1 on, gradients from 2 and weights from 3. What is
// offloaded is not there; with the optimizer on the host, the gradients of stages 2 and 3
// go there bucket by bucket.
func statesOf(a Architecture, p RankPlan) (weights, gradients, optimizer int64) {
	r, n := RateOf(p), p.DataParallel
	parts := func(from int) int {
		if stage(p) >= from {
			return n
		}
		return 1
	}
	weights = share(a.Parameters, r.Weights, parts(3))
	gradients = share(a.Parameters, r.Gradients, parts(2))
	optimizer = share(a.Parameters, r.Master+r.States, parts(1))
	if o := optimizerOf(p.Optimizer); o.embeddings {
		optimizer += share(min(a.embedding(), a.Parameters), 8-o.full, parts(1))
	}
	if p.OffloadParam != "none" {
		weights = 0
	}
	if p.OffloadOptimizer != "none" {
		optimizer = 0
		if stage(p) >= 2 {
			gradients = 0
		}
	}
	return weights, gradients, optimizer
}

// doubted are the bytes of a state that an optimizer may have and its name does not show.
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

// casts are the bytes of autocast's copies. Checkpointed blocks make theirs anew one by one,
// and sharded weights are cast as they are gathered: then only those of the output stay.
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
