package node

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// preflight looks at the devices before the first attempt of this gpurun. Where one of them
// should not be trained on, the attempt is one that has no ranks.
func (n *Node) preflight(ctx context.Context) ([]strategy.Fact, error) {
	if n.opts.Preflight == nil || n.checked {
		return nil, nil
	}
	n.log.Note("preflight: each GPU is tried before the ranks are started, for a minute at most")
	unfit := n.opts.Preflight(ctx, func(text string) { n.log.Note("warning: " + text) })
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	n.checked = true
	for _, f := range unfit {
		n.log.Note("warning: " + f.DriverEvent.Text())
	}
	return unfit, nil
}

// grounded is an attempt without ranks: its facts are what was found before they were to
// start. There is nobody to stop, to release or to ask.
type grounded struct{ facts chan strategy.Fact }

func ground(unfit []strategy.Fact) grounded {
	facts := make(chan strategy.Fact, len(unfit))
	for _, f := range unfit {
		facts <- f
	}
	close(facts)
	return grounded{facts}
}

func (g grounded) Facts() <-chan strategy.Fact { return g.facts }
func (grounded) Stop(int, time.Duration)       {}
func (grounded) StopPeers(int, []int)          {}
func (grounded) Release()                      {}
func (grounded) LastSign(int) strategy.Sign    { return strategy.Sign{} }
func (grounded) Stacks()                       {}
func (grounded) Progress() []strategy.Fact     { return nil }
