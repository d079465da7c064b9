package model

import (
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// SamplesFile is the name of the file in an attempt's folder that has its samples.
const SamplesFile = "samples.jsonl"

// A Sample is one reading of a rank's state: a line of an attempt's samples.jsonl, and what
// other nodes send to node 0. Bytes are of the memory that the job trains in; a zero is not
// known.
type Sample struct {
	Time time.Time `json:"time"`
	Rank int       `json:"rank"` // over all nodes
	// Device is "cuda:0", or "cpu".
	Device string `json:"device,omitempty"`
	// Step is the number of the latest optimizer step, Total that of all steps.
	Step  int      `json:"step,omitempty"`
	Total int      `json:"total,omitempty"`
	Loss  *float64 `json:"loss,omitempty"`
	// Batches says that both are by the job's lines, which may count micro batches: the process
	// counts optimizer steps. This, and what follows up to Forward, is in no file.
	Batches bool `json:"batches,omitempty"`
	// Counted is how many optimizer steps the process counts, whatever Step shows, and
	// CountedAt when the latest of them ended; 0 for a rank that has ended, too.
	Counted   int       `json:"counted,omitempty"`
	CountedAt time.Time `json:"counted_at,omitzero"`
	// Data is how long the process waits for data in a step, and Forward what its forward
	// passes take of one; 0 is not known.
	Data    strategy.Seconds `json:"data,omitempty"`
	Forward strategy.Seconds `json:"forward,omitempty"`
	// Phase is "load" before the first step, and "train" from then on, but "eval" and "save"
	// where the process tells that it evaluates or writes a checkpoint.
	Phase string `json:"phase,omitempty"`
	// Allocated and Reserved are what PyTorch's allocator gives and holds now (on the CPU
	// Allocated is the process's own memory, before the first step as well), Peak the most that it ever gave, Retries how
	// often it gave its cache back to find room.
	Allocated int64 `json:"allocated_bytes,omitempty"`
	Reserved  int64 `json:"reserved_bytes,omitempty"`
	Peak      int64 `json:"peak_bytes,omitempty"`
	Retries   int64 `json:"retries,omitempty"`
	// Allowed is what the rank may hold: the ceiling, else the device's memory, on the CPU its
	// part of the host's. Used is what all processes hold of the device as the driver tells,
	// Capacity its memory.
	Allowed  int64 `json:"allowed_bytes,omitempty"`
	Used     int64 `json:"used_bytes,omitempty"`
	Capacity int64 `json:"capacity_bytes,omitempty"`
}
