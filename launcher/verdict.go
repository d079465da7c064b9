package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A Verdict is the content of verdict.json: how the run ended.
type Verdict struct {
	Outcome strategy.Outcome `json:"outcome"`
	Code    int              `json:"code"`
	Reason  string           `json:"reason"`
	Run     string           `json:"run"`
	// Recalled is the plan of an earlier run that attempt 0 ran with, and how it differs from the job as
	// written; nil if it ran as written.
	Recalled *strategy.Recalled `json:"recalled,omitempty"`
	Attempts []AttemptSummary   `json:"attempts"`
	// Proposal is a faster plan that would have fitted, and why the run did not change to it; may be empty.
	Proposal string `json:"proposal,omitempty"`
	// Model is the class of the model and the number of its parameters: "GPT2LMHeadModel 124M"; empty if no
	// process reported it.
	Model string `json:"model,omitempty"`
	// GPUTime is how much GPU time the run used, lost and rescued; nil if no attempt has ended.
	GPUTime *strategy.GPUTime `json:"gpu_time,omitempty"`
	// Next is what the user can do, the best first; nil if the run trained.
	Next []strategy.Advice `json:"next,omitzero"`
}

// An AttemptSummary is one attempt in a verdict, with the decision after it.
type AttemptSummary struct {
	N     int           `json:"n"`
	Plan  strategy.Plan `json:"plan"`
	Cause cause.Code    `json:"cause"`
	Phase cause.Phase   `json:"phase"`
	Rank  *int          `json:"rank"` // the rank where the failure began, null if not known
	// Training is the plan's effect on the training, compared with the job as written. It is based on all
	// evidence of the run at the end of the attempt.
	Training strategy.Training `json:"training,omitempty"`
	// Seconds is how long the attempt ran, 0 if gpurun was killed meanwhile.
	Seconds strategy.Seconds `json:"seconds"`
	Remedy  strategy.Remedy  `json:"rung,omitempty"`
	// Remedies are all remedies of the decision; Remedy is the last of them.
	Remedies []strategy.Remedy `json:"rungs,omitempty"`
	Changed  strategy.Changes  `json:"changed"`
	Skipped  []strategy.Skip   `json:"skipped"`
	// Outvoted are the plans that were not chosen, and why.
	Outvoted []strategy.Outvoted `json:"outvoted,omitempty"`
	// Predicted is the plan's predicted peak in bytes of the device's allocator: the mean and the bound.
	Predicted []int64 `json:"predicted_peak_bytes,omitempty"`
	// Peak is the most memory in bytes that a rank held in the device's allocator, or in its process if the
	// job trains on the CPU. SamplesPerSecond is the global batch divided by the median time of an optimizer
	// step from the third on. Both are absent if not known.
	Peak             int64   `json:"peak_bytes,omitempty"`
	SamplesPerSecond float64 `json:"samples_per_second,omitempty"`
	// Price is what the changes that led to this attempt saved and cost; nil if nothing was changed, or
	// nothing is known.
	Price *strategy.Price `json:"price,omitempty"`
	// InPlace are the steps that ranks did again after memory had run out in them, within the attempt.
	InPlace []strategy.InPlace `json:"in_place,omitempty"`
	// MemoryPressure are sentences about ranks whose allocator freed its cache in step after step.
	MemoryPressure []string `json:"memory_pressure,omitempty"`
	// Retries is the number of times that the allocator of a rank freed its cache to serve a request.
	Retries int64 `json:"allocator_retries,omitempty"`
	// Untaken are changes without effect, with the requested and the used value.
	Untaken strategy.Changes `json:"untaken,omitempty"`

	// Alone is the number of ranks if each trained the whole job without a process group, else 0.
	Alone int `json:"alone,omitempty"`

	// ExitCode, Error and Traceback are those of the failing rank; Traceback has the last lines. If no rank
	// failed by itself, ExitCode is that of the first rank that did not end with 0. It is 0 if gpurun saw no
	// rank end.
	ExitCode  int      `json:"exit_code"`
	Error     string   `json:"error,omitempty"`
	Traceback []string `json:"traceback,omitempty"`
}

// An attemptEnd is the part of an attempt's end that the verdict keeps, besides the diagnosis.
type attemptEnd struct {
	traceback []string
	code      int      // the exit code
	pressure  []string // see pressureWords
	advice    string   // see Advice
	log       strategy.LogPlace
}

func endingOf(e strategy.Evidence, d strategy.Diagnosis, ceiling int64) attemptEnd {
	end := attemptEnd{traceback: Traceback(e, d), code: d.ExitCode, pressure: pressureWords(e),
		advice: Advice(d, e, ceiling), log: logPlace(e, d)}
	for _, f := range e.Facts {
		exit := f.Exit()
		if exit == nil || d.ExitCode != 0 {
			continue
		}
		if own := d.Fatal && f.Rank == d.Rank; own {
			end.code = exit.Code
			break
		}
		end.code = cmp.Or(end.code, exit.Code)
	}
	return end
}

