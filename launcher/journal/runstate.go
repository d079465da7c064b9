// A Run folds a run's events and samples into one value. All packages that show a
// run read that value instead of the events.

package journal

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A Run is the state of a run, folded from its events and samples; the zero value has none yet. It is for
// one goroutine.
type Run struct {
	First launcher.Began // the start of the run
	Began launcher.Began // the start of its latest gpurun
	// Most is how many attempts are kept, the first ones and the latest; 0: all. It is for a process that
	// follows a run to its end, whose memory must not grow with the attempts.
	Most int
	// Attempts are in order. A journal's outline may omit some, and those beyond Most are in Omitted.
	Attempts []AttemptState
	Omitted  Tally
	Notices  []string // at most Most, the latest
	// Decision is the latest, and Verdict the end of the run; nil where it continued since.
	Decision *strategy.Decision
	Verdict  *launcher.Verdict
	// Model is that of Verdict.Model, GPUTime the latest figures; empty and nil where they are not known.
	Model    string
	GPUTime  *strategy.GPUTime
	Progress StepProgress // of the latest attempt
	starts   []runStart
}

// An AttemptStage is a stage of an attempt.
type AttemptStage int

// The stages of an attempt, in order.
const (
	Running AttemptStage = iota
	Exited               // its ranks have ended; gpurun waits for their children
	CutOff               // it ended together with its gpurun
	Ended
	Decided // and a decision followed
)

// An AttemptState is one attempt of a run.
type AttemptState struct {
	launcher.Started
	launcher.Decided // zero before stage Decided
	Phase            AttemptStage
	Evidence         strategy.Evidence  // zero while it runs, and where it was cut off
	SpedUp           *strategy.Decision // to stop it for a faster plan; nil: none
	Again            []strategy.InPlace // steps that ranks did again after memory had run out in them
	launched         bool               // false for one that could not be prepared
}

// NotInPlace is a sentence about why processes that might do the step again that ran out of memory
// did not; empty for none.
func (a *AttemptState) NotInPlace() string {
	_, refused := a.Evidence.InPlaceRefused()
	if refused == nil || a.InPlace == nil || !a.Diagnosis.OutOfMemory() {
		return ""
	}
	return refused.Sentence()
}

// RunOf folds the events of a run.
func RunOf(events []launcher.Event) *Run {
	r := &Run{}
	for _, e := range events {
		r.Add(e)
	}
	return r
}

// Add adds the next event.
func (r *Run) Add(e launcher.Event) {
	last := r.Last()
	switch e := e.(type) {
	case launcher.Began:
		if r.First.Run == "" && r.First.At.IsZero() {
			r.First = e
		}
		r.CutOff()
		r.Began, r.Decision, r.Verdict = e, nil, nil
		r.starts = append(r.starts, runStart{e.Restart, len(r.Attempts)})
	case launcher.Started:
		r.CutOff()
		r.begin(AttemptState{Started: e, launched: true})
		r.Decision, r.Verdict, r.Progress = nil, nil, StepProgress{Stepped: e.At}
	case launcher.InPlace:
		if last != nil {
			last.Again = strategy.FoldInPlace(last.Again, e.InPlace)
		}
	case launcher.SpedUp:
		if last != nil {
			last.SpedUp = &e.Decision
		}
	case launcher.Exited:
		if last != nil {
			last.Phase, last.Evidence = Exited, e.Evidence
		}
	case launcher.Ended:
		if last == nil || !last.open() { // it could not be started
			r.begin(AttemptState{Started: launcher.Started{N: e.Evidence.Attempt, Plan: e.Evidence.Plan,
				At: e.Evidence.Started}})
			last = r.Last()
		}
		last.Phase, last.Evidence = Ended, e.Evidence
		r.Model = cmp.Or(e.Evidence.Model(), r.Model)
	case launcher.Decided:
		if a := r.decided(); a != nil {
			a.Phase, a.Decided = Decided, e
		}
		r.Decision, r.GPUTime = &e.Decision, cmp.Or(e.GPUTime, r.GPUTime)
	case launcher.Noticed:
		if r.Notices = append(r.Notices, e.Text); r.Most > 0 {
			r.Notices = r.Notices[max(0, len(r.Notices)-r.Most):]
		}
	case launcher.Finished:
		r.Verdict, r.GPUTime, r.Model = &e.Verdict, cmp.Or(e.Verdict.GPUTime, r.GPUTime), cmp.Or(e.Verdict.Model, r.Model)
	}
}

// decided returns the attempt that the next decision is about: the latest, or the one after which a plan was chosen
// that the policy of a later start does not allow.
func (r *Run) decided() *AttemptState {
	last := r.Last()
	if last == nil || last.Phase != CutOff && (last.Phase != Decided || last.Diagnosis.OutOfMemory()) {
		return last
	}
	for i := range slices.Backward(r.Attempts) {
		if a := &r.Attempts[i]; a.Phase == Decided && a.Decision.Relaunch {
			return a
		}
	}
	return last
}

