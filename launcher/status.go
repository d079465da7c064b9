package launcher

import (
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A Status is the content of status.json: the state of a run at one time. Unknown values are absent.
type Status struct {
	Run string `json:"run"`
	Job string `json:"job"`
	// Outcome is how the run ended; absent while it runs.
	Outcome strategy.Outcome `json:"outcome,omitempty"`
	// Attempt is the number of the latest attempt, from 0. Running: its ranks run.
	Attempt     int  `json:"attempt"`
	MaxAttempts int  `json:"max_attempts,omitempty"`
	Running     bool `json:"running"`
	// Paused says that gpurun is stopped, as by Ctrl-Z; not in the file, only in the output of gpurun status.
	Paused bool `json:"paused,omitempty"`
	// Step and Total are those of the rank with the most steps. Rate is in steps per second.
	Step  int      `json:"step,omitempty"`
	Total int      `json:"total,omitempty"`
	Rate  float64  `json:"rate,omitempty"`
	Loss  *float64 `json:"loss,omitempty"`
	// InPlace is how many steps of the attempt ran out of memory and were done again in place.
	InPlace int `json:"in_place,omitempty"`
	// Memory is the memory of the rank that is nearest to its limit.
	Memory *StatusMemory `json:"memory,omitempty"`
	// Ranks are the ranks of all nodes, if there are several. Of more than 256 on several nodes, only those
	// nearest to their memory limit.
	Ranks []StatusRank `json:"ranks,omitempty"`
	// Seconds is how long the attempt has run, ETA how long it will still run.
	Seconds strategy.Seconds  `json:"seconds"`
	ETA     *strategy.Seconds `json:"eta_seconds,omitempty"`
	Time    time.Time         `json:"time"` // of these figures
	// Host and PID are those of the gpurun that wrote this.
	Host string `json:"host"`
	PID  int    `json:"pid"`
}

// StatusRank is one rank's memory and latest step.
type StatusRank struct {
	StatusMemory
	Step int `json:"step,omitempty"`
}

// StatusMemory is the memory of one rank, in bytes of the device that it trains on.
type StatusMemory struct {
	Rank   int    `json:"rank"`
	Device string `json:"device,omitempty"` // "cuda:0", or "cpu"
	// Used is PyTorch's allocation now. On the CPU it is the process's memory; before the first step on a
	// GPU, the memory of all processes on the device. Reserved is the memory that PyTorch's allocator holds,
	// and Peak the most that it ever had allocated.
	Used     int64 `json:"used_bytes,omitempty"`
	Reserved int64 `json:"reserved_bytes,omitempty"`
	Peak     int64 `json:"peak_bytes,omitempty"`
	// Allowed is the memory that the rank may use.
	Allowed int64 `json:"allowed_bytes,omitempty"`
	// Retries is how often the allocator freed its cache to find memory.
	Retries int64 `json:"retries,omitempty"`
}
