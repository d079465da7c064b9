package memory

import (
	"math"
	"slices"
	"strings"
)

// kindLists are the lists of blocks, with the bytes that a block of each holds for a sample.
type kindLists struct {
	lists    []kindList
	stem     float64
	more     float64 // the bound's fraction over all lists
	evidence string
	unknown  string
}

type kindList struct {
	count, parameters float64
	// each is held by a block without checkpointing, most by the largest; input is its input.
	// keeps is its output, gap what the model holds between it and the next; both are held with
	// checkpointing, too.
	each, most, input, keeps, gap float64
	more                          float64 // the bound's fraction
	seen                          bool
}

// A source is a sight with the conversion of its blocks' bytes to those of another mode.
type source struct {
	sight    sight
	ratio    float64
	more     float64
	evidence string
}

// source finds the sight with the most information about the blocks of a mode.
func (f *Predictor) source(mode RankPlan) (source, bool) {
	best, found := source{}, false
	for _, g := range f.sights {
		if g.plan.Checkpointing == "full" || g.plan.Checkpointing == "selective" || g.plan.OffloadActivations == "cpu" ||
			!slices.ContainsFunc(g.lists, func(l listSight) bool { return l.seen > 0 }) {
			continue
		}
		s := f.translate(g, mode)
		if !found || s.more < best.more {
			best, found = s, true
		}
	}
	return best, found
}

// translate converts the bytes that a sight's blocks hold to those of another mode.
func (f *Predictor) translate(g sight, mode RankPlan) source {
	s := source{sight: g, ratio: 1, evidence: "blocks seen"}
	if g.plan.Attention != mode.Attention && (g.plan.Attention == "eager" || mode.Attention == "eager") {
		s.evidence = "other attention"
		if mode.Attention == "eager" {
			s.ratio, s.more = 1/fusedAttentionBlock, 1
		} else {
			most := fusedFallbackHalf
			if computes(mode) == 4 {
				most = fusedFallback
			}
			s.ratio, s.more = fusedAttentionBlock, fusedDoubt*(most/fusedAttentionBlock-1)
		}
	}
	if from, to := kindOf(g.plan), kindOf(mode); from != to {
		ratio, sd := precisionRatio(from, to)
		s.evidence = "other precision"
		s.ratio *= ratio
		s.more += .5 * sd / ratio
	}
	if g.plan.Sharding == "fsdp" && mode.Sharding != "fsdp" {
		s.more += marginStream
	}
	return s
}

// computes is the bytes of an element of the activations.
func computes(p RankPlan) float64 {
	if p.Compute == "" {
		return width(p.Weights)
	}
	return width(p.Compute)
}

// stream is the bytes of an element of the hidden state between blocks: autocast adds up in the
// weights' dtype, FSDP's mixed precision casts a module's inputs to its own.
func stream(p RankPlan) float64 {
	if p.Sharding == "fsdp" {
		return computes(p)
	}
	return width(p.Weights)
}

// kindOf is fp32, autocast or half, which decides the bytes of a block's activations.
func kindOf(p RankPlan) string {
	switch {
	case autocast(p):
		return "autocast"
	case computes(p) < 4:
		return "half"
	}
	return "fp32"
}

// precisionRatio is the ratio of a block's bytes in two kinds, and its deviation.
func precisionRatio(from, to string) (ratio, sd float64) {
	rel := map[string]float64{"fp32": 1, "autocast": autocastBlock, "half": halfBlock}
	sd = autocastBlockSD
	if from != "fp32" && to == "fp32" {
		sd = .8 // fp32 attention may keep its scores
	}
	return rel[to] / rel[from], sd
}

