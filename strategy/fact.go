package strategy

import (
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// A Fact is one observed thing. Exactly one of the pointers, or Gap, is set.
type Fact struct {
	Time time.Time `json:"time"`
	// Again is when a finding was given again with what became of it since Time, the
	// zero time for never.
	Again time.Time `json:"again,omitzero"`
	// Rank is the global rank that the fact is about, -1 for a node or the job.
	Rank int `json:"rank"`
	// Source says who observed it: "stdout", "stderr", "error.json", "exit",
	// "cgroup", "nvml", "probe", "gpurun".
	Source string `json:"source"`

	Finding  *cause.Finding `json:"finding,omitempty"`
	Exit     *Exit          `json:"exit,omitempty"`
	Progress *Progress      `json:"progress,omitempty"`
	Kills    *Kills         `json:"kills,omitempty"`
	Tenant   *Tenant        `json:"tenant,omitempty"`
	Stuck    *Stuck         `json:"stuck,omitempty"`
	// Growth is memory use that rose up to the end of the rank's output. It is
	// given for output that ends; an error's own growth is in its Finding.
	Growth *cause.Growth `json:"growth,omitempty"`
	// DriverEvent is what the GPU driver told of a device that the job uses.
	DriverEvent *cause.DriverEvent `json:"driver_event,omitempty"`
	// Observed is a setting that the job itself says it uses.
	Observed *ObservedSetting `json:"observed,omitempty"`
	// Said is what a rank's own process says of itself; what it says later replaces it.
	Said *Said `json:"said,omitempty"`
	// ProcessEnd is how a process below a rank's shell ended.
	ProcessEnd *ProcessEnd `json:"process_end,omitempty"`
	// Memory is what a rank's own process measured; what it says later replaces it.
	Memory *memory.Measurement `json:"memory,omitempty"`
	// Snapshot is what a rank's allocator held when memory ran out.
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	// Sign is what the rank last let see of itself when the failure detector
	// looked at it.
	Sign *Sign `json:"sign,omitempty"`
	// Stall says that all ranks were stopped because none made a step, and Stack where one
	// was by then.
	Stall *Stall `json:"stall,omitempty"`
	Stack *Stack `json:"stack,omitempty"`
	// Nodes are the hosts of all nodes of the attempt, by their numbers, where there are
	// several.
	Nodes []string `json:"nodes,omitempty"`
	// Lost is a node that takes no part in the attempt any more.
	Lost *Lost `json:"lost,omitempty"`
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
	// Shell says that the process was a program that starts others, and whose code may be
	// that of any of them.
	Shell bool `json:"shell,omitempty"`
	// Peak is the largest resident set of the process, in bytes, 0 if unknown.
	Peak int64 `json:"peak_bytes,omitempty"`
	PID  int   `json:"pid"`
}

// Progress sums up the training steps that a rank reported in one attempt.
type Progress struct {
	Steps int `json:"steps"`           // lines that matched, with another number than the one before
	First int `json:"first"`           // the first step's number
	Last  int `json:"last"`            // the last step's number
	Total int `json:"total,omitempty"` // the number of steps that the job has, 0 if unknown
	// Loss is the last one that a line with a step showed; nil where none did. A loss that
	// is no number is none.
	Loss    *float64 `json:"loss,omitempty"`
	Longest Seconds  `json:"longest_seconds,omitempty"`
	For     Seconds  `json:"for_seconds,omitempty"` // from the first step to the last
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
	// Debugger is who holds it: "gdb (process 123)"; empty for nobody.
	Debugger string `json:"debugger,omitempty"`
}

// An ObservedSetting is what the job itself says of what it was given: the value
// that it uses for a knob, or one of the other fields.
type ObservedSetting struct {
	Knob  Knob  `json:"knob,omitempty"`
	Value Value `json:"value,omitempty"`
	// Fresh says that the job starts from the beginning, whatever it was told.
	Fresh bool `json:"fresh,omitempty"`
	// Nothing says that the job found nothing to do.
	Nothing bool `json:"nothing,omitempty"`
	// Text is the line that says so, or the name of the file.
	Text string `json:"text,omitempty"`
}

// A Sign is the last sign of life of a rank, as far as its output and the job's
// steps show one. The zero time says never.
type Sign struct {
	Output  time.Time `json:"output,omitzero"`           // the last byte that the rank wrote
	Step    time.Time `json:"step,omitzero"`             // its last step
	Others  time.Time `json:"others,omitzero"`           // the last step on any rank, its own included
	Longest Seconds   `json:"longest_seconds,omitempty"` // the longest step so far, on any rank
	Steps   int       `json:"steps,omitempty"`           // that all ranks made so far, together
	Anyone  time.Time `json:"anyone,omitzero"`           // the last byte that any rank wrote
	// Awake is when the ranks last went on after a pause.
	Awake time.Time `json:"awake,omitzero"`
	// Saved is when the job's checkpoint was seen to grow after a rank had told of its
	// own end. It is given for no rank, since nobody knows who writes.
	Saved time.Time `json:"saved,omitzero"`
}
