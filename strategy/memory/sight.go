package memory

import (
	"math"
	"slices"
)

// A sight has the information of one measurement about the activations of its mode, in bytes per
// sample.
type sight struct {
	plan RankPlan
	// lists are by the model's lists of blocks, in the order in which they ran.
	lists []listSight
	// stem is the bytes held when the first block begins, less those held before.
	stem float64
	// held is all bytes held when the first forward has ended; head the part outside the blocks,
	// if the end of the blocks was also seen.
	held, head         float64
	heldSeen, headSeen bool
	// temporary is the additional need of the loss's backward.
	temporary     float64
	temporarySeen bool
	// window is the need of the backward in addition to held, if blocks are recomputed.
	window float64
	// states are the optimizer's bytes on the device. stateless: it stepped, and has none.
	states                 float64
	stateless              bool
	foreach, optimizerSeen bool
	class                  string // the optimizer's
	micro                  float64
	// evaluation is a call's bytes for a sample without gradients.
	evaluation float64
}

// A listSight has the observations of one list of blocks.
type listSight struct {
	path string
	// each is the bytes that a block holds for a sample, by the blocks that were seen to end;
	// most is the same of the largest. gap is the bytes that the model holds between a block and
	// the next, keeps those of a block's output.
	each, most, gap, keeps float64
	seen                   int
	// input is the bytes of a block's input for a sample.
	input float64
}

// rank orders sights of one mode: more observations are better.
func (s sight) rank() float64 {
	r := 0.
	for _, l := range s.lists {
		r += math.Min(float64(l.seen), 100)
	}
	if s.heldSeen {
		r += 1000
	}
	if s.headSeen {
		r += 1000
	}
	if s.temporarySeen {
		r += 1000
	}
	return r + math.Min(s.micro, 1000)/1000
}

// longestOf is the number of elements of the longest input for each sample.
func longestOf(m Measurement) float64 {
	if m.Batch == 0 {
		return 0
	}
	n := float64(m.Longest) / float64(m.Batch)
	for _, s := range []StepMemory{m.First, m.Second, m.Longer} {
		n = math.Max(n, float64(s.Longest)/float64(m.Batch))
	}
	return n
}

// stretch is the ratio of the longest possible input of this job to those of the measured steps.
func (f *Predictor) stretch(m Measurement) float64 {
	own := float64(m.Longest) / float64(max(m.Batch, 1))
	if m.First.Longest > 0 {
		own = float64(m.First.Longest) / float64(max(m.Batch, 1))
	}
	if own <= 0 || f.longest <= own {
		return 1
	}
	return f.longest / own
}

// sight reads a measurement; false if it shows nothing about activations.
func (f *Predictor) sight(m Measurement) (sight, bool) {
	s := sight{plan: m.Plan, micro: float64(m.Batch)}
	s.plan.Compute = computeOf(m)
	if m.Optimizer != "" {
		s.optimizerSeen, s.foreach, s.class = true, m.Foreach, m.Optimizer
	}
	s.states = float64(m.States)
	s.stateless = f.stateless(m)
	if m.Evaluation > 0 && m.EvaluationBatch > 0 && m.Start > 0 {
		s.evaluation = math.Max(float64(m.Evaluation-m.Start), 0) / float64(m.EvaluationBatch)
	}
	if s.micro <= 0 || m.Start <= 0 {
		return s, s.states > 0 || s.optimizerSeen
	}
	each := f.stretch(m) / s.micro * float64(m.together())
	marks := slices.Clone(m.Marks)
	marks = slices.DeleteFunc(marks, func(l Marks) bool { return len(l.Bytes) == 0 })
	slices.SortStableFunc(marks, func(a, b Marks) int { return int(min(max(a.Bytes[0]-b.Bytes[0], -1), 1)) })
	for i, l := range marks {
		next := int64(0)
		if i+1 < len(marks) {
			next = marks[i+1].Bytes[0]
		}
		list := f.list(m, s.plan, l, next, each)
		list.most /= float64(m.together()) // the blocks of one call run at a time
		s.lists = append(s.lists, list)
	}
	if len(marks) > 0 {
		s.stem = math.Max(float64(marks[0].Bytes[0])-float64(m.Start), 0) * each
	}
	f.ends(&s, m, marks, each)
	return s, true
}

// stateless reports whether the optimizer was seen to step and to keep no state.
func (f *Predictor) stateless(m Measurement) bool {
	onDevice := m.Plan.OffloadOptimizer == "" || m.Plan.OffloadOptimizer == "none"
	return onDevice && m.States == 0 && m.First.Before > 0 && m.First.After > 0 &&
		float64(m.First.After-m.First.Before) < .25*f.weights(m.Plan)
}

