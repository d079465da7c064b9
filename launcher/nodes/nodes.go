// Package nodes makes one node or many one for package launcher: the head's gpurun starts the
// ranks of all nodes as if they were its own, and each other gpurun follows it.
//
//	lead.go      Lead: a launcher.Starter over all nodes, by the state machine of package gang
//	attempt.go   the ranks of all nodes as one launcher.Attempt
//	pause.go        all nodes pause while node 0 is stopped
//	world.go     what there is to work with on all nodes: the least of each
//	follow.go    Follow: a node that does as the head says
//	local.go     what a follower does on its own machine
//	reach.go        whether the nodes reach each other, before ranks wait for that
//	seen.go      what the ranks of all nodes let see of themselves, for who looks on
//	slow.go      ranks that are behind the others for a while
//	clock.go     another machine's times on this one's clock
//	queue.go     facts on their way, of which none is lost and nobody waits
package nodes

import "github.com/gpurun/gpurun/launcher/gang"

// Aliases of what travels between nodes, under the words of this package.
type (
	// A Launch is what all nodes have to agree upon.
	Launch = gang.Launch
	// Patience is what a follower knows of the engine that started it.
	Patience = gang.Patience
)
