// Package nodes makes many nodes look like one to package launcher. gpurun on node 0, the head, starts the
// ranks of all nodes as if they were its own. gpurun on each other node, a follower, carries out its orders.
//
// headMachine and followerMachine are pure state machines. Head and follower own one each: they pass it messages
// and the time, and carry out its actions, such as to send messages, and to start and stop ranks. The head sends a
// plan as data; a follower applies it to its own command, and compares the digests of both commands.
//
//	node.go              this node's part of a launch, from the credentials to the end
//	agreement.go         what all nodes must agree on
//	message.go           the messages between nodes
//	timeouts.go          the time limits
//	head.go              the head: a launcher.Starter over all nodes
//	head_machine.go      its state machine: orders to the nodes, and their stages
//	head_receive.go      messages from nodes
//	head_timeouts.go     silence, time limits, lost nodes, pauses
//	joint_attempt.go     the ranks of all nodes as one launcher.Attempt
//	follower.go          a node that follows the head
//	follower_machine.go  its state machine
//	follower_attempt.go  an attempt on a follower's own machine
//	actor.go             the goroutine that owns a state machine
//	world.go             the resources of all nodes: the least of each
//	rendezvous.go        whether the nodes can connect to each other, before ranks wait for that
//	samples.go           samples of the ranks of all nodes, for people and metrics
//	stragglers.go        ranks that stay behind the others
//	clock.go             conversion of another machine's times
package nodes
