package strategy

import (
	"fmt"

	"github.com/gpurun/gpurun/strategy/memory"
)

// A Decision is what to do after an attempt: relaunch with a plan, or stop with
// an outcome and an exit code.
type Decision struct {
	Relaunch bool `json:"relaunch"`
	// Rule names the rule that fired.
	Rule string `json:"rule"`
	// Reason is one sentence with cause, evidence and action.
	Reason string `json:"reason"`

	// The next attempt, where there is one.
	Next   Plan   `json:"next,omitempty"`
	Rung   Rung   `json:"rung,omitempty"`
	Riders []Rung `json:"riders,omitempty"` // free rungs that ride along
	// Rungs are all that the next plan needs beside what ran last, in the tree's order; Rung
	// is the last of them.
	Rungs []Rung `json:"rungs,omitempty"`
	// Expected is what the next plan is predicted to need; nil where nothing predicts.
	Expected *memory.Prediction `json:"expected,omitempty"`
	// Outvoted are the plans that lost against it, the runner-up first.
	Outvoted []Outvoted `json:"outvoted,omitempty"`
	Changed  Changes    `json:"changed,omitempty"`
	// Training is what the next plan does to the training, beside the job as it is written.
	Training Training `json:"training,omitempty"`
	// Resume is the checkpoint to start from, empty to start from the beginning.
	Resume string `json:"resume,omitempty"`
	// Caveat says what the framework does not guarantee about the data when it goes on
	// from there: samples that are skipped or seen again.
	Caveat string `json:"caveat,omitempty"`
	// After is how long to wait for the resources before the next attempt.
	After Seconds `json:"after_seconds,omitempty"`
	// Late says why the next attempt is not begun before the run is started again: it could
	// not end in time. It is empty where it is begun now.
	Late string `json:"late,omitempty"`

	// Unpredicted says why the ladder was walked where the mode is predict; empty where the
	// failure is one that is not predicted for.
	Unpredicted string `json:"unpredicted,omitempty"`

	// Proposal is a faster plan that was not gone up to, with the reason; empty where there
	// is none.
	Proposal string `json:"proposal,omitempty"`

	// The end, where there is no next attempt.
	Outcome Outcome `json:"outcome,omitempty"`
	Code    int     `json:"code"`

	// Ineffective are the changes to the last attempt that did not take effect, each with
	// the value that was asked for and the one in use.
	Ineffective Changes `json:"untaken,omitempty"`

	// Headroom is what the job needed beside what there was, where it trained and was
	// measured.
	Headroom *Headroom `json:"headroom,omitempty"`

	// Skipped lists the rungs that the walk passed over.
	Skipped []Skip `json:"skipped,omitempty"`
}

// An Outvoted is a plan that could have come next, and why it did not.
type Outvoted struct {
	Plan     Plan              `json:"plan"`
	Reason   string            `json:"reason"`
	Expected memory.Prediction `json:"expected"`
}

// An Outcome is how a run ended.
type Outcome string

// The outcomes.
const (
	Trained   Outcome = "trained"
	Failed    Outcome = "failed"
	Exhausted Outcome = "exhausted"
	Stopped   Outcome = "stopped"
	Retry     Outcome = "retry"
)

// Exit codes of a run, stable.
const (
	CodeTrained   = 0
	CodeFailed    = 1  // the job failed for a reason of its own
	CodeUsage     = 2  // nothing was started
	CodeExhausted = 12 // memory: nothing left to try, or a bound was reached (ENOMEM)
	CodeBug       = 70 // a bug in gpurun (EX_SOFTWARE)
	CodeRunDir    = 74 // the run directory cannot be written (EX_IOERR)
	CodeRetry     = 75 // try again later (EX_TEMPFAIL)
)

// Final reports whether a run that ended so is done: it does not go on when it is
// started again.
func (o Outcome) Final() bool { return o == Trained || o == Failed || o == Exhausted }

// Words are what people are told: a run that goes on when it is started again is not finished.
func (o Outcome) Words() string {
	if o == Retry {
		return fmt.Sprintf("not finished (%d)", CodeRetry)
	}
	return string(o)
}

// Valid reports whether there is such an outcome.
func (o Outcome) Valid() bool { return o.Final() || o == Stopped || o == Retry }
