package memory

import (
	"math"
	"strings"
)

// vocabulary is the limit above which the widest module is the output of a language model.
const vocabulary = 8192

// model is the report of gpurun's hook about a landscape's model.
func (l *landscape) model() TrainedModel {
	h := l.head
	m := TrainedModel{Class: class(h), Parameters: h.Params, Trainable: h.Params, Outside: h.Outside, Convolutional: h.Conv,
		Bytes: map[string]int64{"float32": 4 * h.Params}, Cast: h.Params, CastOutside: h.Outside, Hidden: h.Hidden}
	if h.Vocab > vocabulary {
		table := h.Vocab * h.Hidden
		m.Vocabulary, m.Embedding = h.Vocab, table
		m.Largest = table
		if m.Tied = h.Outside < table*3/2; !m.Tied {
			m.Cast, m.CastOutside = h.Params-table, h.Outside-table
		}
	} else {
		m.Vocabulary = 4 * h.Hidden // a block's
	}
	sum := 0.
	for _, s := range l.stages() {
		sum += float64(s.count) * s.params
	}
	for i, s := range l.stages() {
		m.Blocks = append(m.Blocks, BlockList{Path: path(i), Class: blockClass(h), Count: s.count,
			Parameters: int64(float64(h.Params-h.Outside) * float64(s.count) * s.params / sum)})
	}
	return m
}

// A depth is a list of blocks, with the bytes that one of them holds, its input and its
// parameters in units of the first list's.
type depth struct {
	count               int
	holds, gets, params float64
}

// encoderDecoder reports whether a model has two lists, the second on a quarter of the tokens
// (landscape.py gives its labels a quarter of the sequence).
func encoderDecoder(h head) bool { return class(h) == "T5ForConditionalGeneration" }

// class is the class of a model by its name, for the models in the landscape.
func class(h head) string {
	switch {
	case h.Vocab <= vocabulary:
		return "VisionModel"
	case strings.Contains(h.Model, "bert"):
		return "BertForMaskedLM"
	case strings.HasPrefix(h.Model, "t5"), strings.Contains(h.Model, "bart"):
		return "T5ForConditionalGeneration"
	}
	return "ForCausalLM"
}

func blockClass(h head) string {
	if strings.Contains(h.Model, "resnet") {
		return "Bottleneck"
	}
	return "Block"
}

func path(i int) string { return "stages." + string(rune('0'+i)) }

// stages are the lists of a model. A convolutional net has its stages, each at half of the
// resolution of the one before and with twice its channels. An encoder-decoder has the two
// stacks, the decoder's blocks with a second attention. Other models have one list.
func (l *landscape) stages() []depth {
	h := l.head
	if encoderDecoder(h) {
		n := h.Blocks / 2
		if float64(h.Params-h.Outside) > 20*float64(h.Blocks)*float64(h.Hidden*h.Hidden) {
			n = h.Blocks // of one stack: a block has 12 to 16 times the square
		}
		share := l.targets(n)
		return []depth{{n, 1, 1, 1}, {n, share * 1.35, share, 1.33}}
	}
	if !h.Conv || h.Blocks < 6 {
		return []depth{{h.Blocks, 1, 1, 1}}
	}
	known := map[int][]int{8: {2, 2, 2, 2}, 16: {3, 4, 6, 3}, 18: {3, 3, 9, 3}, 33: {3, 4, 23, 3}, 36: {3, 3, 27, 3}, 50: {3, 8, 36, 3}}
	counts := known[h.Blocks]
	if counts == nil {
		first, second := max(h.Blocks/10, 1), max(h.Blocks/8, 1)
		counts = []int{first, second, h.Blocks - 2*first - second, first}
	}
	var all []depth
	for i, n := range counts {
		half := math.Exp2(-float64(i))
		all = append(all, depth{n, half, half, 1 / half / half})
	}
	return all
}

// targets is the ratio of a decoder's tokens to its encoder's, by the bytes that a sample adds to
// a forward with checkpointing: an input for each block, and the head.
func (l *landscape) targets(blocks int) float64 {
	small, ok := l.row(setting{4, 1, "fp32", "off", "full", "adamw", "sdpa"}, 1)
	large, also := l.row(setting{8, 1, "fp32", "off", "full", "adamw", "sdpa"}, 1)
	if !ok || !also {
		return .25
	}
	inputs := float64(blocks) * l.head.Input
	sample := float64(large.Forward-small.Forward) / 4
	return min(max((sample-inputs)/(inputs+1.2*4*float64(l.head.Vocab*l.head.Sequence)), .05), 2)
}

