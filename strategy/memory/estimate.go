package memory

// An Estimated is what a plan of a model is expected to need of one device before anything ran,
// by published formulas, each named where it is used.
type Estimated struct {
	Architecture Architecture
	Plan         RankPlan
	// Instants and Bounds are what is held in each phase, as expected and at most.
	Instants Instants
	Bounds   Instants
	// Mean and Bound are the peaks of the allocator in bytes; Instant is where the mean's is.
	Mean, Bound int64
	Instant     string
	// Outside is what a process holds on the device outside the allocator.
	Outside int64
	// Host and NVMe are bytes of all ranks together, on one host. Loading says that the host's
	// are needed while the model is loaded, and no longer.
	Host, NVMe int64
	Loading    bool
	// DeepSpeed is what DeepSpeed's own estimator says of the same stage; zero where it has
	// nothing for it.
	DeepSpeed DeepSpeedEstimate
	Cards     []Card
}

// Parts are bytes on one device by what they are for.
type Parts struct {
	Weights     int64 `json:"weights"`
	Gradients   int64 `json:"gradients"`
	Optimizer   int64 `json:"optimizer"`
	Activations int64 `json:"activations"`
	Buffers     int64 `json:"buffers"`
}

// Sum is all of it.
func (p Parts) Sum() int64 {
	return p.Weights + p.Gradients + p.Optimizer + p.Activations + p.Buffers
}

// States are weights, gradients and optimizer: what ZeRO divides.
func (p Parts) States() int64 { return p.Weights + p.Gradients + p.Optimizer }

// most has the larger of each part.
func (p Parts) most(q Parts) Parts {
	return Parts{max(p.Weights, q.Weights), max(p.Gradients, q.Gradients), max(p.Optimizer, q.Optimizer), max(p.Activations, q.Activations), max(p.Buffers, q.Buffers)}
}

// Instants are the phases of a training step at which a peak can be.
type Instants struct {
	Load, Forward, Backward, Optimizer Parts
	// Most is the most that each part ever is, also at moments of the backward that are not its
	// peak.
	Most Parts
}

// Names are the names of the phases in their order.
var Names = [...]string{"load", "forward", "backward", "optimizer"}

// All are the instants in the order of Names.
func (i Instants) All() [4]Parts { return [4]Parts{i.Load, i.Forward, i.Backward, i.Optimizer} }

// peak is the largest instant and where it is.
func (i Instants) peak() (bytes int64, where string) {
	for n, p := range i.All() {
		if sum := p.Sum(); sum > bytes {
			bytes, where = sum, Names[n]
		}
	}
	return bytes, where
}

// A spread is how far a figure may be above the formulas: factors, and whether assumptions about
// the model are taken at their worst.
type spread struct {
	states, activations, buffers, allocator float64
	vocabulary                              int64
	doubt                                   bool
}

// expected takes the formulas as they are. cautious is for the bound: 2 % for the rounding of
// many small tensors; an uncalibrated formula for activations has a log-sd of 0.25, of which
// 1.65 are 1.5 ×, and as much for the logits (12.2 bytes measured, 18 published); the
// default allocator needs 1.03 to 1.14 × what is allocated at the peak, 1.06 as the median of
// plans that were measured. The largest vocabulary in use replaces one that is not known.
var (
	expected = spread{states: 1, activations: 1, buffers: 1, allocator: 1}
	cautious = spread{states: 1.02, activations: 1.5, buffers: 1.25, allocator: 1.06, vocabulary: 152064, doubt: true}
)

// Estimate is what a plan of a model is expected to need. A plan's zeros count as usual: one
// rank, no accumulation, no sharding, no checkpointing, attention that does not hold its scores.
func Estimate(a Architecture, p RankPlan) Estimated {
	a, p = a.filled(), p.Usual()
	e := Estimated{Architecture: a, Plan: p, Instants: instants(a, p, expected), Bounds: instants(a, p, cautious), Outside: int64(outsidePrior(p))}
	e.Mean, e.Instant = e.Instants.peak()
	bound, _ := e.Bounds.peak()
	e.Bound = scaled(bound, cautious.allocator)
	e.Host, e.NVMe, e.Loading = hostBytes(a, p)
	e.DeepSpeed = deepSpeedEstimate(a, p)
	e.Cards = cards(e.Mean, e.Bound, e.Outside)
	return e
}

