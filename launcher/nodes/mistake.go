package nodes

import (
	"context"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/nodes/wire"
	"github.com/gpurun/gpurun/strategy"
)

// rivalPause is how often a head that waits for its nodes looks for another head.
const rivalPause = time.Second

// learn takes what is known of gpuruns that cannot be part of the launch.
func (l *Lead) learn() {
	for {
		select {
		case m := <-l.opts.Mistakes:
			l.own(func() { l.mistake(m) })
		case <-l.done.Done():
			return
		}
	}
}

// mistake tells people of one. A second head ends a launch that waits for its nodes; one that
// runs it does not disturb. Of a node without the secret nothing is proved, and nothing follows
// but words.
func (l *Lead) mistake(m wire.Mistake) {
	switch {
	case m.Node == 0 && !l.gathered:
		l.rival(m.Addr)
	case m.Node == 0:
		l.tellOnce(0, fmt.Sprintf("a second gpurun, at %s, says that it is node 0 of this launch: it is refused", m.Addr))
	case m.Node < l.opts.Launch.Nodes:
		l.tellOnce(m.Node, fmt.Sprintf("a gpurun at %s says that it is node %d, and does not know %s: it is refused", m.Addr, m.Node, l.opts.Way))
	}
}

func (l *Lead) tellOnce(node int, text string) {
	if l.mistaken[node] == text {
		return
	}
	l.mistaken[node] = text
	l.opts.Note("warning: " + text)
}

// rival ends the wait for all nodes, since another gpurun is node 0, too.
func (l *Lead) rival(addr string) {
	l.endGather(rivalError(addr))
}

func rivalError(addr string) error {
	return errext.WithCode(errext.Errorf("number the nodes from 0, by --node-rank or GPURUN_NODE_RANK; two launches at once want two names, by GPURUN_JOB_ID or --rdzv-id",
		"two gpuruns say that they are node 0 of this launch: this one, and one at %s", addr), strategy.CodeUsage)
}

// lookForRivals looks for another head where node 0 is said to be, while nodes are waited for.
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
					l.rival(at)
				}
			})
			return
		}
	}
}

// whyMissing is what is known of a node that has not come; empty for nothing.
func (l *Lead) whyMissing() (why string) {
	l.own(func() {
		for _, k := range l.head.Missing() {
			if why == "" {
				why = l.mistaken[k]
			}
		}
	})
	return why
}
