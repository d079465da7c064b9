package cause

// A Sighting is one place in a rank's output where a cause shows.
type Sighting struct {
	Code Code `json:"code"`
	// Raised says that the text is the last line of an uncaught-looking
	// traceback (an exception with its message), rather than a line that
	// something logged.
	Raised bool `json:"raised,omitempty"`
	// Symptom marks what other failures bring about: a watchdog's timeout, a
	// closed store, a broken pipe. It is never the cause while a cause is there.
	Symptom bool `json:"symptom,omitempty"`
	// Handled says that the job went on after it: more steps, or the job's own
	// words that it skips, retries or reduces.
	Handled bool `json:"handled,omitempty"`
	// Phase is told by the frames of the traceback that the line ends.
	Phase Phase `json:"phase,omitempty"`
	// Rank is the rank that a prefix of the line names, -1 without one.
	Rank int `json:"rank"`
	// Device is "cuda:3", "cpu", or empty where the text does not say.
	Device string `json:"device,omitempty"`
	// Stream is the name that the stream's scanner was given, and Seq numbers the
	// sightings of the stream from 1. A later sighting with the same Stream and
	// Seq replaces the earlier one: its message went on over further lines, or
	// the job went on after it.
	Stream string `json:"stream,omitempty"`
	Seq    int    `json:"seq,omitempty"`
	// Weak says that the text proves nothing by itself: a warning, or what a
	// failing and a healthy job both print. It counts only where nothing else does.
	Weak bool `json:"weak,omitempty"`
	// WentOn says that the stream told of more training steps after it. Another
	// process may have written them, where several share the stream.
	WentOn bool `json:"went_on,omitempty"`
	// Step is the number of the last training step that the stream told of before
	// it, 0 for none.
	Step int `json:"step,omitempty"`
	// Growth is the memory use that rose up to an out-of-memory error, nil where
	// the output does not tell of any.
	Growth *Growth `json:"growth,omitempty"`
	// Line is the line's number in its stream, from 1.
	Line int `json:"line"`
	// Text is the line itself, prefixes and control bytes removed, at most 4 KiB.
	Text    string  `json:"text"`
	Figures Figures `json:"figures,omitzero"`
	// Traceback holds the last lines of the traceback that Text ends, oldest
	// first, at most 40.
	Traceback []string `json:"traceback,omitempty"`
}

// Figures are the numbers of an out-of-memory message, in bytes. A nil figure is
// one that the text does not give, or gives impossibly.
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
