package node

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// preflight looks at the devices before the first attempt of this gpurun, and returns what
// keeps it from being started. An error is the journal's, or says that ctx has ended.
func (n *Node) preflight(ctx context.Context) ([]strategy.Fact, error) {
	if n.opts.Preflight == nil || n.checked {
		return nil, nil
	}
	var told error
	tell := func(text string) {
		if told == nil {
			told = n.log.Append(launcher.Noticed{Text: text})
		}
	}
	tell("preflight: each GPU is tried before the ranks are started, for a minute at most")
	unfit := n.opts.Preflight(ctx, func(text string) { tell("warning: " + text) })
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	n.checked = true
	for _, f := range unfit {
		tell("warning: " + f.DriverEvent.Text())
	}
	return unfit, told
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
