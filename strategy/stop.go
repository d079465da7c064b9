package strategy

import (
	"fmt"
	"time"
)

// A Stop says that ranks have to be stopped: all of them, but for StopPeers.
type Stop struct {
	At     time.Time  `json:"at"`
	Reason StopReason `json:"reason"`
	// Rank is the one that hangs, or of StopPeers the one that named the cause, -1 where
	// ranks have failed by themselves.
	Rank int `json:"rank"`
	// For is how long it has hung.
	For Seconds `json:"for_seconds,omitempty"`
}

// A StopReason is why ranks are stopped.
type StopReason string

// The reasons. Ranks have failed and the others cannot go on; a rank has named a root
// cause and is ending, and the others, which alone are stopped, cannot go on; a rank
// told of its own end and lives on; a rank printed an out-of-memory traceback and then
// nothing; no rank has made a step; a GPU was found broken before one has.
const (
	StopFailed    StopReason = "failed"
	StopPeers     StopReason = "peers"
	StopLingering StopReason = "lingering"
	StopSilent    StopReason = "silent"
	StopStalled   StopReason = "stalled"
	StopUnfit     StopReason = "unfit"
)

// String says what is done and why, in one sentence.
func (s Stop) String() string {
	if notice := s.Notice(); notice != "" {
		return notice
	}
	return "ranks have failed, and all ranks are stopped"
}

// Notice tells people why ranks are stopped that have not failed by themselves, empty
// where they have.
func (s Stop) Notice() string {
	since := s.For.Duration().Round(time.Second)
	switch s.Reason {
	case StopLingering:
		return fmt.Sprintf("rank %d raised an exception and has not ended for %s: it hangs, and all ranks are stopped", s.Rank, since)
	case StopSilent:
		return fmt.Sprintf("rank %d printed an out-of-memory traceback and then nothing for %s: it hangs, and all ranks are stopped", s.Rank, since)
	case StopStalled:
		return fmt.Sprintf("no rank has made a step for %s: the job hangs, and all ranks are stopped", since)
	case StopUnfit:
		return "a GPU is not fit to train on, and no step was made yet: the attempt is ended"
	}
	return ""
}
