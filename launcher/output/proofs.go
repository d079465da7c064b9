package output

import (
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// proofHead is how much of a stream is searched for what the job says of its own
// settings, in bytes: frameworks print them before the first step.
const proofHead = 1 << 20

// proofs finds in a stream what the job says of its settings.
type proofs struct {
	find func(line string) (strategy.Proof, bool)
	read int                     // bytes so far
	seen map[strategy.Proof]bool // without their texts
}

// search looks at one line, and returns a proof that is new.
func (p *proofs) search(line []byte) (strategy.Proof, bool) {
	if p == nil || p.read > proofHead {
		return strategy.Proof{}, false
	}
	p.read += len(line) + 1
	proof, ok := p.find(string(line))
	same := proof
	same.Text = ""
	if !ok || p.seen[same] {
		return strategy.Proof{}, false
	}
	if p.seen == nil {
		p.seen = map[strategy.Proof]bool{}
	}
	p.seen[same] = true
	return proof, true
}

// proved hands on what the job said.
func (r *rank) proved(source string, now time.Time, proof strategy.Proof) {
	r.facts.emit(strategy.Fact{Time: now, Rank: r.global, Source: source, Proof: &proof})
}
