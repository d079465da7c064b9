// Package gang is one attempt and one decision on many nodes. Each node runs one gpurun;
// that of node 0 is the head, which decides, and the others follow it.
//
// What they do is two pure state machines, which are told what arrives and what time it
// is, and answer with effects: messages to send, and what their owner has to do.
//
//	message.go   what nodes say to each other
//	head.go      the head's side: who is there, how far they are, who is lost
//	follower.go  a follower's side: what it was told, and when it is on its own
//	pause.go     both sides while node 0 is stopped, by Ctrl-Z for example
//	link.go      a connection between two nodes, whatever carries it
//
// Trust is between nodes: whoever holds the launch's credentials is one, and nobody else
// is heard. A plan is data: a follower runs its own command with it, and a digest tells
// whether it understood the same.
package gang
