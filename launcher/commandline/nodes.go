package commandline

import (
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
)

// A NodeValue is a value as it was given, and how: {"4", "--nnodes"}. An empty value says
// nothing.
type NodeValue struct{ Value, By string }

// Nodes is what a command line says of the nodes of a launch.
type Nodes struct {
	// Count is how many there are, Rank this one's number from 0, and Default that
	// number where nobody else says it.
	Count, Rank, Default NodeValue
	// Head is where node 0 can be reached: host, or host:port.
	Head NodeValue
	// ID is the rendezvous id.
	ID NodeValue
	// How is the hint for a launch that does not number its nodes; empty for the usual one.
	How string
}

// Several reports whether there is more than one node, as far as the command line says.
func (n Nodes) Several() bool {
	return n.Count.Value != "" && n.Count.Value != "1" && n.Count.Value != "1:1"
}

// Over are the nodes with what others say where these say nothing.
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

// nodesOf is what options like torchrun's say, among others.
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

// nodes judges a number of nodes: "4", or "4:4" as torchrun takes it. A plan is made for
// a number of ranks, so that nodes that may come and go are refused. -1 is a launcher's
// own choice.
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

// onOneNode are the options that say where nodes meet: on a single one they have no
// effect.
var onOneNode = []string{"rdzv-backend", "rdzv-endpoint"}
