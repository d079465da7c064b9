package memory

import "math"

// modePeaks has all figures of a mode that do not depend on its batches: the needs of the phases
// as lines in the micro batch.
type modePeaks struct {
	unknown, evidence string
	mode              RankPlan
	states            states
	base              float64 // held before the model
	copies, most      float64 // autocast's, at the end of the forward and inside it
	// For a sample: held by stem and blocks, by the head, for the loss's backward, the most
	// inside the forward in addition to the blocks.
	blocks, head, temporary, inside float64
	// pieces is the bytes for a sample of all parts of a loss that is computed in parts.
	pieces     float64
	windows    []window
	workspace  float64 // bytes that kernels need in the backward
	linger     bool    // gradients are held until after the forward
	kept       bool    // gradients are held in all phases
	together   bool    // the model is called several times for one loss
	largest    float64 // the largest gradient
	late       float64 // bytes at the end of the backward
	again      float64 // the last gradient in addition to the one that it is added to
	offloaded  float64 // a sample's bytes that go to the host
	evaluation float64
	// Fractions that the bound adds.
	blocksMore, headMore, lossMore, windowMore, baseMore, statesMore float64
	anchors                                                          []anchor
	// the bound's factor by earlier ones that were too low; 0: none
	wider float64
	clock stepClock
}

// A window is a moment of the backward: the bytes held for a sample then, with the block that
// runs, and the share of the gradients that exist by then; and the bytes of that block's 16-bit
// weights and gradients under autocast.
type window struct{ held, block, gradients, weights float64 }

// shape computes a mode. Neighbouring candidates mostly share one.
func (f *Predictor) shape(p *RankPlan) *modePeaks {
	key := modeOf(*p)
	if f.last != nil && key == f.lastPlan {
		return f.last
	}
	s := f.shapes[key]
	if s == nil {
		s = f.newShape(key)
		f.shapes[key] = s
	}
	f.lastPlan, f.last = key, s
	return s
}

// newShape computes a mode for the first time.
func (f *Predictor) newShape(mode RankPlan) *modePeaks {
	s := &modePeaks{mode: mode, states: f.states(mode), base: f.base, linger: f.linger, kept: f.kept,
		together: f.together, largest: float64(f.model.Largest) * width(mode.Weights)}
	if f.twice { // the graph of the first derivative holds what recomputed blocks compute
		s.mode.Checkpointing = "none"
	}
	switch {
	case f.unknown != "":
		s.unknown = f.unknown
	case mode.Sharding == "fsdp" && mode.DataParallel < 1:
		s.unknown = "the number of ranks that share the model is not known"
	}
	if s.unknown != "" {
		return s
	}
	s.copies, s.most = f.copies(mode)
	s.baseMore, s.statesMore = marginBase, 0
	if s.states.sharded && !f.ranSharded(mode) {
		s.statesMore = marginSharded
	}
	if f.device.CPU {
		s.baseMore = marginHost
	}
	if !f.device.CPU {
		s.workspace = workspace
	}
	f.activations(s)
	if s.unknown != "" {
		return s
	}
	for _, g := range f.sights {
		if g.evaluation > 0 {
			s.evaluation = math.Max(s.evaluation, g.evaluation)
		}
	}
	for _, a := range f.anchors {
		if a.mode == mode {
			s.anchors = append(s.anchors, a)
		}
	}
	s.wider = f.wider
	s.clock = f.clock(mode, s)
	return s
}

// ranSharded reports whether a process ran with the mode's sharding and offload.
func (f *Predictor) ranSharded(mode RankPlan) bool {
	for _, s := range f.sights {
		if s.heldSeen && s.plan.Sharding == mode.Sharding && s.plan.DataParallel == mode.DataParallel &&
			s.plan.OffloadOptimizer == mode.OffloadOptimizer && s.plan.OffloadParam == mode.OffloadParam {
			return true
		}
	}
	return false
}

// activations computes the needs of a sample.
func (f *Predictor) activations(s *modePeaks) {
	kinds := f.lists(s.mode)
	if kinds.unknown != "" {
		s.unknown = kinds.unknown
		return
	}
	s.evidence = kinds.evidence
	full := s.mode.Checkpointing == "full"
	held, sum := kinds.stem, 0.
	for _, l := range kinds.lists {
		h := l.held(s.mode) + l.gap
		held += h * l.count
		sum += h * l.count * l.more
	}
	s.blocks, s.blocksMore = held, sum/math.Max(held, 1)
	if full {
		s.blocksMore = marginCheckpoint + kinds.more/4
	}
	if s.mode.Checkpointing == "selective" {
		s.blocksMore = math.Max(s.blocksMore, 1/selectiveHeld-1)
	}
	f.windowsOf(s, kinds)
	f.headOf(s)
	f.unseenHead(s)
	f.sameMode(s)
	f.lateOf(s)
	f.offloadActivations(s, full)
	doublings := math.Abs(math.Log2(f.longer(s.mode)))
	if s.mode.Attention == "eager" {
		doublings *= 3 // the share of scores in a block is not known
	}
	s.blocksMore += marginLonger * doublings
}

// windowsOf computes the moments of the backward at the beginning and end of each list.
func (f *Predictor) windowsOf(s *modePeaks, kinds kindLists) {
	full := s.mode.Checkpointing == "full"
	all := math.Max(float64(f.model.Parameters), 1)
	after := float64(f.model.Outside) / 2 / all // the head's gradients exist
	s.windowMore = marginWindow + kinds.more
	held := s.blocks
	for i := len(kinds.lists) - 1; i >= 0; i-- {
		l := kinds.lists[i]
		h, block := l.held(s.mode)+l.gap, l.most*backwardFactor
		if kindOf(s.mode) != "fp32" {
			block = l.most * backwardFactorHalf
		}
		if full {
			block = l.most * windowFactor(s.mode)
		}
		weights := 0.
		if full && autocast(s.mode) {
			weights = 2 * 2 * l.parameters / max(l.count, 1)
		}
		s.windows = append(s.windows, window{held, block, after, weights})
		held -= h * math.Max(l.count-1, 0)
		after += l.parameters / all // the first block's come while it runs
		s.windows = append(s.windows, window{math.Max(held, 0), block, min(after, 1), weights})
		held -= h
	}
}

// held is the bytes that a block holds for its backward.
func (l kindList) held(mode RankPlan) float64 {
	keeps := l.input
	if l.keeps > 0 {
		keeps = l.keeps
	}
	switch mode.Checkpointing {
	case "full":
		return math.Min(keeps, math.Max(l.each, keeps*.1))
	case "selective":
		return math.Max(l.each*selectiveHeld, keeps)
	}
	return l.each
}

// windowFactor is the need of a block's recomputation in units of the bytes that it holds.
func windowFactor(mode RankPlan) float64 {
	if kindOf(mode) != "fp32" {
		return windowHalf
	}
	return windowFull
}

// offloadActivations moves the activations of blocks to the host, except the share of two blocks.
func (f *Predictor) offloadActivations(s *modePeaks, full bool) {
	if s.mode.OffloadActivations != "cpu" {
		return
	}
	stays, most := offloadedHeld, .5*(1+offloadedHeld)
	if full && len(s.windows) > 0 {
		stays, most = .1, .55
	}
	s.offloaded = s.blocks * (1 - stays)
	s.blocksMore += most/stays - 1
	s.blocks *= stays
	for i := range s.windows {
		s.windows[i].held *= stays
	}
}