// lists computes the blocks of a mode.
func (f *Predictor) lists(mode RankPlan) kindLists {
	src, ok := f.source(mode)
	input, seen := f.inputs(mode)
	if !ok {
		return f.unseenLists(mode, input, seen)
	}
	out := kindLists{stem: src.sight.stem * stream(mode) / stream(src.sight.plan), evidence: src.evidence}
	long := f.longer(mode)
	out.stem *= long
	before := kindList{}
	for _, b := range f.ordered(src.sight) {
		l := kindList{count: float64(b.Count), parameters: float64(b.Parameters)}
		g, at := listSight{}, slices.IndexFunc(src.sight.lists, func(l listSight) bool { return l.path == b.Path })
		if at >= 0 {
			g = src.sight.lists[at]
		}
		l.input = input[b.Path] * long
		switch {
		case g.seen > 0:
			l.each = g.each * src.ratio * long
			l.more, l.seen = src.more+seenMargin(g.seen, b.Count), true
			l.gap, l.keeps = g.gap*src.ratio*long, g.keeps*long*stream(mode)/stream(src.sight.plan)
			l.most = l.each * math.Max(g.most/math.Max(g.each, 1), 1)
		default:
			l = f.unreached(l, before, out.lists)
			l.more += src.more
		}
		if l.input == 0 {
			l.input = before.input
		}
		if l.input == 0 {
			l.input = l.each / blockInputs
		}
		l.each = math.Max(l.each, l.input)
		l.most = math.Max(l.most, l.each)
		before = l
		out.lists = append(out.lists, l)
	}
	out.more = totalMore(out.lists)
	return out
}

// seenMargin is the margin for a list of which seen blocks were seen.
func seenMargin(seen, count int) float64 {
	switch {
	case seen >= count:
		return marginSeen
	case seen >= 2:
		return marginPart
	}
	return marginOne
}

// totalMore is the bound's fraction over lists by their bytes.
func totalMore(lists []kindList) float64 {
	sum, all := 0., 0.
	for _, l := range lists {
		sum += l.count * l.each * l.more
		all += l.count * l.each
	}
	return sum / math.Max(all, 1)
}

// unreached estimates a list that was not reached from the one before it. In a convolutional net
// resolution halves where channels double: a block then has four times the parameters and half
// the bytes. Where blocks are narrower again, it is unknown on how many tokens, or at which
// resolution, they work.
func (f *Predictor) unreached(l, before kindList, seen []kindList) kindList {
	l.each = before.each
	switch {
	case l.input > 0 && before.input > 0 && !f.model.Convolutional: // a process with checkpointing has reached it
		l.each *= l.input / before.input
		l.more = marginUnreached / 2
		return l
	case l.width() < narrowerList*before.width():
		before = l.nearest(seen, before)
		l.each, l.more = before.each*returningList, returningMore
		l.keeps, l.gap = l.each*returningKeeps, before.gap
	case f.model.Convolutional:
		if l.width() > 0 && before.width() > 0 {
			l.each *= math.Min(before.width()/l.width(), 1)
		}
		l.more = marginUnreached
	default:
		l.more = marginUnreached
	}
	if l.input == 0 && before.each > 0 {
		l.input = before.input * l.each / before.each
	}
	return l
}

// width is in proportion to the width of the list's blocks: the parameters of one grow with its
// square.
func (l kindList) width() float64 { return math.Sqrt(l.parameters / math.Max(l.count, 1)) }

// nearest is the list of those that were seen whose blocks are nearest in width.
func (l kindList) nearest(all []kindList, best kindList) kindList {
	apart := func(o kindList) float64 {
		return math.Abs(math.Log(math.Max(o.width(), 1e-9) / math.Max(l.width(), 1e-9)))
	}
	for _, o := range all {
		if o.seen && apart(o) < apart(best) {
			best = o
		}
	}
	return best
}

// ordered returns the model's lists: first those that a sight saw, in its order.
func (f *Predictor) ordered(g sight) []BlockList {
	blocks := slices.Clone(f.model.Blocks)
	if len(blocks) == 0 {
		for _, l := range g.lists {
			blocks = append(blocks, BlockList{Path: l.path, Count: max(l.seen, 1)})
		}
	}
	at := func(b BlockList) int {
		i := slices.IndexFunc(g.lists, func(l listSight) bool { return l.path == b.Path })
		if i < 0 {
			return len(g.lists)
		}
		return i
	}
	slices.SortStableFunc(blocks, func(a, b BlockList) int { return at(a) - at(b) })
	return blocks
}

