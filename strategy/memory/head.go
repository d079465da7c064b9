package memory

import (
	"math"
	"slices"
	"strings"
)

// logits is the bytes of one sample's logits in fp32; 0 if the model has no output as wide as a
// vocabulary, or its size is not known.
func (f *Predictor) logits(mode RankPlan) float64 {
	v, h := float64(f.model.Vocabulary), float64(f.model.Hidden)
	if v == 0 || h == 0 || f.model.Convolutional || f.model.Embedding == 0 || f.model.Outside > 0 &&
		float64(f.model.Outside) < .9*v*h {
		return 0 // the widest module is a block's
	}
	return v * 4 * f.tokens(mode)
}

// tokens is the number of tokens of a sample: by the input of the blocks that ran last, a hidden
// state for each token, or else by the sequence length.
func (f *Predictor) tokens(mode RankPlan) float64 {
	most := f.reached()
	for _, g := range f.sights {
		if len(g.lists) < most || most == 0 {
			continue
		}
		if n := g.lists[most-1].input; n > 0 && f.model.Hidden > 0 {
			return n / stream(g.plan) / float64(f.model.Hidden) * f.longer(mode)
		}
	}
	if mode.Sequence == 0 && most == 0 { // no lists of blocks
		return f.words
	}
	return float64(mode.Sequence)
}

// reached is the number of lists of blocks that a process reached.
func (f *Predictor) reached() int {
	most := 0
	for _, g := range f.sights {
		most = max(most, len(g.lists))
	}
	return most
}

// headPrior is the bytes that head and loss hold, and their temporary bytes, in units of the
// logits in fp32. transformers' causal language models compute the loss in fp32; others leave it
// in the dtype of the logits, or to autocast (landscape: BERT).
func (f *Predictor) headPrior(mode RankPlan) (held, temporary float64) {
	held, temporary = f.headWhole(mode)
	gradient := 1.
	switch {
	case mode.LossParts == "":
		return held, temporary
	case mode.LossParts == "fused":
		return 0, headFused
	case kindOf(mode) != "fp32": // logits and gradient have 16 bits; upcast.py converts a part at a time
		held, gradient = headHalf, .5
	}
	if f.lossInside() { // the gradient of the logits is made in the forward
		return held + gradient, 0
	}
	return held, gradient
}

// causal reports whether the model computes its loss in fp32, as transformers' causal language
// models do.
func (f *Predictor) causal() bool {
	class := f.model.Class
	return class == "" || strings.Contains(class, "CausalLM") || strings.Contains(class, "LMHead")
}

// headWhole is headPrior for a loss that is computed in one piece.
func (f *Predictor) headWhole(mode RankPlan) (held, temporary float64) {
	if f.causal() {
		return headHeld, headTemporary
	}
	switch kindOf(mode) {
	case "autocast":
		return 1.6, 1
	case "half":
		return .6, 1
	}
	if f.lossInside() {
		return 1.2, headTemporary
	}
	return 1.2, headTemporaryOutside
}

// lossInside reports whether the model computes its loss itself, as transformers' do, whose logits are let go then.
func (f *Predictor) lossInside() bool { return f.causal() || strings.Contains(f.model.Class, "For") }

// headOf computes the needs of head and loss: as measured in this kind of mode, or else by the
// prior, corrected by a measurement in another.
func (f *Predictor) headOf(s *modePeaks) {
	logits := f.logits(s.mode)
	held, temporary := f.headPrior(s.mode)
	s.head, s.temporary = held*logits, temporary*logits
	if s.mode.LossParts == "on" {
		s.pieces = 3 * logits // its log-softmax, the gradient of that, and the logits' in the same type
	}
	s.headMore = marginHead
	if autocast(s.mode) && logits > 0 && s.mode.Checkpointing == "full" {
		s.inside = headForward * logits
		if !f.causal() {
			s.inside = headForwardPlain * logits
		}
		if s.mode.LossParts != "" {
			s.inside = math.Max(held, headFused) * logits
		}
	}
	defer f.severalOf(s)
	for _, g := range f.sights {
		h, t := f.headPrior(g.plan)
		own, long := f.logits(g.plan), f.longer(s.mode)
		near := kindOf(g.plan) == kindOf(s.mode) && g.plan.LossParts == s.mode.LossParts
		switch {
		case g.headSeen && near:
			s.head = g.head * long
			if !g.temporarySeen { // a loss outside of the model holds its part after the forward
				s.temporary = math.Max(s.temporary, (held+temporary)*logits-s.head)
			}
		case g.headSeen && own > 0:
			s.head *= math.Min(math.Max(g.head/(h*own), .1), 3)
		case g.headSeen:
			s.head = math.Max(s.head, g.head*long)
		}
		switch {
		case g.temporarySeen && near && (g.plan.Checkpointing == s.mode.Checkpointing || logits > 0):
			s.temporary, s.pieces = g.temporary*long, 0
		case g.temporarySeen && own > 0:
			s.temporary *= math.Min(math.Max(g.temporary/(t*own), .1), 3)
		}
		if g.headSeen || g.temporarySeen {
			return // the sights are in order: the first has the most information
		}
	}
}

// unseenHead adds to the bound where no process has reached a loss that autocast computes: how models
// outside of transformers compute it from logits differs.
func (f *Predictor) unseenHead(s *modePeaks) {
	seen := slices.ContainsFunc(f.sights, func(g sight) bool { return g.temporarySeen })
	if !seen && autocast(s.mode) && !f.lossInside() {
		s.lossMore = marginHeadUnseen
	}
}

// severalOf adds the graphs of two derivatives if no process has measured them to their end.
func (f *Predictor) severalOf(s *modePeaks) {
	for _, g := range f.sights {
		if g.temporarySeen && g.plan.Checkpointing != "full" && kindOf(g.plan) == kindOf(s.mode) {
			return
		}
	}
	if f.twice {
		s.temporary = math.Max(s.temporary, twiceHeld*s.blocks)
		s.lossMore = twiceHeldMore
	}
}

// sameMode replaces the blocks' sum by all bytes that a forward of this mode held.
func (f *Predictor) sameMode(s *modePeaks) {
	for _, g := range f.sights {
		if !g.heldSeen || g.plan.Checkpointing != s.mode.Checkpointing || kindOf(g.plan) != kindOf(s.mode) ||
			g.plan.Weights != s.mode.Weights || g.plan.Attention != s.mode.Attention || g.plan.Sharding != s.mode.Sharding ||
			g.plan.OffloadActivations != s.mode.OffloadActivations {
			continue
		}
		held := g.held * f.longer(s.mode)
		if g.headSeen {
			held -= g.head * f.longer(s.mode)
		} else {
			s.head = math.Min(s.head, .5*held)
			held -= s.head
		}
		scale := held / math.Max(s.blocks, 1)
		for i := range s.windows {
			s.windows[i].held *= scale
		}
		s.blocks, s.blocksMore, s.evidence = held, marginSame, "same mode"
		s.headMore = s.blocksMore
		return
	}
}

// lateOf computes the need of the end of the backward in addition to weights and gradients: the
// embedding's gradient is the last. It exists twice before it is added to the output's if both
// are one parameter, or converted (landscape: 2, or 1 under autocast, else 0–1).
func (f *Predictor) lateOf(s *modePeaks) {
	s.again = s.largest
	if f.logits(s.mode) == 0 {
		return
	}
	if s.late = s.largest; f.model.Tied {
		s.late *= 2
	}
	if stage(s.mode) == 3 {
		s.late /= float64(max(s.mode.DataParallel, 1))
	}
}
