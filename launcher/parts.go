package launcher

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A Recipe turns a plan into the job's command.
type Recipe interface {
	// Apply returns the command for a plan, and the files that it changes, which belong into dir. The command
	// resumes from checkpoint, unless that is empty. Apply writes nothing.
	Apply(plan strategy.Plan, by strategy.Arguments, checkpoint, dir string) (strategy.Command, error)
}

// A Starter starts all ranks of one attempt, or none.
type Starter interface {
	Start(ctx context.Context, l Launch) (Attempt, error)
}

// An Attempt is a set of running ranks.
type Attempt interface {
	// Facts delivers observations in order, and is closed once every rank is gone and its output is read to the end.
	Facts() <-chan strategy.Fact
	// Stop ends every rank and everything that it started: signal, grace, SIGKILL, sweep. It returns when they are
	// gone, or cannot be ended within a bound.
	Stop(signal int, grace time.Duration)
	// StopPeers sends a signal to all ranks but those given. Stop must follow later.
	StopPeers(signal int, of []int)
	// Release resumes the ranks that wait before their first optimizer step, since all of them run with the plan.
	Release()
	// LastSign is the latest sign of a rank.
	LastSign(rank int) strategy.Sign
	// Stacks emits the stack of each rank as a fact, within a bound.
	Stacks()
	// Progress is the latest step of each rank.
	Progress() []strategy.Fact
}

// Checkpoints finds the checkpoints that a job writes while it runs.
type Checkpoints interface {
	// Saved waits for a complete checkpoint that was written at or after since, at least in part, and that
	// nothing has written to for a while. It reports false if ctx is done before.
	Saved(ctx context.Context, since time.Time) (path string, found bool)
	// Complete reports whether the checkpoint still exists and is complete.
	Complete(path string) bool
	// Deadline is the time by which the run must be over, zero if that is not known.
	Deadline(ctx context.Context) time.Time
}

// World is the launcher's view of its surroundings.
type World interface {
	// Inventory returns the resources available now.
	Inventory(ctx context.Context) strategy.Inventory
	// Settle waits, up to bound, until the devices' memory is back at its level before the first attempt. It
	// returns the memory of other processes as facts.
	Settle(ctx context.Context, bound time.Duration) []strategy.Fact
	// Notice is the first signal that announced the end of the job's time, such as SIGUSR1; nil for none.
	Notice() *strategy.Notice
}

// A Store keeps the run directory.
type Store interface {
	// Append journals an event; it is on disk when Append returns.
	Append(Event) error
	// Prepare makes the folder of attempt n and returns its path.
	Prepare(n int) (dir string, err error)
	// Write puts the plan, the command's changed files and their diff into the attempt's folder.
	Write(dir string, plan strategy.Plan, c strategy.Command) error
	// Draft writes how the run ends if gpurun is killed before it can finish. It is no event: the run is not over.
	Draft(Verdict) error
	// Finish writes the verdict, atomically, and journals it.
	Finish(Verdict) error
}

// A Launch is one attempt to be started.
type Launch struct {
	N       int // the attempt's number
	Dir     string
	Command strategy.Command
	Plan    strategy.Plan
	// Checkpoint is where the ranks start from, empty for the beginning.
	Checkpoint string
	// Arguments are the settings by which the plan changes knobs that only names suggest.
	Arguments strategy.Arguments
	// Confirm: gpurun changed the batch or the accumulation by a setting that only its name suggests.
	// The ranks train only once the processes have confirmed the change.
	Confirm bool
	// Closely: an earlier attempt ran out of memory in a way that only a record of all allocations can explain.
	Closely bool
	// InPlace are the remedies that processes may take in the step that runs out of memory; nil: none.
	InPlace *strategy.InPlaceOrders
	// Outside are the changes that the job itself made with its own batch; nil: not known.
	Outside *strategy.Outside
	// Meeting is the ranks' rendezvous.
	Meeting Meeting
}

// A Meeting is one node's place among all nodes of an attempt, and the rendezvous of the ranks.
type Meeting struct {
	Node, Nodes int
	Offset      int // global rank of the node's first rank
	World       int // ranks of all nodes
	Addr        string
	Port        int // where rank 0 serves the rendezvous
}

// Graces are the times between a stop and SIGKILL.
type Graces struct {
	User    time.Duration // after a stop by the user
	Failure time.Duration // after a diagnosed failure of a rank
}

// settleBound is how long device memory may take to come back.
const settleBound = 60 * time.Second

// noticeInterval is how often a wait between two attempts checks for a notice.
const noticeInterval = 500 * time.Millisecond

// Digest returns the SHA-256 of a command in hexadecimal. It does not depend on dir, the attempt's folder,
// which differs between nodes.
func Digest(c strategy.Command, dir string) string {
	text, err := json.Marshal(struct {
		strategy.Command
		Files map[string][]byte `json:"files"`
	}{c, c.Files})
	if err != nil {
		panic("launcher: a command is text: " + err.Error())
	}
	quoted, _ := json.Marshal(dir)
	sum := sha256.Sum256(bytes.ReplaceAll(text, quoted[1:len(quoted)-1], nil))
	return hex.EncodeToString(sum[:])
}
