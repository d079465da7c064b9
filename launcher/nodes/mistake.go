package nodes

import (
	"context"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/nodes/wire"
	"github.com/gpurun/gpurun/strategy"
)

// rivalPause is the interval at which a head that waits for its nodes looks for another head.
const rivalPause = time.Second

// takeMistakes takes in gpuruns that cannot be part of the launch.
func (l *Lead) takeMistakes() {
	for {
		select {
		case m := <-l.opts.Mistakes:
			l.own(func() { l.mistake(m) })
		case <-l.done.Done():
			return
		}
	}
}

// mistake ends the wait for nodes if there is a second head, and else only warns: a node without the secret
// has proved nothing.
func (l *Lead) mistake(m wire.Mistake) {
	var text string
	switch {
	case m.Node == 0 && !l.gathered:
		l.endGather(rivalError(m.Addr))
		return
	case m.Node == 0:
		text = fmt.Sprintf("a second gpurun, at %s, claims to be node 0 of this launch: it is refused", m.Addr)
	case m.Node < l.opts.Terms.Nodes:
		text = fmt.Sprintf("a gpurun at %s claims to be node %d, and does not know %s: it is refused", m.Addr, m.Node, l.opts.Way)
	default:
		return
	}
	if p := &l.peers[m.Node]; p.mistake != text {
		p.mistake = text
		l.opts.Note("warning: " + text)
	}
}

func rivalError(addr string) error {
	return errext.WithCode(errext.Errorf("number the nodes from 0, by --node-rank or GPURUN_NODE_RANK; two launches at once need two names, by GPURUN_JOB_ID or --rdzv-id",
		"two gpurun processes claim to be node 0 of this launch: this one, and one at %s", addr), strategy.CodeUsage)
}

// lookForRivals looks for another head at node 0's address while this one waits for nodes.
func (l *Lead) lookForRivals(ctx context.Context) {
	tick := time.NewTicker(rivalPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-l.done.Done():
			return
		}
		if at := l.opts.Rival(ctx); at != "" {
			l.own(func() {
				if !l.gathered {
					l.endGather(rivalError(at))
				}
			})
			return
		}
	}
}
