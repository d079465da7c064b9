package cause

// A Finding is what the catalogue recognised in one place: a line of a rank's output, the
// exception that the rank itself reported, or an event of the driver.
type Finding struct {
	Code   Code   `json:"code"`
	Weight Weight `json:"weight"`
	// Raised: Text is the last line of an uncaught-looking traceback (an exception with its
	// message), rather than a line that something logged. A finding of any weight can be raised.
	Raised bool `json:"raised,omitempty"`
	// Top: the traceback leaves the program; its outermost frame is a module.
	Top bool `json:"top,omitempty"`
	// Quoted: the traceback is directly below the message of an exception that left the program,
	// as a part of it.
	Quoted bool `json:"quoted,omitempty"`
	// From is the cause of the exception that this one was raised from, empty for none.
	From    Code     `json:"from,omitempty"`
	Remarks []Remark `json:"remarks,omitempty"`
	// Phase is by the frames of the traceback that the line ends.
	Phase Phase `json:"phase,omitempty"`
	// Rank is the rank that a prefix of the line names, -1 without one.
	Rank int `json:"rank"`
	// Device is "cuda:3", "cpu", or empty where the text does not say.
	Device string `json:"device,omitempty"`
	// Stream is the name of the scanner's stream, and Seq numbers its findings from 1. A later
	// finding with the same Stream and Seq replaces the earlier one: its message continued on
	// further lines, or the job continued after it. Seq is 0 where findings are not numbered.
	Stream string `json:"stream,omitempty"`
	Seq    int    `json:"seq,omitempty"`
	// Last: saved output ends with it; no step and no report of a good end follow.
	Last bool `json:"last,omitempty"`
	// Beside: another process than the rank reported it, one of several below a shell, or one
	// that never trained.
	Beside bool `json:"beside,omitempty"`
	// Step is the last training step in the stream before it, 0 for none.
	Step int `json:"step,omitempty"`
	// Growth is the memory use that rose up to an out-of-memory error, nil where the output shows
	// none.
	Growth *Growth `json:"growth,omitempty"`
	// Line is the line's number in its stream, from 1.
	Line int `json:"line"`
	// Text is the line without prefixes and control bytes, at most 4 KiB.
	Text    string  `json:"text"`
	Figures Figures `json:"figures,omitzero"`
	// Traceback are the last lines of the traceback that Text ends, oldest first, at most 40.
	Traceback []string `json:"traceback,omitempty"`
}

// Figures are the numbers of an out-of-memory message, in bytes, nil where the text does not give
// one, or an impossible one.
type Figures struct {
	Requested           *int64 `json:"requested_bytes"`            // what the failed call asked for
	Capacity            *int64 `json:"capacity_bytes"`             // the device's total memory
	Free                *int64 `json:"free_bytes"`                 // free on the device at that moment
	Allowed             *int64 `json:"allowed_bytes"`              // a cap below the capacity (per_process_memory_fraction)
	Process             *int64 `json:"process_bytes"`              // in use by this process
	Allocated           *int64 `json:"allocated_bytes"`            // in live tensors, by PyTorch
	ReservedUnallocated *int64 `json:"reserved_unallocated_bytes"` // held by PyTorch's allocator, in no tensor
	OtherProcess        *int64 `json:"other_process_bytes"`        // in use by other processes, summed
}
