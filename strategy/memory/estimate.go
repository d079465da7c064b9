package memory

// An Estimated is the expected need of a plan of a model on one device before anything ran, by
// published formulas, each named at its use.
type Estimated struct {
	Architecture Architecture
	Plan         RankPlan
	// Instants and Bounds are the bytes held in each phase, as expected and at most.
	Instants Instants
	Bounds   Instants
	// Mean and Bound are the peaks of the allocator in bytes; Instant is the phase of the mean's
	// peak.
	Mean, Bound int64
	Instant     string
	// Outside is the bytes that a process holds on the device outside the allocator.
	Outside int64
	// Host and NVMe are bytes of all ranks together, on one host. Loading: the host's bytes are
	// needed only while the model is loaded.
	Host, NVMe int64
	Loading    bool
	Cards      []Card
}

// Parts are bytes on one device by their use.
type Parts struct {
	Weights     int64 `json:"weights"`
	Gradients   int64 `json:"gradients"`
	Optimizer   int64 `json:"optimizer"`
	Activations int64 `json:"activations"`
	Buffers     int64 `json:"buffers"`
}

// Sum is the sum of all parts.
func (p Parts) Sum() int64 {
	return p.Weights + p.Gradients + p.Optimizer + p.Activations + p.Buffers
}

// most returns the larger of each part.
func (p Parts) most(q Parts) Parts {
	return Parts{max(p.Weights, q.Weights), max(p.Gradients, q.Gradients), max(p.Optimizer, q.Optimizer),
		max(p.Activations, q.Activations), max(p.Buffers, q.Buffers)}
}

// Instants are the phases of a training step in which a peak can be.
type Instants struct {
	Load, Forward, Backward, Optimizer Parts
	// Most is the largest value of each part, also at moments of the backward other than its
	// peak.
	Most Parts
}

// Names are the names of the phases in their order.
var Names = [...]string{"load", "forward", "backward", "optimizer"}

// All returns the phases in the order of Names.
func (i Instants) All() [4]Parts { return [4]Parts{i.Load, i.Forward, i.Backward, i.Optimizer} }

// peak is the largest phase and its name.
func (i Instants) peak() (bytes int64, where string) {
	for n, p := range i.All() {
		if sum := p.Sum(); sum > bytes {
			bytes, where = sum, Names[n]
		}
	}
	return bytes, where
}

// A spread is the margin of a figure over the formulas: factors, and whether assumptions about
// the model are taken at their worst.
type spread struct {
	states, activations, buffers, allocator float64
	vocabulary                              int64
	doubt                                   bool
}

// expected uses the formulas unchanged. cautious is for the bound: 2 % for the rounding of many
// small tensors; an uncalibrated formula for activations has a log-sd of 0.25, of which 1.65 are
// 1.5 ×, and as much for the logits (12.2 bytes measured, 18 published); the default allocator's
// room. The largest vocabulary in use replaces an unknown one.
var (
	expected = spread{states: 1, activations: 1, buffers: 1, allocator: 1}
	cautious = spread{states: 1.02, activations: 1.5, buffers: 1.25, allocator: defaultRoom, vocabulary: 152064,
		doubt: true}
)

// Estimate returns the expected need of a plan of a model. A plan's zeros count as usual: one
// rank, no accumulation, no sharding, no checkpointing, attention that does not hold its scores.
func Estimate(a Architecture, p RankPlan) Estimated {
	a, p = a.filled(), p.Usual()
	e := Estimated{Architecture: a, Plan: p, Instants: instants(a, p, expected), Bounds: instants(a, p, cautious),
		Outside: int64(outsidePrior(p))}
	e.Mean, e.Instant = e.Instants.peak()
	bound, _ := e.Bounds.peak()
	e.Bound = scaled(bound, roomOf(p))
	e.Host, e.NVMe, e.Loading = hostBytes(a, p)
	e.Cards = cards(e.Mean, e.Bound, e.Outside)
	return e
}

// roomOf is the ratio of the allocator's bytes to those in use, for a bound. Gathered weights come and go in
// buffers of many sizes, which leaves gaps.
func roomOf(p RankPlan) float64 {
	if stage(p) == 3 {
		return defaultMost
	}
	return cautious.allocator
}

// Usual fills in the unknown settings of a plan.
func (p RankPlan) Usual() RankPlan {
	p.MicroBatch, p.Accumulation, p.DataParallel = max(p.MicroBatch, 1), max(p.Accumulation, 1), max(p.DataParallel, 1)
	for _, word := range []*string{&p.Checkpointing, &p.Sharding, &p.OffloadOptimizer, &p.OffloadParam,
		&p.OffloadActivations} {
		if *word == "" {
			*word = "none"
		}
	}
	if p.Compute == "" || p.Compute == "tf32" {
		p.Compute = "fp32"
	}
	if p.Weights == "" {
		p.Weights = "fp32"
	}
	if p.Attention == "" {
		p.Attention = "sdpa"
	}
	return p
}