// inputs are the bytes of a block's input for a sample, by list, in a mode. A hidden state
// has the dtype of the weights, also under autocast (frameworks: the embedding's output).
func (f *Predictor) inputs(mode RankPlan) (map[string]float64, bool) {
	out, seen := map[string]float64{}, false
	for _, g := range f.sights {
		for i, l := range g.lists {
			if l.input > 0 && out[l.path] == 0 {
				out[l.path], seen = f.inside(g, i)*stream(mode)/stream(g.plan), true
			}
		}
	}
	return out, seen
}

// inside is the input of a list's blocks after the first. If stages differ, that is the next
// stage's input, or half of this stage's; a bottleneck's stage begins with a quarter of its
// channels (ResNet's expansion).
func (f *Predictor) inside(g sight, i int) float64 {
	own := g.lists[i].input
	switch {
	case !f.model.Convolutional || len(f.model.Blocks) < 2:
		return own
	case i+1 < len(g.lists) && g.lists[i+1].input > 0:
		return g.lists[i+1].input
	case i > 0:
		return own / 2
	}
	for _, b := range f.model.Blocks {
		if b.Path == g.lists[i].path && strings.Contains(b.Class, "Bottleneck") {
			return 4 * own
		}
	}
	return own
}

// longer is the ratio of a mode's sequence length to the one that was seen.
func (f *Predictor) longer(mode RankPlan) float64 {
	if mode.Sequence == 0 {
		return 1
	}
	for _, g := range f.sights {
		if g.plan.Sequence > 0 {
			return float64(mode.Sequence) / float64(g.plan.Sequence)
		}
	}
	return 1
}

// unseenLists estimates the blocks by their inputs, if none was seen without checkpointing.
func (f *Predictor) unseenLists(mode RankPlan, input map[string]float64, seen bool) kindLists {
	if !seen || len(f.model.Blocks) == 0 {
		return f.wholeForward(mode)
	}
	out := kindLists{evidence: "prior", more: marginPrior}
	before := kindList{}
	for _, b := range f.model.Blocks {
		l := kindList{count: float64(b.Count), parameters: float64(b.Parameters), input: input[b.Path] * f.longer(mode),
			more: marginPrior}
		if l.input == 0 {
			l = f.unreached(l, before, nil)
			l.more = marginPrior
		} else {
			l.each = l.input * blockInputs
			if autocast(mode) { // activations in 16 bit, inputs in fp32
				l.each *= autocastBlock
			}
		}
		if l.input == 0 {
			l.input = l.each / blockInputs
		}
		before = l
		out.lists = append(out.lists, l)
	}
	out.recomputed(f.window(mode))
	return out
}

// window is the bytes of a sample that the backward of recomputed blocks needed in addition to those
// that were held, in the kind of a mode; 0: not seen.
func (f *Predictor) window(mode RankPlan) (most float64) {
	for _, g := range f.sights {
		if !f.twice && g.plan.Checkpointing == "full" && kindOf(g.plan) == kindOf(mode) {
			most = math.Max(most, g.window/windowFactor(g.plan))
		}
	}
	return most * f.longer(mode)
}

// recomputed corrects lists that were seen with checkpointing only by the need of the largest block,
// whose recomputation was measured.
func (k *kindLists) recomputed(largest float64) {
	most := 1.
	for _, l := range k.lists {
		most = math.Max(most, l.each)
	}
	for i := range k.lists {
		k.lists[i].each *= math.Max(largest/most, 1)
		k.lists[i].most = k.lists[i].each
	}
}

// wholeForward treats all bytes that a forward held as one block, if no list is known.
func (f *Predictor) wholeForward(mode RankPlan) kindLists {
	for _, g := range f.sights {
		if !g.heldSeen || g.plan.Checkpointing == "full" {
			continue
		}
		s := f.translate(g, mode)
		l := kindList{count: 1, parameters: float64(f.model.Parameters), each: g.held * s.ratio * f.longer(mode),
			more: s.more + marginSame}
		l.input, l.most = l.each, l.each // it is not known what checkpointing would keep
		return kindLists{lists: []kindList{l}, more: l.more, evidence: s.evidence}
	}
	return kindLists{unknown: "the memory of the model's blocks was not measured"}
}
