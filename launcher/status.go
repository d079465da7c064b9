package launcher

import (
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A Status is the state of a run at one time: its status.json. Unknown values are absent.
type Status struct {
	Run string `json:"run"`
	Job string `json:"job"`
	// Outcome is how the run ended; absent while it runs.
	Outcome strategy.Outcome `json:"outcome,omitempty"`
	// Attempt is the number of the latest attempt, from 0. Running: its ranks run.
	Attempt     int  `json:"attempt"`
	MaxAttempts int  `json:"max_attempts,omitempty"`
	Running     bool `json:"running"`
	// Step and Total are those of the rank with the most steps, Rate is in steps a second.
	Step  int      `json:"step,omitempty"`
	Total int      `json:"total,omitempty"`
	Rate  float64  `json:"rate,omitempty"`
	Loss  *float64 `json:"loss,omitempty"`
	// Memory is that of the rank whose peak is the largest part of its allowed memory.
	Memory *StatusMemory `json:"memory,omitempty"`
	// Ranks are those of all nodes, if there are several ranks; of more than 256 on several nodes, those whose peak is the
	// largest part of their allowed memory.
	Ranks []StatusRank `json:"ranks,omitempty"`
	// Seconds is how long the attempt has run, ETA how long it is expected to take.
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
	// Used is PyTorch's allocation now, or on the CPU the process's memory; before the first step on a GPU, that of all
	// processes on the device. Reserved is the memory of PyTorch's allocator, and Peak the most that it ever gave.
	Used     int64 `json:"used_bytes,omitempty"`
	Reserved int64 `json:"reserved_bytes,omitempty"`
	Peak     int64 `json:"peak_bytes,omitempty"`
	// Allowed is the limit of the rank.
	Allowed int64 `json:"allowed_bytes,omitempty"`
	// Retries is how often the allocator freed its cache to find memory.
	Retries int64 `json:"retries,omitempty"`
}
