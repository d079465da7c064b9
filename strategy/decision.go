package strategy

import (
	"cmp"
	"fmt"

	"github.com/gpurun/gpurun/strategy/memory"
)

// A Decision is the next action after an attempt: relaunch with a plan, or stop with an outcome
// and an exit code.
type Decision struct {
	Relaunch bool   `json:"relaunch"`
	Rule     string `json:"rule"`   // the rule that applied
	Reason   string `json:"reason"` // one sentence with cause, evidence and action

	// The next attempt, if there is one.
	Next   Plan     `json:"next,omitempty"`
	Remedy Remedy   `json:"rung,omitempty"`
	Riders []Remedy `json:"riders,omitempty"` // free remedies that are applied together with Remedy
	// Remedies lists the remedies between the last plan and the next, in their order; Remedy is the
	// last of them.
	Remedies []Remedy `json:"rungs,omitempty"`
	// Expected is the predicted need of the next plan; nil if there is no prediction.
	Expected *memory.Prediction `json:"expected,omitempty"`
	// ByMean: the mean of Expected decided that the plan fits, since processes would do a step again
	// that runs out of memory. Otherwise the bound did. Margin is the fraction that was added to the mean.
	ByMean bool    `json:"by_mean,omitempty"`
	Margin float64 `json:"margin,omitempty"`
	// Outvoted are the plans that were not chosen, the runner-up first.
	Outvoted []Outvoted `json:"outvoted,omitempty"`
	Changed  Changes    `json:"changed,omitempty"`
	// Training is the effect of the next plan on the training.
	Training Training `json:"training,omitempty"`
	// Resume is the checkpoint to start from; empty: the beginning.
	Resume string `json:"resume,omitempty"`
	// Caveat names what the framework does not guarantee about the data when it resumes: samples
	// that are skipped or seen again.
	Caveat string `json:"caveat,omitempty"`
	// After is the wait before the next attempt.
	After Seconds `json:"after_seconds,omitempty"`
	// Late is the reason why the next attempt waits until the run is started again: it could not
	// end in time.
	Late string `json:"late,omitempty"`

	// Unpredicted is the reason why mode Predict fell back to the order of remedies; empty for
	// failures that are never predicted.
	Unpredicted     string          `json:"unpredicted,omitempty"`
	UnpredictedCode UnpredictedCode `json:"unpredicted_code,omitempty"` // empty from an earlier version
	// Proposal is a faster plan that was not taken, with the reason.
	Proposal string `json:"proposal,omitempty"`

	// The end, if there is no next attempt.
	Outcome Outcome `json:"outcome,omitempty"`
	Code    int     `json:"code"`

	// Ineffective are the changes to the last plan that had no effect, each with the planned
	// value and the one in use.
	Ineffective Changes `json:"untaken,omitempty"`
	// Headroom is set if the job trained and was measured.
	Headroom *Headroom `json:"headroom,omitempty"`
	// Skipped lists the remedies that were not taken.
	Skipped []Skip `json:"skipped,omitempty"`
}

// An Outvoted is a plan that could have come next, with the reason why it was not chosen.
type Outvoted struct {
	Plan     Plan              `json:"plan"`
	Reason   string            `json:"reason"`
	Expected memory.Prediction `json:"expected"`
}

// An Outcome is the way in which a run ended.
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
	CodeFailed    = 1  // the job failed
	CodeUsage     = 2  // nothing was started
	CodeExhausted = 12 // memory: no plan left, or a bound was reached (ENOMEM)
	CodeBug       = 70 // a bug in gpurun (EX_SOFTWARE)
	CodeRunDir    = 74 // the run directory cannot be written (EX_IOERR)
	CodeDisk      = 74 // a disk that the job writes is full
	CodeRetry     = 75 // try again later (EX_TEMPFAIL)
)

// code is the usual exit code of an outcome.
func (o Outcome) code() int {
	return map[Outcome]int{Trained: CodeTrained, Failed: CodeFailed, Exhausted: CodeExhausted, Retry: CodeRetry}[o]
}

// Final reports whether a run with this outcome is finished: another start does not continue it.
func (o Outcome) Final() bool { return o == Trained || o == Failed || o == Exhausted }

// Words is the outcome for people: a run that another start continues is not finished.
func (o Outcome) Words() string {
	if o == Retry {
		return "not finished"
	}
	if o == Exhausted {
		return "no plan left"
	}
	return string(o)
}

// WordsOf is Words with the exit code of a run that is not finished: 74 and 75 ask for other things.
func (o Outcome) WordsOf(code int) string {
	if o == Retry {
		return fmt.Sprintf("%s (%d)", o.Words(), cmp.Or(code, CodeRetry))
	}
	return o.Words()
}

// Valid reports whether the outcome exists.
func (o Outcome) Valid() bool { return o.Final() || o == Stopped || o == Retry }
