// Package nodes makes many nodes look like one to package launcher. gpurun on node 0, the head, starts the
// ranks of all nodes as if they were its own. gpurun on each other node, a follower, carries out its orders.
//
// Head and Follower are pure state machines. Their owners pass them messages and the time, and carry out
// their actions: send messages, start and stop ranks. Package wire transports the messages. The head sends a
// plan as data; a follower applies it to its own command, and a digest shows whether both commands are the
// same.
//
//	message.go   the messages between nodes
//	terms.go     what all nodes must agree on, and the time limits
//	head.go      the head's state machine: orders to the nodes, and their stages
//	headhear.go  messages from nodes
//	headtime.go  silence, time limits, lost nodes, pauses
//	follower.go  a follower's state machine
//	lead.go      Lead owns a Head: a launcher.Starter over all nodes
//	mistake.go   gpuruns that cannot be part of the launch
//	attempt.go   the ranks of all nodes as one launcher.Attempt
//	follow.go    Follow owns a Follower: a node that follows the head
//	local.go     an attempt on a follower's own machine
//	actor.go     the goroutine that owns a state machine
//	part.go      this node's part of a launch, from the credentials to the end
//	world.go     the resources of all nodes: the least of each
//	reach.go     whether the nodes can connect to each other, before ranks wait for that
//	seen.go      samples of the ranks of all nodes, for people and metrics
//	slow.go      ranks that stay behind the others
//	clock.go     conversion of another machine's times
package nodes
