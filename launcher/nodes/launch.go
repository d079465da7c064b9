package nodes

import (
	"fmt"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A Launch is what all of its nodes have to agree upon.
type Launch struct {
	Run     string `json:"run"`     // what the engine calls it, the same after a restart
	Restart int    `json:"restart"` // how often the engine has started it again
	Version string `json:"version"` // of gpurun
	Digest  string `json:"digest"`  // of the job, as the node reads it
	Nodes   int    `json:"nodes"`
	Ranks   int    `json:"ranks"` // that each node starts
	// Once says that the engine starts each node once: one that has left does not come back.
	Once bool `json:"once,omitempty"`
}

// The times of a session. Slurm gives a node up after 300 s (SlurmdTimeout), and each side
// has to have come to its end before. All are measured on each machine's own clock.
const (
	// Beat is how often each side says that it lives.
	Beat = 10 * time.Second
	// suspectAfter is the silence after which people are told of a node, and lostAfter the
	// one after which each side goes on without the other.
	suspectAfter, lostAfter = 30 * time.Second, 240 * time.Second
	// rejoinBound is how long a node may take to come back whose connection broke: its
	// gpurun is gone, or it dials at once.
	rejoinBound = 10 * time.Second
	// refusedBound is how long nobody may listen at the head's until its gpurun counts as
	// gone.
	refusedBound = 15 * time.Second
	// mistrustBound is how long a node may find a head with another secret, and no other: an
	// earlier launch of this name may have its port for a while.
	mistrustBound = 10 * time.Second
	// prepareBound and startBound are how long a node may take to get ready, memory that
	// comes back from the attempt before included, and to start its ranks.
	prepareBound, startBound = 3 * time.Minute, 90 * time.Second
	// stopBound is how long a node may take to end its ranks beyond their grace.
	stopBound = 2 * time.Minute
	// byeBound is how long the head waits for followers to take the verdict.
	byeBound = 10 * time.Second
	// comeBound is how long it waits for nodes to come that have not been there, to be told
	// the same.
	comeBound = 30 * time.Second
)

// refuses says why a node cannot be part of the launch, nil where it can.
func (l Launch) refuses(h Hello) *Reject {
	reject := func(code int, format string, args ...any) *Reject {
		return &Reject{Code: code, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case h.Inc == "":
		return reject(strategy.CodeBug, "it does not say which gpurun it is")
	case h.Unable != nil:
		return &Reject{Code: h.Unable.Code, Why: h.Unable.Why}
	case h.Run != l.Run:
		return reject(strategy.CodeUsage, "it belongs to another job, %s, and this is %s", h.Run, l.Run)
	case h.Restart < l.Restart:
		return reject(strategy.CodeRetry, "it is of an earlier start of the job (%d, and this is start %d)", h.Restart, l.Restart)
	case h.Version != l.Version:
		return reject(strategy.CodeUsage, "it runs gpurun %s, and node 0 runs %s", h.Version, l.Version)
	case h.Node < 1 || h.Node >= l.Nodes:
		return reject(strategy.CodeUsage, "it says that it is node %d, of %d that are numbered from 0", h.Node, l.Nodes)
	case h.Ranks != l.Ranks:
		return reject(strategy.CodeUsage, "it would start %d ranks, and node 0 starts %d: launch.nproc_per_node sets how many", h.Ranks, l.Ranks)
	case h.Digest != l.Digest:
		return reject(strategy.CodeUsage, "its command, train.toml or configuration differs from those of node 0")
	}
	return nil
}