// CutOff records that the run's gpurun has ended.
func (r *Run) CutOff() {
	switch last := r.Last(); {
	case last == nil:
	case last.Phase == Running:
		last.Phase = CutOff
	case last.Phase == Exited: // how it ended is known
		last.Phase = Ended
	}
}

// Last returns the latest attempt, nil for none.
func (r *Run) Last() *AttemptState {
	if len(r.Attempts) == 0 {
		return nil
	}
	return &r.Attempts[len(r.Attempts)-1]
}

// End returns how the run ended: its verdict, or the decision to end it if gpurun was killed before
// it could write one; nil if the run has not ended, or its end is not known.
func (r *Run) End() *launcher.Verdict {
	if d := r.Decision; r.Verdict == nil && d != nil && !d.Relaunch {
		return &launcher.Verdict{Outcome: d.Outcome, Code: d.Code, Reason: d.Reason}
	}
	return r.Verdict
}

// GPUFailed reports whether the latest decision is about a GPU that failed.
func (r *Run) GPUFailed() bool {
	for _, a := range slices.Backward(r.Attempts) {
		if a.Phase == Decided {
			return a.Diagnosis.Cause == cause.GPUHardware && a.Diagnosis.Lost == nil
		}
	}
	return false
}

// Launched returns the latest attempt that was launched, nil for none.
func (r *Run) Launched() *AttemptState {
	for i := range slices.Backward(r.Attempts) {
		if a := &r.Attempts[i]; a.launched {
			return a
		}
	}
	return nil
}

// Running reports whether an attempt runs, if the run's gpurun exists.
func (r *Run) Running() bool {
	last := r.Last()
	return last != nil && last.open() && r.Verdict == nil
}

// Over returns the attempts that have ended or were cut off.
func (r *Run) Over() []AttemptState {
	if last := r.Last(); last != nil && last.open() {
		return r.Attempts[:len(r.Attempts)-1]
	}
	return r.Attempts
}

func (a *AttemptState) open() bool { return a.Phase == Running || a.Phase == Exited }

// Begin returns the time when the attempt was started.
func (a *AttemptState) Begin() time.Time {
	if a.Evidence.Started.IsZero() {
		return a.At
	}
	return a.Evidence.Started
}

// Lasted returns how long the attempt ran, 0 if it has not ended.
func (a *AttemptState) Lasted() time.Duration {
	return max(a.Evidence.Ended.Sub(a.Evidence.Started), 0)
}

// Peak returns the most that any rank allocated, in bytes; 0 if no rank measured it.
func (a *AttemptState) Peak() int64 {
	return strategy.Attempt{Measured: a.Evidence.Measured(), InPlace: a.Again}.Peak()
}

// TimeWords is a line about the time that the run used and lost; empty if there is nothing to show. A job on the CPU
// uses no GPU time.
func (r *Run) TimeWords(t *strategy.GPUTime) string {
	if last := r.Last(); last != nil && last.Evidence.Accelerator == "cpu" {
		return ""
	}
	return t.Words()
}

// Used returns the plan without the changes that had no effect.
func (a *AttemptState) Used() strategy.Plan { return a.Plan.Using(a.Decision.Ineffective) }

// StepProgress is the progress of an attempt, by the samples of its ranks.
type StepProgress struct {
	At time.Time // of the latest samples
	// Samples are the latest, one a rank. The job's ceiling bounds what a rank may hold.
	Samples []strategy.Sample
	Lead    strategy.Sample   // the one with the most progress
	Stepped time.Time         // when its step changed last; before the first, when the attempt was started
	Peak    int64             // the most that any rank allocated so far
	Rate    float64           // steps in a second, 0 where that is not known
	Left    *strategy.Seconds // the time of the remaining steps; nil: not known
	pace    stepPace
}

// Sample adds the latest samples of an attempt, and reports whether it is running.
func (r *Run) Sample(attempt int, samples []strategy.Sample, now time.Time) bool {
	if !r.Running() || attempt != r.Last().N || len(samples) == 0 {
		return false
	}
	p, ceiling := &r.Progress, r.Began.Job.Ceiling
	p.At, p.Samples = now, slices.Clone(samples)
	lead := p.Samples[0]
	for i := range p.Samples {
		s := &p.Samples[i]
		if ceiling > 0 {
			s.Allowed = min(cmp.Or(s.Allowed, ceiling), ceiling)
		}
		if leads(*s, lead) {
			lead = *s
		}
		p.Peak = max(p.Peak, s.Peak)
	}
	if lead.Total != p.Lead.Total { // another count
		p.pace = stepPace{}
	}
	if lead.Step != p.Lead.Step {
		p.Stepped = now
	}
	p.Lead = lead
	p.pace.add(now, lead.Step)
	p.Rate, p.Left = p.pace.rate(now), nil
	if left, known := p.pace.left(lead.Total); known {
		seconds := strategy.Seconds(left.Round(time.Second))
		p.Left = &seconds
	}
	return true
}

// leads reports whether a sample shows more progress than another: the number of all steps,
// which only one rank may print, else a later step.
func leads(s, other strategy.Sample) bool {
	if (s.Total > 0) != (other.Total > 0) {
		return s.Total > 0
	}
	return s.Step > other.Step
}