// computeOf is the dtype of the activations in the measured run.
func computeOf(m Measurement) string {
	if m.Autocast != "" {
		return Dtype(m.Autocast)
	}
	if m.Plan.Compute != "" {
		return m.Plan.Compute
	}
	return m.Plan.Weights
}

// list reads the marks of one list. next is the bytes held when the next list began, if one did.
// The copies that autocast makes of a block's weights are not activations.
func (f *Predictor) list(m Measurement, p RankPlan, l Marks, next int64, each float64) listSight {
	out := listSight{path: l.Path, input: float64(l.Input) * each}
	count, copies := 0, 0.
	for _, b := range f.model.Blocks {
		if b.Path == l.Path {
			count = b.Count
			if copied(p) && p.Checkpointing != "full" {
				copies = 2 * float64(b.Parameters) / math.Max(float64(b.Count), 1)
			}
		}
	}
	last, n := l.Bytes[len(l.Bytes)-1], len(l.Bytes)-1
	if end := max(l.After, next); end > 0 && (count == 0 || n+1 >= count) {
		last, n = end, n+1
	}
	out.seen = n
	if len(l.Ends) > 0 {
		out.read(l, next, copies, each)
		return out
	}
	if n > 0 {
		out.each = math.Max(float64(last-l.Bytes[0])/float64(n)-copies, 0) * each
		return out
	}
	return out
}

// read reads marks that have the ends of blocks.
func (s *listSight) read(l Marks, next int64, copies, each float64) {
	own, gaps, outputs, n := 0., 0., 0., min(len(l.Ends), len(l.Bytes))
	for i, end := range l.Ends[:n] {
		held := math.Max(float64(end-l.Bytes[i])-copies, 0)
		own, s.most = own+held, math.Max(s.most, held*each)
		if i+1 < len(l.Bytes) {
			gaps += float64(l.Bytes[i+1] - end)
		} else if next > 0 {
			gaps += float64(next - end)
		}
	}
	for _, bytes := range l.Outputs[:min(n, len(l.Outputs))] {
		outputs += float64(bytes)
	}
	s.seen, s.each, s.gap, s.keeps = n, own/float64(n)*each, gaps/float64(n)*each, outputs/float64(n)*each
}

// autocast reports whether activations have another dtype than the parameters.
func autocast(p RankPlan) bool {
	return p.Compute != "" && p.Weights != "" && p.Compute != p.Weights && !p.DeepSpeed
}

// copied reports whether autocast makes 16-bit copies of weights: it does not if the weights are
// gathered in 16 bits (measured with fully_shard's MixedPrecisionPolicy and torch 2.11).
func copied(p RankPlan) bool { return autocast(p) && p.Sharding != "fsdp" }

// copies returns the bytes of autocast's 16-bit weights when a forward has ended, and the most
// inside it: under checkpointing the copies of the blocks are freed when autocast ends.
func (f *Predictor) copies(p RankPlan) (held, most float64) {
	if !copied(p) {
		return 0, 0
	}
	all, out := 2*float64(f.model.Cast), 2*float64(f.model.CastOutside)
	if f.model.Cast == 0 {
		all, out = 2*float64(f.model.Parameters), 2*float64(f.model.Outside)
	}
	if p.Checkpointing == "full" {
		return out, all
	}
	return all, all
}

// ends reads the bytes held at the ends of the forward and the backward.
func (f *Predictor) ends(s *sight, m Measurement, marks []Marks, each float64) {
	copies, _ := f.copies(s.plan)
	if m.First.Forward <= m.Start {
		return
	}
	s.held, s.heldSeen = math.Max(float64(m.First.Forward-m.Start)-copies, 0)*each, true
	if len(marks) > 0 {
		l := marks[len(marks)-1]
		if l.After > 0 {
			out := 0.
			if copied(s.plan) {
				out = 2 * float64(f.model.CastOutside)
			}
			s.head, s.headSeen = math.Max(float64(m.First.Forward-l.After)-out, 0)*each, true
		}
	}
	if m.together() > 1 {
		return // the peak of the backward is not the loss's: it has the later calls' activations and gradients
	}
	peak := m.First.BackwardPeak
	if s.plan.Accumulation > 1 {
		peak = m.First.Micro
	}
	if peak == 0 {
		return
	}
	st := f.states(s.plan)
	late := float64(m.Start) + st.gradients + st.ready + st.bucket
	if float64(peak) > late*1.05 || s.plan.Accumulation > 1 {
		s.temporary, s.temporarySeen = math.Max(float64(peak-m.First.Forward), 0)*each, true
		if s.plan.Checkpointing == "full" && s.temporary > 0 && f.logits(s.plan) == 0 {
			s.temporarySeen, s.window = false, s.temporary // it is the window, not the loss
		}
	}
}
