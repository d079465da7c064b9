package strategy

// An Advice is one action of the user after a run that ended without training.
type Advice struct {
	Kind NextKind `json:"kind"`
	// Command is a line for a shell, typed where gpurun was started; empty for other hardware.
	Command string `json:"command,omitempty"`
	// Diff is the change that Command makes to files of the job.
	Diff   string `json:"diff,omitempty"`
	Reason string `json:"reason"`
	// Peak is the predicted peak in bytes of the device's allocator: the mean and the bound.
	Peak []int64 `json:"predicted_peak_bytes,omitempty"`
}

// A LogPlace is where the log of a rank shows a failure.
type LogPlace struct {
	Attempt, Rank int
	Stream        string // "stdout" or "stderr"
	Line          int    // 0: not known
}
