package fits

import (
	"slices"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// A Seen is one attempt that has ended, with what is to be known of its run.
type Seen struct {
	Key
	Job     strategy.Job
	Attempt strategy.Attempt
	// Training is what the attempt's plan does to the training.
	Training strategy.Training
	// Trained: the job has trained to its end.
	Trained bool
	Room    int64 // that each rank had, in bytes; 0: not known
}

// Telling reports whether an attempt says something of its plan: it trained, or ran out
// of memory for no other reason than what it needs. A leak fits into no plan for long. A
// job that nobody can change, and of which nothing was measured, has nothing to tell.
func (s Seen) Telling() bool {
	a := s.Attempt
	if !s.changeable() && len(a.Measured) == 0 {
		return false
	}
	ran := a.Unstarted == nil && !a.Halted && len(s.Job.Ineffective(a.Plan, a.Observed)) == 0
	return ran && (s.Trained || a.Diagnosis.Fatal && a.Diagnosis.OutOfMemory() && a.Diagnosis.Growth == nil)
}

// changeable reports whether gpurun can change anything about the job.
func (s Seen) changeable() bool {
	for _, r := range s.Job.Knobs {
		if r.Absent == "" {
			return true
		}
	}
	return false
}

// Learn adds an attempt to what is remembered of its job. What was remembered of another
// model under the same key is dropped.
func Learn(fits []Fit, s Seen) []Fit {
	if !s.Telling() {
		return fits
	}
	fit := Fit{Key: s.Key, Written: clone(s.Job.Written)}
	rest := slices.Clone(fits)
	if i := slices.IndexFunc(rest, func(f Fit) bool { return f.Key == s.Key }); i >= 0 {
		known := rest[i]
		rest = slices.Delete(rest, i, i+1)
		if model := fingerprint(s.Attempt.Measured); equal(known.Written, fit.Written) && (model == nil || known.Model == nil || known.Model.Same(*model)) {
			fit.Model, fit.Tried = known.Model, slices.Clone(known.Tried)
		}
	}
	if model := fingerprint(s.Attempt.Measured); model != nil {
		fit.Model = model
	}
	tried := s.tried()
	if i := fit.plan(tried.Plan); i >= 0 {
		tried = tried.after(fit.Tried[i], s)
		fit.Tried = slices.Delete(fit.Tried, i, i+1)
	} else if s.Trained && !s.recalled() {
		tried.Needed = 1
	}
	fit.Tried = slices.Insert(fit.Tried, 0, tried)
	return bounded(slices.Insert(rest, 0, fit))
}

// Unlearn forgets a plan that the job came no further with than without it.
func Unlearn(fits []Fit, key Key, plan strategy.Plan) []Fit {
	left := slices.Clone(fits)
	for i, f := range left {
		if at := f.plan(plan); f.Key == key && at >= 0 {
			left[i].Tried = slices.Delete(slices.Clone(f.Tried), at, at+1)
		}
	}
	return left
}

// recalled reports whether the attempt ran with a plan because it was remembered.
func (s Seen) recalled() bool {
	return s.Job.Recalled != nil && equal(s.Attempt.Plan, s.Job.Recalled.Plan)
}

// tried is what the attempt says of its plan.
func (s Seen) tried() Tried {
	a := s.Attempt
	t := Tried{Plan: clone(a.Plan), Training: s.Training, Fitted: s.Trained, Room: s.Room, At: a.Ended.UTC()}
	if d := a.Diagnosis; t.Room == 0 && d.Allowed != nil {
		t.Room = *d.Allowed
	} else if t.Room == 0 && d.Capacity != nil {
		t.Room = *d.Capacity
	}
	for _, m := range a.Measured {
		t.Peak = max(t.Peak, m.Peak+m.Outside)
		t.Seconds = max(t.Seconds, m.StepSeconds) // the slowest rank's
	}
	measured := s.Job.Measured(a) // with the plans that they ran with
	t.Measured = measured[:min(len(measured), mostMeasured)]
	return t
}

// after is what is known of a plan once it has run again: its last end counts. What was
// measured before is kept where nothing was this time.
func (t Tried) after(before Tried, s Seen) Tried {
	t.Needed = before.Needed
	if t.Fitted && !s.recalled() {
		t.Needed++
	}
	if len(t.Measured) == 0 && before.Fitted == t.Fitted {
		t.Measured, t.Peak, t.Seconds = before.Measured, before.Peak, before.Seconds
	}
	return t
}

// fingerprint is that of the model of which a rank told, nil where none did.
func fingerprint(measured []memory.Measurement) *memory.Fingerprint {
	for _, m := range measured {
		if f, known := m.Fingerprint(); known {
			return &f
		}
	}
	return nil
}
