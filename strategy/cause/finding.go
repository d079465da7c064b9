package cause

import "fmt"

// A Finding is a match of the catalogue in one place: a line of a rank's output, the exception
// that the rank itself reported, or an event of the driver.
type Finding struct {
	Code   Code   `json:"code"`
	Weight Weight `json:"weight"`
	// Raised: Text is the last line of a traceback that looks uncaught (an exception with its
	// message), rather than a logged line. A finding of any weight can be raised.
	Raised bool `json:"raised,omitempty"`
	// Top: the exception leaves the program; the outermost frame of its traceback is a module.
	Top bool `json:"top,omitempty"`
	// Quoted: the traceback is directly below the message of an exception that left the program,
	// as a part of it.
	Quoted bool `json:"quoted,omitempty"`
	// After is the Seq of the exception that this one was raised from, or during whose handling it was
	// raised; 0: none.
	After int `json:"after,omitempty"`
	// From is the cause of the exception that this one was raised from; empty: none.
	From    Code     `json:"from,omitempty"`
	Remarks []Remark `json:"remarks,omitempty"`
	// Phase follows from the frames of the traceback that the line ends.
	Phase Phase `json:"phase,omitempty"`
	// Rank is the rank that a prefix of the line names; -1: none.
	Rank int `json:"rank"`
	// Device is "cuda:3", "cpu", or empty if the text does not name it.
	Device string `json:"device,omitempty"`
	// Stream is the name of the scanner's stream, and Seq numbers its findings from 1. A later
	// finding with the same Stream and Seq replaces the earlier one: its message continued on
	// further lines, or the job continued after it. Seq is 0 if findings are not numbered.
	Stream string `json:"stream,omitempty"`
	Seq    int    `json:"seq,omitempty"`
	// Start is the number of the job's start in the stream that the finding belongs to, from 0.
	// Begins is set in the finding of a line that begins another start: the sign of it.
	Start  int  `json:"start,omitempty"`
	Begins Sign `json:"begins,omitempty"`
	// Last: saved output ends with it; no step and no report of a good end follow. A start that
	// such a line begins shows nothing.
	Last bool `json:"last,omitempty"`
	// Beside: the reporter is not the rank's own process, but one of several below a shell, or
	// one that never trained.
	Beside bool `json:"beside,omitempty"`
	// Step is the last training step in the stream before it; 0: none.
	Step int `json:"step,omitempty"`
	// Growth is the memory use that rose up to an out-of-memory error; nil if the output shows
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

// Figures are the numbers of an out-of-memory message, in bytes; nil if the text has none, or an
// impossible one.
type Figures struct {
	Requested *int64 `json:"requested_bytes"` // size of the failed allocation
	Capacity  *int64 `json:"capacity_bytes"`  // the device's total memory
	Free      *int64 `json:"free_bytes"`      // free on the device at that moment
	// a cap below the capacity (per_process_memory_fraction)
	Allowed             *int64 `json:"allowed_bytes"`
	Process             *int64 `json:"process_bytes"`              // in use by this process
	Allocated           *int64 `json:"allocated_bytes"`            // in live tensors, by PyTorch
	ReservedUnallocated *int64 `json:"reserved_unallocated_bytes"` // held by PyTorch's allocator, in no tensor
	OtherProcess        *int64 `json:"other_process_bytes"`        // in use by other processes, summed
}

// A Weight is the strength of a finding as the reason of an end. Each finding has exactly one; this
// table is the only definition of the weights.
//
//	weight    the end's cause?                            who gives it
//	cause     yes: the text names a cause                 the catalogue
//	symptom   only if no cause is known                   the catalogue: a watchdog's timeout, a closed store
//	warning   only if nothing else is known               the catalogue, an exception that Python ignores,
//	                                                      a line that only mentions an out-of-memory error
//	outlived  only if the rank's exit was not seen        the scanner: training steps followed in the stream,
//	                                                      which another process may have written
//	handled   no: the job dealt with it                   the job's message that it skips, retries or reduces,
//	                                                      or training steps of the same program
//	harmless  no, and it is no reason for advice either   a warning after which the job continued
//
// While a job runs, the last three no longer make a rank suspect. A finding that is
// reported again can only move down this table.
type Weight uint8

// The weights. The zero Weight is WeightCause.
const (
	WeightCause Weight = iota
	WeightSymptom
	WeightWarning
	WeightOutlived
	WeightHandled
	WeightHarmless
)

var weightNames = [...]string{"cause", "symptom", "warning", "outlived", "handled", "harmless"}

func (w Weight) String() string {
	if int(w) < len(weightNames) {
		return weightNames[w]
	}
	return fmt.Sprintf("Weight(%d)", int(w))
}

// MarshalText writes the weight's name.
func (w Weight) MarshalText() ([]byte, error) {
	if int(w) >= len(weightNames) {
		return nil, fmt.Errorf("weight %d has no name", int(w))
	}
	return []byte(weightNames[w]), nil
}

// UnmarshalText reads the form that MarshalText writes.
func (w *Weight) UnmarshalText(text []byte) error {
	for i, name := range weightNames {
		if string(text) == name {
			*w = Weight(i)
			return nil
		}
	}
	return fmt.Errorf("unknown weight %q", text)
}

// Over reports whether the job continued after the finding.
func (w Weight) Over() bool { return w >= WeightOutlived }

// Warning reports whether the finding is only a warning, whatever came after it.
func (w Weight) Warning() bool { return w == WeightWarning || w == WeightHarmless }

// Dismissed reports whether the job dealt with the finding, so it cannot be a cause.
func (w Weight) Dismissed() bool { return w == WeightHandled || w == WeightHarmless }

// Handled returns the weight of a finding after the job dealt with it.
func (w Weight) Handled() Weight {
	switch w {
	case WeightWarning, WeightHarmless:
		return WeightHarmless
	}
	return WeightHandled
}

// Outlived returns the weight of a finding after which more steps were seen.
func (w Weight) Outlived() Weight {
	switch w {
	case WeightWarning, WeightHarmless, WeightHandled:
		return w.Handled()
	}
	return WeightOutlived
}

// Warned returns the weight of a finding whose surroundings make it a warning.
func (w Weight) Warned() Weight {
	if w.Over() {
		return WeightHarmless
	}
	return WeightWarning
}

// Final returns the weight of a finding that the process itself reports as its end.
func (w Weight) Final() Weight {
	switch w {
	case WeightHandled:
		return WeightCause
	case WeightHarmless:
		return WeightWarning
	}
	return w
}
