package strategy

import (
	"fmt"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A Lost is a node that takes no part in the attempt any more: its machine, its network or
// its gpurun is gone. How its ranks ended is not known, nor whether they have.
type Lost struct {
	Node  int    `json:"node"`
	Host  string `json:"host,omitempty"`
	Why   string `json:"why"`
	Ranks []int  `json:"ranks"` // the global ranks that it ran
	// Left says that it told so itself: somebody stopped it.
	Left bool `json:"left,omitempty"`
	// Code is that of its NotReady where it could not start its ranks, 0 else.
	Code int `json:"code,omitempty"`
}

// NodeName says which node it is: "node 2 (n3)".
func NodeName(node int, host string) string {
	if host == "" {
		return fmt.Sprintf("node %d", node)
	}
	return fmt.Sprintf("node %d (%s)", node, host)
}

// String says it: "node 2 (n3) was lost: its gpurun is gone".
func (l Lost) String() string { return NodeName(l.Node, l.Host) + " was lost: " + l.Why }

// finding is what the loss says about why an attempt ended.
func (l Lost) finding() *cause.Finding {
	f := &cause.Finding{Code: cause.GPUHardware, Weight: cause.WeightCause, Rank: -1, Remarks: []cause.Remark{cause.SaysNode}, Text: l.String()}
	switch {
	case l.Left:
		f.Code, f.Remarks = cause.Preempted, nil
	case l.Code != 0:
		f.Code, f.Remarks = cause.Unknown, nil
	}
	return f
}

// nodeOf names the node of a rank, where there are several; each has as many ranks.
func (c *fold) nodeOf(ev Evidence, rank int) string {
	n := len(c.nodes)
	if n < 2 || rank < 0 || ev.Ranks < n {
		return ""
	}
	node := rank / (ev.Ranks / n)
	return NodeName(node, c.nodes[min(node, n-1)])
}
