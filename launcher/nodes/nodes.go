// Package nodes makes one node or many one for package launcher: the head's gpurun, on node 0,
// starts the ranks of all nodes as if they were its own, and each other gpurun follows it.
//
// Both sides are pure state machines, which are told what arrives and what time it is, and
// have their owner send messages, start ranks and end them. Package wire carries the messages.
// A plan is data: a follower runs its own command with it, and a digest tells
// whether it understood the same.
//
//	message.go   what nodes say to each other
//	stage.go     how far a node is, and what the head waits for
//	head.go      the head's state machine: who is there, how far they are, who is lost
//	follower.go  a follower's: what it was told, and when it is on its own
//	lead.go      Lead: a launcher.Starter over all nodes
//	actor.go     the goroutine that owns a state machine
//	attempt.go   the ranks of all nodes as one launcher.Attempt
//	follow.go    Follow: a node that does as the head says
//	local.go     what a follower does on its own machine
//	part.go      this node's part of a launch, from what the nodes know each other by to its end
//	world.go     what there is to work with on all nodes: the least of each
//	reach.go     whether the nodes reach each other, before ranks wait for that
//	seen.go      the state of the ranks of all nodes, for people and metrics
//	slow.go      ranks that are behind the others for a while
//	clock.go     another machine's times on this one's clock
//	queue.go     facts on their way, of which none is lost and nobody waits
package nodes
