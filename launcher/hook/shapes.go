package hook

import (
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// Advice about tensors that are known by their shape.
const (
	adviseLogits = "compute the loss in chunks, or with a fused linear cross entropy"
	adviseScores = "use an attention that never holds its scores: scaled_dot_product_attention, flash attention"
)

// Parts of all, in hundredths, from which on one block is a giant: less, where it is known
// what it is.
const (
	giantShare      = 20
	giantKnownShare = 8
)

// giant finds the largest block, or the request, where it is a large part of all. Of those that
// are large enough one that is known by its shape comes first.
func (d *digest) giant(m *memory.Measurement) *strategy.Allocation {
	var found *strategy.Allocation
	all := d.Reserved + d.Requested
	for _, h := range d.Large {
		if h.Bytes*100 < all*giantKnownShare {
			break
		}
		a := shaped(h, m)
		if a.What == "" && (found != nil || h.Bytes*100 < all*giantShare) {
			continue
		}
		if found == nil || found.What == "" && a.What != "" {
			found = &a
		}
	}
	if found == nil {
		return nil
	}
	found.Count = 0
	for _, h := range d.Large {
		if h.Bytes == found.Bytes {
			found.Count += h.Count
		}
	}
	return found
}

// shaped explains an allocation's size by the figures of the model.
func shaped(h heldPlace, m *memory.Measurement) strategy.Allocation {
	a := h.Allocation
	if m == nil || m.Model == nil {
		return a
	}
	for _, kind := range tensorKinds {
		for _, d := range dtypes(m) {
			if shape := kind.shape(h, d.bytes, m); shape != nil {
				a.What, a.Shape, a.Dtype, a.Advice, a.Bytes = kind.what, shape, d.name, kind.advice, d.bytes
				for _, n := range shape {
					a.Bytes *= int64(n)
				}
				return a
			}
		}
	}
	return a
}

// whatLogits names logits.
const whatLogits = "logits"

// tensorKinds are the tensors that are known by their shape, the surer first. Each gives the shape
// of an allocation by elements of some bytes, nil where it is none of the kind.
var tensorKinds = []struct {
	what, advice string
	shape        func(h heldPlace, element int64, m *memory.Measurement) []int
}{
	{whatLogits, adviseLogits, logits},
	{"attention scores", adviseScores, scores},
	{whatLogits, adviseLogits, otherLogits},
}

type dtype struct {
	name  string
	bytes int64
}

// dtypes are those that activations may have, the likelier first: what a job that trains in
// 16 bits computes in 32 is its loss.
func dtypes(m *memory.Measurement) []dtype {
	half := memory.Dtype(m.Autocast)
	if half == "" {
		half = m.Model.Dtype()
	}
	if half == "bf16" || half == "fp16" {
		return []dtype{{half, 2}, {"fp32", 4}}
	}
	return []dtype{{"fp32", 4}}
}

// tokens gives batch and length of an input of token ids; zeros where it is none.
func tokens(m *memory.Measurement) (batch, length int64) {
	if len(m.Shape) != 2 || m.Shape[0] <= 0 || m.Shape[1] <= 1 || m.Shape[0] > 1<<24 || m.Shape[1] > 1<<24 {
		return 0, 0
	}
	if int64(m.Shape[0])*int64(m.Shape[1]) > 1<<31 {
		return 0, 0
	}
	return int64(m.Shape[0]), int64(m.Shape[1])
}

// vocabulary is the width of the output, where it is one over a vocabulary: as wide as an
// embedding, or far wider than a layer. It is 0 where the widest module is a layer.
func vocabulary(m *memory.TrainedModel) int64 {
	v := m.Vocabulary
	if v < 1000 || v > 1<<24 || m.Hidden <= 0 || m.Hidden > 1<<24 || v*m.Hidden > m.Embedding &&
		v <= widestLayer*m.Hidden {
		return 0
	}
	return v
}

// logits are the output over the vocabulary: of the measured input, of one without each
// sample's last token, or of a measured longer one.
func logits(h heldPlace, element int64, m *memory.Measurement) []int {
	v := vocabulary(m.Model)
	if v == 0 {
		return nil
	}
	if batch, length := tokens(m); batch > 0 {
		for _, each := range []int64{length, length - 1} {
			for _, samples := range []int64{batch, 1} {
				if h.is(samples * each * v * element) {
					return []int{int(samples), int(each), int(v)}
				}
			}
		}
	}
	for _, longest := range []int64{m.Longest, m.First.Longest, m.Second.Longest, m.Longer.Longest} {
		if longest > 0 && longest < 1<<31/element && h.is(longest*v*element) {
			return []int{int(longest), int(v)}
		}
	}
	return nil
}

// otherLogits are the same of an input of any length, where the vocabulary is a number that
// other widths are no multiple of, and the size is known well.
func otherLogits(h heldPlace, element int64, m *memory.Measurement) []int {
	v := vocabulary(m.Model)
	odd := v
	for odd > 0 && odd%2 == 0 {
		odd /= 2
	}
	if odd < 64 || h.Rounded >= v*element {
		return nil
	}
	count := h.Bytes / (v * element)
	if count < 64 || !h.is(count*v*element) {
		return nil
	}
	// Nor may it be the output's weight, in 16 or in 32 bits.
	if h := m.Model.Hidden; count == h || count == 2*h || 2*count == h {
		return nil
	}
	return []int{int(count), int(v)}
}

// widestLayer is how many times the hidden width a linear module inside a block may be, and
// heads are so wide.
const (
	widestLayer   = 8
	narrowestHead = 32
	widestHead    = 256
)

// scores are attention's: of each head a square of the length. What a linear module makes is
// a small multiple of the hidden width. Where the stack names no attention, the model must
// have one, and its heads their usual width.
func scores(h heldPlace, element int64, m *memory.Measurement) []int {
	batch, length := tokens(m)
	if batch == 0 || length < 128 {
		return nil
	}
	square := batch * length * length * element
	heads := h.Bytes / max(square, 1)
	if heads < 1 || heads > 256 || !h.is(heads*square) {
		return nil
	}
	hidden, width := m.Model.Hidden, heads*length
	if !h.Attention && (!m.Model.Attention || hidden <= 0 || hidden%heads != 0 || hidden/heads < narrowestHead ||
		hidden/heads > widestHead || width%hidden == 0 && width/hidden <= widestLayer) {
		return nil
	}
	return []int{int(batch), int(heads), int(length), int(length)}
}
