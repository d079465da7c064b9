package memory

import "maps"

// A Fingerprint identifies a model by what a process saw of it: figures of one model hold for
// another with the same fingerprint, whatever its code says.
type Fingerprint struct {
	Class      string           `json:"class"`
	Parameters int64            `json:"parameters"`      // their number
	Bytes      map[string]int64 `json:"bytes,omitempty"` // of the parameters, by dtype
	Blocks     []BlockList      `json:"blocks,omitempty"`
	// Sample is the bytes of the hidden state of one sample; 0: not seen. Compute is the
	// precision that it was seen in.
	Sample  int64  `json:"sample_bytes,omitempty"`
	Weights string `json:"weights,omitempty"`
	Compute string `json:"compute,omitempty"`
}

// Fingerprint is that of the measured model, false where nothing was seen of one.
func (m Measurement) Fingerprint() (Fingerprint, bool) {
	if m.Model == nil || m.Model.Parameters == 0 {
		return Fingerprint{}, false
	}
	f := Fingerprint{
		Class: m.Model.Class, Parameters: m.Model.Parameters, Bytes: m.Model.Bytes, Blocks: m.Model.Blocks,
		Weights: m.Plan.Weights, Compute: m.Plan.Compute,
	}
	if m.Batch > 0 && len(m.Marks) > 0 {
		f.Sample = m.Marks[0].Input / int64(m.Batch)
	}
	return f, true
}

// sampleRange is how far samples of one job may be apart: texts have no fixed length. One
// twice as long, or half, is another job.
const sampleRange = 2

// Same reports whether two fingerprints are of one model with samples of one size. What
// the precision changes, the dtype of parameters and of hidden states, is compared only
// where both were seen in the same.
func (f Fingerprint) Same(other Fingerprint) bool {
	if f.Class != other.Class || f.Parameters != other.Parameters || len(f.Blocks) != len(other.Blocks) {
		return false
	}
	for i, b := range f.Blocks {
		if o := other.Blocks[i]; b.Path != o.Path || b.Class != o.Class || b.Count != o.Count || b.Parameters != o.Parameters {
			return false
		}
	}
	if f.Weights == other.Weights && len(f.Bytes) > 0 && len(other.Bytes) > 0 && !maps.Equal(f.Bytes, other.Bytes) {
		return false
	}
	if f.Sample == 0 || other.Sample == 0 || f.Compute != other.Compute {
		return true
	}
	return max(f.Sample, other.Sample) < sampleRange*min(f.Sample, other.Sample)
}
