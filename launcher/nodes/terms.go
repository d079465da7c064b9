package nodes

import (
	"fmt"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// Terms are the values on which all nodes of a launch must agree.
type Terms struct {
	Run     string `json:"run"`     // the engine's name for the launch, the same after a restart
	Restart int    `json:"restart"` // how often the engine has started it again
	Version string `json:"version"` // of gpurun
	Digest  string `json:"digest"`  // digest of the job, as the node reads it
	Nodes   int    `json:"nodes"`
	Ranks   int    `json:"ranks"` // number of ranks that each node starts
	// Once: the engine starts each node once, so that a node that has left does not return.
	Once bool `json:"once,omitempty"`
}

// The time limits of a launch, each measured on a machine's own clock. Slurm counts a node as down after 300
// s (SlurmdTimeout), and both sides must have ended before that.
const (
	// Beat is the interval of both sides' signs of life.
	Beat = 10 * time.Second
	// suspectAfter is the silence after which gpurun warns about a node. lostAfter is the silence after which
	// each side continues without the other.
	suspectAfter, lostAfter = 30 * time.Second, 240 * time.Second
	// rejoinBound is the time that a node has to return after its connection broke. If its gpurun lives, it
	// dials at once.
	rejoinBound = 10 * time.Second
	// refusedBound is how long the head's port may refuse connections before the head counts as gone.
	refusedBound = 15 * time.Second
	// mistrustBound is how long a node tolerates that it finds only a head with another secret: an earlier
	// launch of this name may keep its port for a while.
	mistrustBound = 10 * time.Second
	// prepareBound bounds the preparation, which includes the wait for the previous attempt's memory.
	// startBound bounds the start of ranks.
	prepareBound, startBound = 3 * time.Minute, 90 * time.Second
	// stopBound is the time to stop ranks, in addition to their grace.
	stopBound = 2 * time.Minute
	// byeBound is how long the head waits for followers to confirm the verdict, and comeBound for
	// nodes that have not joined yet.
	byeBound, comeBound = 10 * time.Second, 30 * time.Second
	// pauseWait is how long node 0 goes on after it has ordered a pause, before it is stopped itself.
	pauseWait = time.Second
)

// refuses returns why a node cannot be part of the launch, nil if it can.
func (l Terms) refuses(h Hello) *Reject {
	reject := func(code int, format string, args ...any) *Reject {
		return &Reject{Code: code, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case h.Inc == "":
		return reject(strategy.CodeBug, "its message has no name of its gpurun")
	case h.Unable != nil:
		return &Reject{Code: h.Unable.Code, Why: h.Unable.Why}
	case h.Run != l.Run:
		return reject(strategy.CodeUsage, "it belongs to another job, %s, and this is %s", h.Run, l.Run)
	case h.Restart < l.Restart:
		return reject(strategy.CodeRetry, "it is of an earlier start of the job (%d, and this is start %d)", h.Restart, l.Restart)
	case h.Version != l.Version:
		return reject(strategy.CodeUsage, "it runs gpurun %s, and node 0 runs %s", h.Version, l.Version)
	case h.Node < 1 || h.Node >= l.Nodes:
		return reject(strategy.CodeUsage, "it claims to be node %d, of %d that are numbered from 0", h.Node, l.Nodes)
	case h.Ranks != l.Ranks:
		return reject(strategy.CodeUsage, "it would start %d ranks, and node 0 starts %d: launch.nproc_per_node sets how many", h.Ranks, l.Ranks)
	case h.Digest != l.Digest:
		return reject(strategy.CodeUsage, "its command, train.toml or configuration differs from those of node 0")
	}
	return nil
}
