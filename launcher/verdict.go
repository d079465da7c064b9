package launcher

import (
	"cmp"
	"slices"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A Verdict is how the run ended, machine readable: verdict.json.
type Verdict struct {
	Outcome  strategy.Outcome `json:"outcome"`
	Code     int              `json:"code"`
	Reason   string           `json:"reason"`
	Run      string           `json:"run"`
	Attempts []AttemptSummary `json:"attempts"`
}

// An AttemptSummary is one attempt in a verdict, with what was decided after it.
type AttemptSummary struct {
	N     int           `json:"n"`
	Plan  strategy.Plan `json:"plan"`
	Cause cause.Code    `json:"cause"`
	Phase cause.Phase   `json:"phase"`
	Rank  *int          `json:"rank"` // where it began, null if that is not known
	// Seconds is how long the attempt ran, 0 where it was cut off together with gpurun.
	Seconds strategy.Seconds `json:"seconds"`
	Rung    strategy.Rung    `json:"rung,omitempty"`
	Changed strategy.Changes `json:"changed"`
	Skipped []strategy.Skip  `json:"skipped"`
	// Untaken are changes that did not take effect: what was asked for, what was used.
	Untaken strategy.Changes `json:"untaken,omitempty"`

	// ExitCode, Error and Traceback are the failing rank's own; of a traceback, the
	// last lines. Where no rank failed by itself, the code is that of the first that did
	// not end with 0. It is 0 where no rank's end was seen.
	ExitCode  int      `json:"exit_code"`
	Error     string   `json:"error,omitempty"`
	Traceback []string `json:"traceback,omitempty"`
}

// An ending is what the verdict keeps of an attempt's end beside the diagnosis.
type ending struct {
	traceback []string
	code      int // the exit code
}

func endingOf(e strategy.Evidence, d strategy.Diagnosis) ending {
	end := ending{traceback: Traceback(e, d), code: d.ExitCode}
	for _, f := range e.Facts {
		if f.Exit == nil || d.ExitCode != 0 {
			continue
		}
		if own := d.Fatal && f.Rank == d.Rank; own {
			end.code = f.Exit.Code
			break
		}
		end.code = cmp.Or(end.code, f.Exit.Code)
	}
	return end
}

// record adds an attempt, how it ended, and the decision that followed it.
func (v *Verdict) record(a strategy.Attempt, end ending, d strategy.Decision) {
	t := AttemptSummary{
		N: a.N, Plan: a.Plan, Cause: a.Diagnosis.Cause, Phase: a.Diagnosis.Phase,
		Seconds: strategy.Seconds(a.Lasted()),
		Rung:    d.Rung, Changed: d.Changed, Skipped: d.Skipped, Untaken: d.Ineffective,
		ExitCode: end.code, Error: a.Diagnosis.Error, Traceback: end.traceback,
	}
	if a.Diagnosis.Rank >= 0 {
		t.Rank = &a.Diagnosis.Rank
	}
	if t.Changed == nil {
		t.Changed = strategy.Changes{}
	}
	if t.Skipped == nil {
		t.Skipped = []strategy.Skip{}
	}
	v.Attempts = append(v.Attempts, t)
}

// cutOff adds an attempt that ended together with gpurun. Nobody knows why it did.
func (v *Verdict) cutOff(a *Started) {
	v.Attempts = append(v.Attempts, AttemptSummary{
		N: a.N, Plan: a.Plan, Cause: cause.Unknown, Phase: cause.NoPhase, Changed: strategy.Changes{}, Skipped: []strategy.Skip{},
		Error: "cut off together with gpurun",
	})
}

// stopping is the verdict of a run whose running attempt is being stopped, as it stands
// until that is over.
func (v Verdict) stopping(running Next, d strategy.Decision) Verdict {
	v.Attempts = append(slices.Clone(v.Attempts), AttemptSummary{
		N: running.N, Plan: running.Plan, Cause: cause.Unknown, Phase: cause.NoPhase, Changed: strategy.Changes{}, Skipped: []strategy.Skip{},
		Error: "was being stopped",
	})
	v.end(d)
	return v
}

// Used is the plan that the attempt really ran with, as far as it was seen.
func (t AttemptSummary) Used() strategy.Plan { return t.Plan.Using(t.Untaken) }

// end sets how the run ended.
func (v *Verdict) end(d strategy.Decision) {
	v.Outcome, v.Code, v.Reason = d.Outcome, d.Code, d.Reason
}