// Usual fills in what a plan does not say.
func (p RankPlan) Usual() RankPlan {
	p.MicroBatch, p.Accumulation, p.DataParallel = max(p.MicroBatch, 1), max(p.Accumulation, 1), max(p.DataParallel, 1)
	for _, word := range []*string{&p.Checkpointing, &p.Sharding, &p.OffloadOptimizer, &p.OffloadParam, &p.OffloadActivations} {
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

// instants are what is held in each phase of the second and every later step: in the first, the
// optimizer's state is made in its own phase.
func instants(a Architecture, p RankPlan, s spread) Instants {
	if a.AssumedVocabulary {
		a.Vocabulary = max(a.Vocabulary, s.vocabulary)
	}
	w, g, o := statesOf(a, p)
	w, g, o = scaled(w, s.states), scaled(g, s.states), scaled(o, s.states)
	if s.doubt {
		o += doubted(a, p)
	}
	act, buf := activations(a, p, s.activations), buffers(a, p, s.buffers)
	held := int64(0) // gradients in a forward behind the first one of a step; stage 3 of DeepSpeed has a buffer for them from the start
	if p.Accumulation > 1 || p.DeepSpeed && stage(p) == 3 {
		held = g
	}
	forward := Parts{Weights: w + scaled(casts(a, p), s.states), Gradients: held, Optimizer: o, Activations: act.held, Buffers: buf.forward}
	loss, window := forward, forward
	loss.Activations += act.loss
	loss.Buffers = max(loss.Buffers, buf.loss)
	window.Activations = act.window
	window.Buffers = max(window.Buffers, buf.backward)
	late := Parts{Weights: w, Gradients: g, Optimizer: o, Activations: act.late, Buffers: buf.late + scaled(w, s.buffers/10)}
	all := Instants{
		Load:      loaded(a, p, Parts{Weights: w, Gradients: g, Optimizer: o, Buffers: buf.load}),
		Forward:   forward,
		Backward:  loss,
		Optimizer: Parts{Weights: w, Gradients: g, Optimizer: o, Buffers: buf.optimizer},
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

// loaded is what is held while model and engine are made: DeepSpeed's has its master copy then,
// ZeRO-0 all of the optimizer, and ZeRO-3 room for gradients.
func loaded(a Architecture, p RankPlan, all Parts) Parts {
	if !p.DeepSpeed || stage(p) < 3 {
		all.Gradients = 0
	}
	switch {
	case !p.DeepSpeed:
		all.Optimizer = 0
	case stage(p) > 0:
		all.Optimizer = min(all.Optimizer, share(a.Parameters, RateOf(p).Master, p.DataParallel))
	}
	return all
}

// scaled is a number of bytes times a factor, rounded up.
func scaled(bytes int64, factor float64) int64 {
	if factor == 1 {
		return bytes
	}
	return ceil(float64(bytes) * factor)
}

// A Card is a size of GPU that people have.
type Card struct {
	// Gigabytes is what it is sold as; Name the cards of that size, the smallest first.
	Gigabytes int    `json:"gigabytes"`
	Name      string `json:"name"`
	// Bytes is what PyTorch says of the smallest one's capacity: less than what it is sold as,
	// by what error correction and the driver keep.
	Bytes int64 `json:"bytes"`
	// Fits: the bound fits, with what is outside the allocator; May: the mean does.
	Fits bool `json:"fits"`
	May  bool `json:"may_fit"`
}

// sold are the cards, with the capacity that PyTorch's message names as one of them runs out of
// memory ("GPU 0 has a total capacity of …"), in hundredths of a GiB.
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

// cards are the sizes, and whether a plan fits on them.
func cards(mean, bound, outside int64) []Card {
	var all []Card
	for _, s := range sold {
		bytes := s.hundredths * (1 << 30) / 100
		all = append(all, Card{s.gigabytes, s.name, bytes, bound+outside <= bytes, mean+outside <= bytes})
	}
	return all
}

// Smallest is the smallest card on which the bound fits; false where none is large enough.
func (e Estimated) Smallest() (Card, bool) {
	for _, c := range e.Cards {
		if c.Fits {
			return c, true
		}
	}
	return Card{}, false
}

// SmallestCard is the smallest card with room for so many bytes, what lies outside the
// allocator included; false where none is large enough.
func SmallestCard(need int64) (Card, bool) { return Estimated{Cards: cards(need, need, 0)}.Smallest() }
