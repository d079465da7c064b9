// Package proc starts, signals, reaps and sweeps one node's ranks as a group.
package proc

import (
	"log/slog"
	"os"
	"time"
)

// A Rank is one process to start.
type Rank struct {
	Rank      int // global
	LocalRank int
	// Argv is the command and its arguments. A command without a slash is looked
	// up in the PATH of Env.
	Argv []string
	// Env is the whole environment, as KEY=value.
	Env []string
	// Dir is the working directory; empty means gpurun's own.
	Dir string
	// Stdin, Stdout and Stderr are the rank's own ends; nil means /dev/null. They
	// stay the caller's: Start closes none of them, and the caller closes its
	// copies when Start has returned, or a reader never sees the end of a pipe.
	Stdin, Stdout, Stderr *os.File
}

// Limits are ceilings that the kernel holds each rank, and what it brings forth,
// to.
type Limits struct {
	// Data is RLIMIT_DATA in bytes: private writable memory that a process may
	// map. 0 means none. Beyond it an allocation fails with ENOMEM.
	Data int64
}

// Options are the same for all ranks of a group.
type Options struct {
	// Marker is the value of GPURUN_RUN_ID in each rank's environment. It must be
	// new for each group. Empty means none, and then a process that does not
	// descend from a rank is never found.
	Marker string
	Limits Limits
	// Logger hears what is no error of the job, such as the loss of a guard. Nil
	// means nobody.
	Logger *slog.Logger
	// Patience bounds how long Stop waits for what SIGKILL does not end at once.
	// 0 means 30 s.
	Patience time.Duration
}

// A StopReport says what it took to stop a group.
type StopReport struct {
	// Killed are the global ranks that were still running when the grace was
	// over, and got SIGKILL, in ascending order.
	Killed []int
	// Swept counts the other processes that got SIGKILL.
	Swept int
	// Leftover are still there: uninterruptible, or another user's.
	Leftover []Process
}
