package snapshot

import "context"

// lookEvery is after how much work the context is looked at again, in opcodes or blocks.
const lookEvery = 64 << 10

// A patience ends with a context. What reads a snapshot asks it often, and it looks rarely.
type patience struct {
	ctx  context.Context
	work int // until the next look
	err  error
}

// over takes note of some work, and reports whether there is time for no more.
func (p *patience) over(work int) bool {
	if p.work -= work; p.work < 0 && p.err == nil {
		p.work, p.err = lookEvery, p.ctx.Err()
	}
	return p.err != nil
}
