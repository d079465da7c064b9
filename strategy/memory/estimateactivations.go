package memory

// activated are the bytes of activations on one device.
type activated struct {
	held   int64 // at the end of the forward, with the logits that the loss holds
	loss   int64 // more, for a moment, as the loss and its gradient are computed
	window int64 // while the last checkpointed block is computed again
	late   int64 // while the first block's gradients are computed
}

// recomputed is how much of a block is held while a checkpointed one is computed again,
// and its gradients with it.
const recomputed = 1.5

// activations are those of one micro batch, each times a factor. More samples, longer
// sequences and larger shapes never need less.
func activations(a Architecture, p RankPlan, factor float64) activated {
	m, seq := float64(p.MicroBatch), float64(p.Sequence)
	x := hidden(a, p) * m
	b := block(a, p) * m
	logits := 4 * seq * float64(a.Vocabulary) * m // in fp32, as the loss has them
	blocks := float64(a.Layers) * b
	late := 0.0
	if p.Checkpointing == "full" {
		blocks, late = float64(a.Layers)*x, recomputed*b
		if p.OffloadActivations != "none" {
			blocks = min(blocks, 2*x) // one that is copied while the next is computed
		}
	} else if p.OffloadActivations != "none" {
		blocks = min(blocks, 2*b)
	}
	return activated{
		held:   ceil(factor * (blocks + x + headHeld*logits)),
		loss:   ceil(factor * headTemporary * logits),
		window: ceil(factor * (blocks + x + late)),
		late:   ceil(factor * late),
	}
}

// hidden is the bytes of one sample's hidden state.
func hidden(a Architecture, p RankPlan) float64 {
	each := stream(p)
	if p.DeepSpeed {
		each = computes(p)
	}
	return each * float64(p.Sequence) * float64(a.Hidden)
}

// Widths of what a block holds, relative to weights and activations in 16 bits. fp32 is
// twice that; autocast keeps norms and softmax in fp32: measured 1.19 and 1.24, and 1.48 with
// an activation function of several operations.
const (
	wide             = 2.0
	autocastWide     = 1.25
	autocastComposed = 1.48
)

// eagerly is how much more a block of Llama's type holds than its formula says, as
// transformers compute it: its norms are in fp32, and activation and gate are held
// apart. Measured 1.13 (16 layers, 2048 wide) to 1.31 (Llama-3.1-8B), 1.65 with norms on
// queries and keys.
const eagerly = 1.25

// block is the bytes that one block holds of one sample for the backward, without checkpointing.
//
// With a gate, as in Llama: 2·s·[(5+2g)h + 2h + 4f] in 16 bits with a fused attention, g the
// share of keys and values. Without one: s·(18h + 4f), which is Korthikanti's 34·s·h for f = 4h
// ("Reducing Activation Recomputation in Large Transformer Models"); an activation function of
// several operations holds 6·s·f more. Attention that computes its scores holds, with dropout, 5 bytes of
// each in 16 bits and 9 in fp32 (the same paper), 7 under autocast as measured; without
// dropout, as in Llama, 4 in fp32 and 6 else. Selective checkpointing spares these.
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