// instants returns the bytes held in each phase of the second and every later step: in the first,
// the optimizer's state is made in its own phase.
func instants(a Architecture, p RankPlan, s spread) Instants {
	if a.AssumedVocabulary {
		a.Vocabulary = max(a.Vocabulary, s.vocabulary)
	}
	st, act := statesOf(a, p), activations(a, p, s.activations)
	w, g, o := ceil(st.weights*s.states), ceil(st.gradients*s.states), ceil(st.optimizer*s.states)
	if s.doubt {
		o += doubted(a, p)
	}
	later, kept := p.Accumulation > 1, st.buffer+st.again // later: there are forwards behind the first one of a step
	forward := Parts{Weights: w + scaled(casts(a, p), s.states), Optimizer: o, Activations: act.held,
		Buffers: ceil(s.buffers * (kept + st.gather + given(later)*st.forming))}
	if later || p.DeepSpeed && stage(p) == 3 {
		forward.Gradients = ceil(st.held * s.states)
	}
	loss, window := forward, forward
	loss.Activations += act.loss
	window.Activations = act.window
	window.Buffers = ceil(s.buffers * (kept + st.gather + st.ready))
	late := Parts{Weights: w, Gradients: g, Optimizer: o, Activations: act.late,
		Buffers: ceil(s.buffers * (kept + st.gather + st.ready + st.bucket + st.weights*s.states/10))}
	all := Instants{
		Load: loaded(p, Parts{Weights: w, Gradients: g, Optimizer: o, Buffers: ceil(s.buffers * (st.buffer + st.load))},
			st),
		Forward:   forward,
		Backward:  loss,
		Optimizer: Parts{Weights: w, Gradients: g, Optimizer: o, Buffers: ceil(s.buffers * (kept + st.step))},
	}
	for _, moment := range []Parts{window, late} {
		if moment.Sum() > all.Backward.Sum() {
			all.Backward = moment
		}
	}
	for _, moment := range []Parts{all.Load, forward, loss, window, late, all.Optimizer} {
		all.Most = all.Most.most(moment)
	}
	return all
}

// loaded is the bytes held while model and engine are made, with the early part of the optimizer:
// ZeRO-3 has buffers for gradients then.
func loaded(p RankPlan, all Parts, st states) Parts {
	if !p.DeepSpeed || stage(p) < 3 {
		all.Gradients = 0
	}
	if st.early < st.optimizer {
		all.Optimizer = ceil(st.early)
	}
	return all
}

// scaled multiplies a number of bytes by a factor, rounded up.
func scaled(bytes int64, factor float64) int64 {
	if factor == 1 {
		return bytes
	}
	return ceil(float64(bytes) * factor)
}

// A Card is a common size of GPU.
type Card struct {
	// Gigabytes is the size as it is sold; Name lists the cards of that size, the smallest first.
	Gigabytes int    `json:"gigabytes"`
	Name      string `json:"name"`
	// Bytes is the capacity of the smallest one in PyTorch: less than the sold size, because
	// error correction and the driver keep a part.
	Bytes int64 `json:"bytes"`
	// Fits: the bound fits, with the bytes outside the allocator; May: the mean does.
	Fits bool `json:"fits"`
	May  bool `json:"may_fit"`
}

// sold are the cards, with the capacity in PyTorch's message when one of them runs out of memory
// ("GPU 0 has a total capacity of …"), in hundredths of a GiB.
var sold = []struct {
	gigabytes  int
	name       string
	hundredths int64
}{
	{24, "L4, A10, RTX 3090 and 4090", 2203},
	{40, "A100", 3938},
	{48, "A40, L40S, RTX A6000", 4434},
	{80, "A100, H100", 7910},
	{94, "H100 NVL", 9302},
	{141, "H200", 13980},
	{192, "B200, MI300X", 17835},
}

// cards lists the sizes, and whether a plan fits on them.
func cards(mean, bound, outside int64) []Card {
	var all []Card
	for _, s := range sold {
		bytes := s.hundredths * (1 << 30) / 100
		all = append(all, Card{s.gigabytes, s.name, bytes, bound+outside <= bytes, mean+outside <= bytes})
	}
	return all
}

// Smallest is the smallest card on which the bound fits; false if none is large enough.
func (e Estimated) Smallest() (Card, bool) {
	for _, c := range e.Cards {
		if c.Fits {
			return c, true
		}
	}
	return Card{}, false
}

// SmallestCard is the smallest card with so many bytes, including those outside the allocator;
// false if none is large enough.
func SmallestCard(need int64) (Card, bool) { return Estimated{Cards: cards(need, need, 0)}.Smallest() }

// hostSlack is the additional_buffer_factor of DeepSpeed's estimators: the ratio of the host memory to
// the bytes that are moved there.
const hostSlack = 1.5

// hostBytes is the need of all ranks together for their host's memory and for NVMe. loading: it is
// needed at the start only, when each rank makes the weights on the host before they go to the
// device.
func hostBytes(a Architecture, p RankPlan) (host, nvme int64, loading bool) {
	kept := int64(0)
	if p.OffloadActivations != "none" {
		kept = ceil(float64(a.Layers) * pinned(hidden(a, p)*float64(p.MicroBatch)) * float64(p.DataParallel))
	}
	if !elsewhere(p.OffloadOptimizer) && !elsewhere(p.OffloadParam) {
		each := RateOf(p).Weights
		if p.DeepSpeed { // its master copy is made of fp32 weights, unless the model is made in shards
			each = 4
		}
		return max(kept, share(a.Parameters, each, 1)*int64(p.DataParallel)), 0, kept == 0
	}
	st, ranks := statesOf(a, p), float64(p.DataParallel)
	each := max(st.host, hostSlack*4*float64(a.Parameters)) // DeepSpeed: each rank makes the whole model there
	if p.Sharding == "fsdp" || st.nvme > 0 {
		each = max(st.host, st.pinned)
	}
	return ceil(each*ranks) + kept, ceil(st.nvme * ranks), false
}
