package node

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// preflight checks the devices before the first attempt of this process, and returns the facts that prevent
// the start. An error comes from the journal, or means that ctx is done.
func (n *Node) preflight(ctx context.Context) ([]strategy.Fact, error) {
	if n.opts.Preflight == nil || n.checked {
		return nil, nil
	}
	var failed error
	show := func(text string) {
		if failed == nil {
			failed = n.log.Append(launcher.Noticed{Text: text})
		}
	}
	show("preflight: the GPUs are checked before the ranks are started, for a minute at most")
	unfit := n.opts.Preflight(ctx, func(text string) { show("warning: " + text) })
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	n.checked = true
	for _, f := range unfit {
		show("warning: " + f.DriverEvent().Text())
	}
	return unfit, failed
}

// grounded is an attempt without ranks. Its facts say why they were not started.
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
