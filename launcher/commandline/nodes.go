package commandline

import (
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
)

// A NodeValue is a value and the flag, file or variable that gives it: {"4", "--nnodes"}. An empty value is
// not given.
type NodeValue struct{ Value, By string }

// Nodes has what a command line, a train.toml or the environment says about the nodes of a launch.
type Nodes struct {
	// Count is the number of nodes, Rank this node's number from 0, and Default that number if nothing else
	// sets it.
	Count, Rank, Default NodeValue
	// Head is the address of node 0: host, or host:port.
	Head NodeValue
	// ID is the rendezvous id.
	ID NodeValue
	// How is the hint for a launch that does not number its nodes; empty for the usual one.
	How string
}

// Several reports whether the command line has more than one node.
func (n Nodes) Several() bool {
	return n.Count.Value != "" && n.Count.Value != "1" && n.Count.Value != "1:1"
}

// Over returns the nodes, with the values of others where these have none.
func (n Nodes) Over(others Nodes) Nodes {
	if n.Count.Value != "" {
		others.Count, others.Default, others.How = n.Count, n.Default, n.How
	}
	for from, to := range map[*NodeValue]*NodeValue{&n.Rank: &others.Rank, &n.Head: &others.Head, &n.ID: &others.ID} {
		if from.Value != "" {
			*to = *from
		}
	}
	return others
}

// nodesOf reads options like torchrun's for nodes among the given ones.
func nodesOf(given []Given) (n Nodes, err error) {
	dynamic, endpoint := "", NodeValue{}
	for _, g := range given {
		said := NodeValue{g.Value, g.Source}
		switch g.Name {
		case "standalone":
			if g.Value != "0" && n.Count.Value == "" {
				n.Count = NodeValue{"1", g.Source}
			}
		case "node-rank":
			n.Rank = said
			_, err = g.whole(g.Value, 0, many)
		case "master-addr":
			n.Head = said
		case "rdzv-endpoint":
			endpoint = said
		case "rdzv-backend":
			dynamic = g.Value
		case "rdzv-id":
			n.ID = said
		default:
			if g.Means == NodeCount && g.Value != "" {
				n.Count, err = said, g.nodes()
			}
		}
		if err != nil {
			return Nodes{}, err
		}
	}
	if endpoint.Value != "" { // torchrun prefers it to the address
		n.Head = endpoint
	}
	if n.Count.Value != "" && (dynamic == "" || dynamic == "static") {
		n.Default = NodeValue{"0", "--node-rank"}
	}
	return n, nil
}

// nodes checks a number of nodes: "4", or "4:4" in torchrun's form. A range is refused, because a plan is
// made for a fixed number of ranks. -1 leaves the choice to the launcher.
func (g Given) nodes() error {
	least, most, isRange := strings.Cut(g.Value, ":")
	if g.Value == "-1" {
		return nil
	}
	if !isRange {
		most = least
	}
	low, err := g.whole(least, 1, many)
	if err != nil {
		return err
	}
	high, err := g.whole(most, 1, many)
	switch {
	case err != nil:
		return err
	case high < low:
		return errext.Errorf("write MIN:MAX", "%s: %s ends before it starts", g.Source, g.Value)
	case high > low:
		return errext.Errorf("give the number of nodes that the launch has",
			"%s=%s: gpurun wants a fixed number of nodes, since a plan is made for a number of ranks", g.Source, g.Value)
	}
	return nil
}

// onOneNode are the options for the rendezvous of nodes, which have no effect on a single node.
var onOneNode = []string{"rdzv-backend", "rdzv-endpoint"}
