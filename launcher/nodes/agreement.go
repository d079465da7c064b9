package nodes

import (
	"fmt"

	"github.com/gpurun/gpurun/strategy"
)

// Agreement are the values on which all nodes of a launch must agree.
type Agreement struct {
	Run     string `json:"run"`     // the engine's name for the launch, the same after a restart
	Restart int    `json:"restart"` // how often the engine has started it again
	Version string `json:"version"` // of gpurun
	Digest  string `json:"digest"`  // digest of the job, as the node reads it
	Nodes   int    `json:"nodes"`
	Ranks   int    `json:"ranks"` // number of ranks that each node starts
	// Once: the engine starts each node once, so that a node that has left does not return.
	Once bool `json:"once,omitempty"`
}

// refuses returns why a node cannot be part of the launch, nil if it can.
func (a Agreement) refuses(h Hello) *Reject {
	reject := func(code int, format string, args ...any) *Reject {
		return &Reject{Code: code, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case h.Unable != nil:
		return &Reject{Code: h.Unable.Code, Why: h.Unable.Why}
	case h.Run != a.Run:
		return reject(strategy.CodeUsage, "it belongs to another job, %s, and this is %s", h.Run, a.Run)
	case h.Restart < a.Restart:
		return reject(strategy.CodeRetry, "it is of an earlier start of the job (%d, and this is start %d)",
			h.Restart, a.Restart)
	case h.Version != a.Version:
		return reject(strategy.CodeUsage, "it runs gpurun %s, and node 0 runs %s", h.Version, a.Version)
	case h.Ranks != a.Ranks:
		return reject(strategy.CodeUsage,
			"it would start %d ranks, and node 0 starts %d: launch.nproc_per_node sets how many", h.Ranks, a.Ranks)
	case h.Digest != a.Digest:
		return reject(strategy.CodeUsage, "its command, train.toml or configuration differs from those of node 0")
	}
	return nil
}