// headBytes is the part of a row's forward that the head and the loss hold, by the row of the
// same batch with checkpointing, which also holds a hidden state per block.
func (l *landscape) headBytes(s setting, static int64) float64 {
	if l.head.Vocab <= vocabulary {
		return 0
	}
	s.Ckpt = "full"
	r, ok := l.row(s, 1)
	x := l.input(s)
	if !ok || x == 0 {
		return headHeld * 4 * float64(l.head.Vocab*l.head.Sequence) * float64(s.Micro)
	}
	copies := 0.
	if s.Amp != "off" {
		copies = 2 * float64(l.model().CastOutside)
	}
	kept := 0.
	for _, g := range l.stages() {
		kept += x * g.gets * float64(g.count*s.Micro)
	}
	return math.Max(float64(r.Forward-static)-copies-kept, 0)
}

// input is a block's input for a sample.
func (l *landscape) input(s setting) float64 {
	return l.head.Input * width(s.Params) / 4
}

// convInput is the bytes that each checkpointed block of a convolutional net's first stage keeps
// for a sample: half of it in the next.
func (l *landscape) convInput(s setting, static int64) float64 {
	s.Ckpt = "full"
	r, ok := l.row(s, 1)
	if !ok {
		return 0
	}
	sum := 0.
	for _, g := range l.stages() {
		sum += float64(g.count) * g.gets
	}
	return .9 * float64(r.Forward-static) / float64(s.Micro) / sum // a tenth is the stem's
}

// stem is the part of a convolutional net's forward before its first stage: a tenth of the bytes
// held with checkpointing.
func (l *landscape) stem(s setting, static int64) float64 {
	s.Ckpt = "full"
	r, ok := l.row(s, 1)
	if !ok {
		return 0
	}
	return .1 * float64(r.Forward-static)
}

// marks are the bytes held when each block begins, up to a limit: those that were reached, and
// whether the last block ended.
func (l *landscape) marks(r row, limit float64) ([]Marks, bool) {
	static, m := float64(r.Static), float64(r.Micro)
	region := float64(r.Forward) - static - l.headBytes(r.setting, r.Static)
	if r.Amp != "off" && !l.head.Conv {
		region -= 2 * float64(l.model().CastOutside) * given(l.head.Vocab > vocabulary)
	}
	stages := l.stages()
	sum, held := 0., static
	if l.head.Conv {
		stem := l.stem(r.setting, r.Static)
		held += stem
		region -= stem
	}
	for _, g := range stages {
		sum += float64(g.count) * g.holds
	}
	var all []Marks
	for i, g := range stages {
		list := Marks{Path: path(i), Input: int64(l.input(r.setting) * m * g.gets)}
		if l.head.Conv {
			x := l.convInput(r.setting, r.Static) * m
			list.Input = int64(x / math.Exp2(math.Max(float64(i-1), 0)))
			if i == 0 && blockClass(l.head) == "Bottleneck" {
				list.Input = int64(x / 4)
			}
		}
		for range g.count {
			list.Bytes = append(list.Bytes, int64(held))
			if held += region * g.holds / sum; held > limit {
				return append(all, list), false
			}
		}
		list.After = int64(held)
		all = append(all, list)
	}
	return all, true
}

// seen is what gpurun's hook would measure of a plan that a cap ends: only the phases before the
// one that needs more than the cap.
func (l *landscape) seen(s setting, accum, cap int) (Measurement, bool) {
	one, ok := l.row(s, 1)
	two := one
	if accum > 1 {
		two, ok = l.row(s, accum)
	}
	if !ok {
		return Measurement{}, false
	}
	if one.Static == 0 {
		one = two // no row of one micro batch: the forward is the same
	}
	limit := float64(cap) / expandableRoom
	model := l.model()
	if s.Params != "fp32" {
		model.Bytes = map[string]int64{"bfloat16": int64(width(s.Params)) * model.Parameters}
	}
	m := Measurement{Plan: s.plan(accum), Model: &model, Batch: s.Micro, Optimizer: "AdamW", Calls: accum,
		Allowed: int64(cap), Total: 150 << 30, Failed: "load", Allocated: int64(limit), Start: one.Static}
	if s.Amp != "off" {
		m.Autocast = "bfloat16"
	}
	if limit < float64(one.Static) {
		return Measurement{Plan: m.Plan, Failed: "load", Allowed: int64(cap)}, true
	}
	var ended bool
	m.Failed, m.Launch = "forward", Launch{Forward: one.Launch.Cold, AtMost: true}
	if m.Marks, ended = l.marks(one, limit); !ended {
		return m, true
	}
	if m.Failed = "loss"; limit < float64(one.Forward) {
		return m, true
	}
	m.First.Forward = one.Forward
	if m.Failed = "backward"; limit < float64(one.Before) {
		return m, true
	}
	m.First.BackwardPeak = one.Before
	if accum > 1 {
		m.First.Micro, m.First.BackwardPeak = one.Before, 0
		if limit < float64(two.Before) {
			return m, true
		}
		m.First.BackwardPeak = two.Before
	}
	m.First.Before = 2 * one.Static
	if m.Failed = "optimizer"; limit < float64(two.Step1) {
		return m, true
	}
	m.States, m.First.OptimizerPeak, m.First.After = two.Step1-2*one.Static, two.Step1, two.Step1
	m.Failed = "backward" // of the second step
	return m, true
}
