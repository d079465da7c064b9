package nodes

// A Stage is how far a node is in an attempt.
type Stage int

// The stages, in their order.
const (
	Absent    Stage = iota
	Idle            // none of its ranks run
	Preparing       // it was told of a plan
	Prepared        // its ranks could be started
	Starting        // they were to be
	Running
	Stopping
	Left // it knows how the launch ended
)

// A Point is what the head waits for all nodes to come to.
type Point int

// The points of an attempt. A node that is lost counts for the first only.
const (
	Nowhere    Point = iota
	AllThere         // with no ranks that run
	AllReady         // to start their ranks
	AllRunning       // their ranks
	AllOver          // no rank of the attempt runs any more
	AllLeft          // nobody is there to be told any more
)
