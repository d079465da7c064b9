package strategy

import (
	"time"
)

// SamplesFile is the name of the file in an attempt's folder that has its samples.
const SamplesFile = "samples.jsonl"

// A Sample is one reading of a rank's state: a line of an attempt's samples.jsonl, and a message
// from other nodes to node 0. Bytes are of the memory in which the job trains; 0: not known.
type Sample struct {
	Time   time.Time `json:"time"`
	Rank   int       `json:"rank"`             // over all nodes
	Device string    `json:"device,omitempty"` // "cuda:0", or "cpu"
	Step   int       `json:"step,omitempty"`   // the latest optimizer step
	Total  int       `json:"total,omitempty"`  // steps of the job
	Loss   *float64  `json:"loss,omitempty"`
	// Batches: Step and Total are from the job's lines, which may count micro batches; a process
	// counts optimizer steps. The fields from here to Forward are not in the file.
	Batches bool `json:"batches,omitempty"`
	// Counted is the number of optimizer steps that the process counts, and CountedAt the end of
	// the latest; 0 also for a rank that has ended.
	Counted   int       `json:"counted,omitempty"`
	CountedAt time.Time `json:"counted_at,omitzero"`
	// Data is the wait for data in a step, Forward the time of its forward passes; 0: not known.
	Data    Seconds `json:"data,omitempty"`
	Forward Seconds `json:"forward,omitempty"`
	// InPlace: the rank has done steps again in place, and computes longer than the others since.
	InPlace bool `json:"in_place,omitempty"`
	// Phase is "load" before the first step, then "train", and "eval" or "save" if the process
	// reports an evaluation or a checkpoint.
	Phase string `json:"phase,omitempty"`
	// Allocated and Reserved are the bytes that PyTorch's allocator has given out and holds now,
	// Peak the most that it has ever given out, Retries the number of times that it emptied its
	// cache to serve a request. On the CPU, Allocated is the process's memory.
	Allocated int64 `json:"allocated_bytes,omitempty"`
	Reserved  int64 `json:"reserved_bytes,omitempty"`
	Peak      int64 `json:"peak_bytes,omitempty"`
	Retries   int64 `json:"retries,omitempty"`
	// Allowed is the limit of the rank: the ceiling, or else the device's memory, on the CPU its
	// part of the host's. Used is the memory of the device that all processes hold, Capacity its
	// size.
	Allowed  int64 `json:"allowed_bytes,omitempty"`
	Used     int64 `json:"used_bytes,omitempty"`
	Capacity int64 `json:"capacity_bytes,omitempty"`
}