// record adds an attempt, how it ended, and the decision that followed it.
func (v *Verdict) record(job strategy.Job, history []strategy.Attempt, end attemptEnd, d strategy.Decision) {
	a := &history[len(history)-1]
	t := AttemptSummary{
		N: a.N, Plan: a.Plan, Cause: a.Diagnosis.Cause, Phase: a.Diagnosis.Phase,
		Seconds: strategy.Seconds(a.Lasted()),
		Remedy:  d.Remedy, Remedies: d.Remedies, Changed: d.Changed, Skipped: d.Skipped, Outvoted: d.Outvoted,
		Untaken: d.Ineffective, Alone: a.Alone,
		ExitCode: end.code, Error: a.Diagnosis.Error, Traceback: end.traceback,
		Peak: a.Peak(), SamplesPerSecond: job.Throughput(*a), InPlace: a.InPlace, MemoryPressure: end.pressure,
		Retries: a.Retries(),
	}
	t.Training, _ = job.Training(a.Plan, history)
	if a.Expected != nil {
		t.Predicted = []int64{a.Expected.Mean, a.Expected.Bound}
	}
	if rank := a.Diagnosis.Rank; rank >= 0 {
		t.Rank = &rank // not a pointer into the attempt, which would keep all of it
	}
	if t.Changed == nil {
		t.Changed = strategy.Changes{}
	}
	if t.Skipped == nil {
		t.Skipped = []strategy.Skip{}
	}
	if n := len(v.Attempts); n > 0 {
		t.share(&v.Attempts[n-1])
	}
	v.Attempts = append(v.Attempts, t)
}

// share makes a summary keep what is equal in the one before it only once: attempts that fail alike are many.
func (t *AttemptSummary) share(before *AttemptSummary) {
	share(&t.Plan, before.Plan)
	share(&t.Remedies, before.Remedies)
	share(&t.Changed, before.Changed)
	share(&t.Skipped, before.Skipped)
	share(&t.Outvoted, before.Outvoted)
	share(&t.Untaken, before.Untaken)
	share(&t.Predicted, before.Predicted)
	share(&t.Rank, before.Rank)
	share(&t.MemoryPressure, before.MemoryPressure)
	share(&t.Error, before.Error)
	share(&t.Traceback, before.Traceback)
}

// share replaces a value by an equal one of an earlier attempt. Neither is modified later.
func share[T any](value *T, before T) {
	if reflect.DeepEqual(*value, before) {
		*value = before
	}
}

// price adds what the changes saved and cost.
func (v *Verdict) price(history []strategy.Attempt, prices []*strategy.Price) {
	of := map[int]*strategy.Price{}
	for i := range slices.Backward(history) { // the first of a number counts
		of[history[i].N] = prices[i]
	}
	for i := range v.Attempts {
		if price, known := of[v.Attempts[i].N]; known {
			v.Attempts[i].Price = price
		}
	}
}

// unended is an attempt that has no end in the journal.
func unended(n int, plan strategy.Plan, why string) AttemptSummary {
	return AttemptSummary{N: n, Plan: plan, Cause: cause.Unknown, Phase: cause.NoPhase, Changed: strategy.Changes{},
		Skipped: []strategy.Skip{}, Error: why}
}

// cutOff adds an attempt that ended because gpurun was killed.
func (v *Verdict) cutOff(a *Started, inPlace []strategy.InPlace) {
	t := unended(a.N, a.Plan, "cut off together with gpurun")
	t.InPlace = inPlace
	v.Attempts = append(v.Attempts, t)
}

// stopping is the preliminary verdict while the running attempt is being stopped.
func (v Verdict) stopping(running Next, d strategy.Decision) Verdict {
	v.Attempts, v.Next = append(slices.Clone(v.Attempts), unended(running.N, running.Plan, "was being stopped")), nil
	v.end(d)
	return v
}

// Used is the plan that the attempt really ran with, as far as gpurun observed that.
func (t AttemptSummary) Used() strategy.Plan { return t.Plan.Using(t.Untaken) }

// end sets how the run ended.
func (v *Verdict) end(d strategy.Decision) {
	v.Outcome, v.Code, v.Reason, v.Proposal = d.Outcome, d.Code, d.Reason, d.Proposal
}

// Finish writes a run's verdict. An error includes how the run ended, and has the exit code of a run directory
// that cannot be written.
func Finish(store Store, v Verdict) error {
	if err := store.Finish(v); err != nil {
		return unwritten(v.Reason, v.Outcome == strategy.Trained, err)
	}
	return nil
}

// unwritten ends a run whose journal cannot be written: no further rank is started, and the error includes
// how the last attempt ended.
func (s State) unwritten(d Decided, err error) (Verdict, error) {
	last := s.History[len(s.History)-1]
	how := d.Decision.Reason
	if d.Decision.Relaunch {
		how = fmt.Sprintf("attempt %d: %s; no further attempt is started", last.N, d.Diagnosis.Sentence())
	}
	s.decide(d)
	return s.Verdict, unwritten(how, d.Decision.Outcome == strategy.Trained, err)
}

func unwritten(how string, trained bool, err error) error {
	hint := "make room for the run directory, or name another --run-dir or --run-id, and start gpurun again"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint = "the run directory and all that it recorded are gone: name another --run-dir or --run-id to start the job again"
		if trained {
			hint = "the job has trained, and its own files are kept; the run directory is gone, so another start would train again"
		}
	case trained:
		hint = "the job has trained, and its own files are kept; once this run directory can be written, another start reports this and trains nothing"
	}
	err = fmt.Errorf("%s; this could not be recorded: %w", how, firstOf(err))
	return errext.WithCode(errext.WithHint(err, hint), errext.Code(err, strategy.CodeRunDir))
}

// firstOf returns the first of joined errors, so that a full disk is reported once.
func firstOf(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) && len(joined.Unwrap()) > 0 {
		return firstOf(joined.Unwrap()[0])
	}
	return err
}
