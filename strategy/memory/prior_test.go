package memory

import (
	"math"
	"testing"
)

// The assumed bytes of unseen blocks agree with an estimate: in the landscape's transformers they
// are off by less than a factor of two in every mode. For attention that keeps its scores, also
// if fp32 has no fused one, they were once too small by a factor of four.
func TestPriorOfBlocksAgreesWithLandscape(t *testing.T) {
	compared := 0
	for _, l := range readLandscape(t, "testdata/landscape.jsonl") {
		if l.head.Conv {
			continue
		}
		for s, r := range l.rows {
			input := l.input(s)
			if s.Ckpt != "none" || s.Accum != 1 || r.Forward == 0 || input <= 0 {
				continue
			}
			p, copies := s.plan(1), 0.
			p.Sequence = int(l.head.Sequence)
			if autocast(p) {
				copies = 2 * float64(l.model().Cast)
			}
			held := (float64(r.Forward-r.Static) - copies - l.headBytes(s, r.Static)) / float64(s.Micro*l.head.Blocks)
			if held <= 0 {
				continue
			}
			prior := input * NewPredictor(l.model(), DeviceMemory{Total: 1 << 40}, nil).priorInputs(p)
			if off := math.Log(prior / held); math.Abs(off) > math.Log(2) {
				t.Errorf("%s %+v: a block is believed to hold %.0f MiB a sample, and holds %.0f", l.head.Model, s, prior/(1<<20), held/(1<<20))
			}
			compared++
		}
	}
	if compared < 100 {
		t.Errorf("only %d rows were compared", compared)
	}
}
