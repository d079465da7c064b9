package nodes

import "time"

// The time limits of a launch, each measured on a machine's own clock. Slurm counts a node as down after 300
// s (SlurmdTimeout), and both sides must have ended before that.
const (
	// Beat is the interval of both sides' signs of life.
	Beat = 10 * time.Second
	// suspectAfter is the silence after which gpurun warns about a node. lostAfter is the silence after which
	// each side continues without the other.
	suspectAfter, lostAfter = 30 * time.Second, 240 * time.Second
	// rejoinBound is the time that a node has to return after its connection broke. If its gpurun lives, it
	// dials at once.
	rejoinBound = 10 * time.Second
	// refusedBound is how long the head's port may refuse connections before the head counts as gone.
	refusedBound = 15 * time.Second
	// mistrustBound is how long a node tolerates that it finds only a head with another secret: an earlier
	// launch of this name may keep its port for a while.
	mistrustBound = 10 * time.Second
	// prepareBound bounds the preparation, which includes the wait for the previous attempt's memory.
	// startBound bounds the start of ranks.
	prepareBound, startBound = 3 * time.Minute, 90 * time.Second
	// stopBound is the time to stop ranks, in addition to their grace.
	stopBound = 2 * time.Minute
	// byeBound is how long the head waits for followers to confirm the verdict, and comeBound for
	// nodes that have not joined yet.
	byeBound, comeBound = 10 * time.Second, 30 * time.Second
	// pauseWait is how long node 0 goes on after it has ordered a pause, before it is stopped itself.
	pauseWait = time.Second
)
