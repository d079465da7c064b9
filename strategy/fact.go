package strategy

import (
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A Fact is one observed thing. Exactly one of the pointers, or Gap, is set.
type Fact struct {
	Time time.Time `json:"time"`
	// Rank is the global rank that the fact is about, -1 for a node or the job.
	Rank int `json:"rank"`
	// Source says who observed it: "stdout", "stderr", "error.json", "exit",
	// "cgroup", "nvml", "probe", "gpurun".
	Source string `json:"source"`

	Sighting *cause.Sighting `json:"sighting,omitempty"`
	Exit     *Exit           `json:"exit,omitempty"`
	Progress *Progress       `json:"progress,omitempty"`
	Kills    *Kills          `json:"kills,omitempty"`
	Tenant   *Tenant         `json:"tenant,omitempty"`
	Stuck    *Stuck          `json:"stuck,omitempty"`
	// Growth is memory use that rose up to the end of the rank's output. It is
	// given for output that ends; an error's own growth is in its Sighting.
	Growth *cause.Growth `json:"growth,omitempty"`
	// DriverEvent is what the GPU driver told of a device that the job uses.
	DriverEvent *cause.DriverEvent `json:"driver_event,omitempty"`
	// Proof is what the job itself says of what it was given.
	Proof *Proof `json:"proof,omitempty"`
	// Gap names something that could not be observed: "no NVML on node 3".
	Gap string `json:"gap,omitempty"`
}

// An Exit is how one rank's process ended.
type Exit struct {
	Code int `json:"code"` // 0–255; 128+n where a signal ended it
	// Signal is the number of the signal that ended the process, 0 for none.
	Signal int `json:"signal,omitempty"`
	// Stopped says that gpurun had begun to stop the rank before it ended, so
	// that its code and signal say nothing.
	Stopped bool `json:"stopped,omitempty"`
	// Peak is the largest resident set of the process, in bytes, 0 if unknown.
	Peak int64 `json:"peak_bytes,omitempty"`
	PID  int   `json:"pid"`
}

// Progress sums up the training steps that a rank reported in one attempt.
type Progress struct {
	Steps   int     `json:"steps"` // lines that matched
	First   int     `json:"first"` // the first step's number
	Last    int     `json:"last"`  // the last step's number
	Longest Seconds `json:"longest_seconds,omitempty"`
}

// Kills is a rise of a cgroup's oom_kill counter during the attempt.
type Kills struct {
	Count int64  `json:"count"`
	Group string `json:"group"`
	Limit int64  `json:"limit_bytes,omitempty"` // 0: none
	Peak  int64  `json:"peak_bytes,omitempty"`
}

// A Tenant is memory on a device that none of the job's ranks holds.
type Tenant struct {
	Device string `json:"device"`
	Bytes  int64  `json:"bytes"`
	PIDs   []int  `json:"pids,omitempty"`
}

// Stuck is a process that SIGKILL did not end within the bound.
type Stuck struct {
	PID     int    `json:"pid"`
	Channel string `json:"wait_channel,omitempty"`
}

// Evidence is all that is known about one attempt.
type Evidence struct {
	Attempt int       `json:"attempt"`
	Plan    Plan      `json:"plan"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	Ranks   int       `json:"ranks"`
	// Accelerator is what the job trains on: "cuda" or "cpu".
	Accelerator string `json:"accelerator"`
	Facts       []Fact `json:"facts"`
	// StopSignal is the signal by which somebody asked gpurun to stop, 0 for none.
	StopSignal int `json:"stop_signal,omitempty"`
	// Halted says that gpurun stopped the ranks because a change had not taken effect.
	Halted bool `json:"halted,omitempty"`
	// Unstarted is why no rank ran; nil where they did.
	Unstarted *Unstarted `json:"unstarted,omitempty"`
}
