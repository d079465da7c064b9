package job

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// Fits are remembered plans of a job across runs: which fitted, which ran out of memory, and what the
// processes measured. A fit is what is remembered of a job under one set of conditions.
//
// The user's state directory has one file for each job, with measurements and plans only: no command, no
// path, no variable. Judge checks the entries against the job, its device and its policy.

// Conditions are the conditions under which a job ran. Results apply under equal conditions.
type Conditions struct {
	// Code is a digest of the job's script, the modules that it imports, its arguments and
	// configuration files, without the settings that gpurun may change.
	Code   string `json:"code"`
	Recipe string `json:"recipe"`
	// Device is the name of the GPU, and DeviceBytes its memory; "cpu" and 0 on a CPU.
	Device       string `json:"device"`
	DeviceBytes  int64  `json:"device_bytes,omitempty"`
	Torch        string `json:"torch,omitempty"` // minor version of PyTorch, "2.11"; empty: not known
	DataParallel int    `json:"data_parallel"`
}

// A Fit has the remembered plans of a job under one set of conditions.
type Fit struct {
	Conditions
	Written strategy.Plan       `json:"written"`         // the plan of the job as it was written
	Model   *memory.Fingerprint `json:"model,omitempty"` // nil: not reported
	Tried   []TriedPlan         `json:"tried"`           // the plans that were run, the newest first
}

// A TriedPlan is how one plan ended when it last ran.
type TriedPlan struct {
	Plan     strategy.Plan     `json:"plan"`
	Training strategy.Training `json:"training,omitempty"` // the effect of the plan on the training
	// By are the arguments by which the plan changed likely knobs.
	By     strategy.Arguments `json:"arguments,omitempty"`
	Fitted bool               `json:"fitted"` // the job trained to its end, else it ran out of memory
	// Room is the memory in bytes that each rank had on its device, and Peak the most that it used; 0 if not
	// known.
	Room    int64     `json:"room_bytes,omitempty"`
	Peak    int64     `json:"peak_bytes,omitempty"`
	Needed  int       `json:"needed,omitempty"`       // runs in which the plan fitted although it was not recalled
	Seconds float64   `json:"step_seconds,omitempty"` // of a step; 0: not known
	At      time.Time `json:"at"`
	// InPlace are the remedies that calls needed in place, from these sizes on.
	InPlace  []strategy.ArmedRemedy `json:"in_place,omitempty"`
	Measured []memory.Measurement   `json:"measured,omitempty"`
}

// Bounds of the remembered data, of one job and of all.
const (
	mostFits     = 8  // of a job
	mostTried    = 16 // of a fit
	mostMeasured = 2  // of a plan: the most informative ranks
	largestFits  = 1 << 20
	mostFiles    = 256
	largestStore = 32 << 20 // bytes
)

// equal plans set the same knobs to the same values.
func equal(a, b strategy.Plan) bool { return len(a) == len(b) && len(a.Changed(b)) == 0 }

// plan returns the index of a plan that was tried, -1 for none.
func (f Fit) plan(p strategy.Plan) int {
	return slices.IndexFunc(f.Tried, func(t TriedPlan) bool { return equal(t.Plan, p) })
}

// fitted returns the indexes of the plans that fitted, the newest first. If the policy prefers plans that
// train the same, they come before the others.
func (f Fit) fitted(p strategy.Policy) []int {
	var all []int
	for i, t := range f.Tried {
		if t.Fitted {
			all = append(all, i)
		}
	}
	if p.ExactFirst() {
		slices.SortStableFunc(all, func(a, b int) int { return f.Tried[a].Training.Compare(f.Tried[b].Training) })
	}
	return all
}

// outpaced reports whether a plan needed remedies in place, and a later one that is faster by worthIt fitted and trains
// no less the same.
func (f Fit) outpaced(at int) bool {
	slow := f.Tried[at]
	return len(slow.InPlace) > 0 && slices.ContainsFunc(f.Tried[:at], func(t TriedPlan) bool {
		return t.Fitted && t.Training.Compare(slow.Training) <= 0 && t.Seconds > 0 && t.Seconds < slow.Seconds*(1-worthIt)
	})
}

// worthIt is the gain of a step's time from which another plan is preferred to remedies in place.
const worthIt = 0.08

// Begins reports whether a run of the job as written would begin with a plan: the job as written ran out of
// memory, and this is the newest plan that fitted, in the strongest class.
func (f Fit) Begins(written, plan strategy.Plan) bool {
	at := f.plan(f.Written)
	fitted := f.fitted(strategy.Policy{})
	return equal(f.Written, written) && at >= 0 && (!f.Tried[at].Fitted || f.outpaced(at)) && len(fitted) > 0 &&
		equal(f.Tried[fitted[0]].Plan, plan)
}

// An Observation is one attempt that has ended.
type Observation struct {
	Conditions
	Job      strategy.Job
	Attempt  strategy.Attempt
	Training strategy.Training // the effect of the attempt's plan on the training
	Trained  bool              // the job has trained to its end
	Room     int64             // memory that each rank had, in bytes; 0: not known
	// InPlace are the remedies that calls of the plan needed in place, in this run and before.
	InPlace []strategy.ArmedRemedy
}

// fitted reports whether the plan is known to run: the job trained to its end, or steps were done again in place and
// it was stopped for a faster plan.
func (o Observation) fitted() bool {
	return o.Trained || o.Attempt.Speedup != nil && len(o.InPlace) > 0
}

// Telling reports whether an attempt shows something about its plan: it trained, was stopped for a faster one, or ran
// out of memory because of the plan's needs. A leak shows nothing, since it exceeds any plan in time. Nor does a job
// that cannot be changed and was not measured.
func (o Observation) Telling() bool {
	a := o.Attempt
	changeable := false
	for _, r := range o.Job.Knobs {
		changeable = changeable || r.Absent == ""
	}
	if !changeable && len(a.Measured) == 0 {
		return false
	}
	ran := a.Unstarted == nil && !a.Halted && len(o.Job.Ineffective(a.Plan, a.Observed)) == 0
	return ran && (o.fitted() || a.Diagnosis.OutOfMemory() && a.Diagnosis.Growth == nil)
}

// LearnFits adds an attempt to the fits of its job. Fits of another model under the same conditions are dropped.
func LearnFits(fits []Fit, o Observation) []Fit {
	if !o.Telling() {
		return fits
	}
	fit := Fit{Conditions: o.Conditions, Written: o.Job.Written.With(nil)}
	model := fingerprint(o.Attempt.Measured)
	rest := slices.Clone(fits)
	if i := slices.IndexFunc(rest, func(f Fit) bool { return f.Conditions == o.Conditions }); i >= 0 {
		known := rest[i]
		rest = slices.Delete(rest, i, i+1)
		if equal(known.Written, fit.Written) && (model == nil || known.Model == nil || known.Model.Same(*model)) {
			fit.Model, fit.Tried = known.Model, slices.Clone(known.Tried)
		}
	}
	if model != nil {
		fit.Model = model
	}
	tried, recalled := o.tried(), o.Job.Recalled != nil && equal(o.Attempt.Plan, o.Job.Recalled.Plan)
	if i := fit.plan(tried.Plan); i >= 0 { // its latest end counts
		before := fit.Tried[i]
		tried.Needed = before.Needed
		if len(tried.Measured) == 0 && before.Fitted == tried.Fitted {
			tried.Measured, tried.Peak, tried.Seconds = before.Measured, before.Peak, before.Seconds
		}
		fit.Tried = slices.Delete(fit.Tried, i, i+1)
	}
	if tried.Fitted && !recalled {
		tried.Needed++
	}
	fit.Tried = slices.Insert(fit.Tried, 0, tried)
	return bounded(slices.Insert(rest, 0, fit))
}

// UnlearnFits forgets a plan that brought the job no further than the job as written.
func UnlearnFits(fits []Fit, under Conditions, plan strategy.Plan) []Fit {
	left := slices.Clone(fits)
	for i, f := range left {
		if at := f.plan(plan); f.Conditions == under && at >= 0 {
			left[i].Tried = slices.Delete(slices.Clone(f.Tried), at, at+1)
		}
	}
	return left
}

// tried returns the attempt's result for its plan.
func (o Observation) tried() TriedPlan {
	a := o.Attempt
	t := TriedPlan{Plan: a.Plan.With(nil), By: a.Arguments, Training: o.Training, Fitted: o.fitted(), Room: o.Room,
		At: a.Ended.UTC(), InPlace: o.InPlace}
	if d := a.Diagnosis; t.Room == 0 && d.Allowed != nil {
		t.Room = *d.Allowed
	} else if t.Room == 0 && d.Capacity != nil {
		t.Room = *d.Capacity
	}
	for _, m := range a.Measured {
		t.Peak = max(t.Peak, m.Peak+m.Outside)
		t.Seconds = max(t.Seconds, m.StepSeconds) // the slowest rank's
	}
	measured := o.Job.Measured(a) // with the plans that they ran with
	t.Measured = measured[:min(len(measured), mostMeasured)]
	return t
}

// fingerprint returns the fingerprint of the first model that a rank reported, nil for none.
func fingerprint(measured []memory.Measurement) *memory.Fingerprint {
	for _, m := range measured {
		if f, known := m.Fingerprint(); known {
			return &f
		}
	}
	return nil
}

// FitsToday has the current job and the resources for it.
type FitsToday struct {
	Conditions
	Policy    strategy.Policy
	Job       strategy.Job
	Inventory strategy.Inventory
	Room      int64 // memory that each rank has on its device, in bytes; 0: not known
}

// RememberedFits has the remembered plans and measurements of a job that apply today.
type RememberedFits struct {
	// Recalled is the plan to start with in place of the job as written; nil: as written.
	Recalled *strategy.Recalled
	// Unused says why the run does not start with a plan that fitted; empty if none did.
	Unused string
	// Armed are the remedies in place that the plan of attempt 0 needed; nil for none.
	Armed *strategy.ArmedPlan
	// Proposed is a plan that fitted for another user, who is not trusted; nil for none.
	Proposed *strategy.Recalled
	// Measured are the measurements under the same conditions.
	Measured []memory.Measurement
}

const (
	// sameRoom is the fraction by which two figures for one device's memory may differ, because of a context
	// or a process of the desktop.
	sameRoom = 0.01
	// spare is the fraction of a plan's peak that must stay free if there is less memory than it had.
	spare = 0.02
)

// JudgeFits returns the part of a job's fits that applies today.
func JudgeFits(own []Fit, today FitsToday) RememberedFits {
	i := slices.IndexFunc(own, func(f Fit) bool { return f.Conditions == today.Conditions })
	if i < 0 {
		return RememberedFits{Unused: missed(own, today)}
	}
	var r RememberedFits
	for _, t := range own[i].Tried {
		r.Measured = append(r.Measured, t.Measured...)
	}
	r.choose(own[i].without(today), today)
	r.arm(own[i], today)
	return r
}

// Propose adds a plan that untrusted users share, where nothing else is known.
func (r *RememberedFits) Propose(others []Fit, today FitsToday) {
	if r.Recalled != nil || r.Unused != "" {
		return
	}
	for _, f := range others {
		if f.Conditions == today.Conditions && r.Proposed == nil {
			var theirs RememberedFits
			theirs.choose(f.without(today), today)
			r.Proposed = theirs.Recalled
		}
	}
}

// choose selects the newest plan that fitted, if the job as written is known to run out of memory. With more
// memory than it had then, that failure shows nothing.
func (r *RememberedFits) choose(f Fit, today FitsToday) {
	if !equal(f.Written, today.Job.Written) {
		if f.rescued() {
			r.Unused = fmt.Sprintf("the job is now written with %s", f.Written.Changed(today.Job.Written))
		}
		return
	}
	at := f.plan(f.Written)
	if at < 0 || f.Tried[at].Fitted && !f.outpaced(at) {
		return
	}
	if then := f.Tried[at].Room; then > 0 && float64(today.Room) > float64(then)*(1+sameRoom) {
		return
	}
	for _, i := range f.fitted(today.Policy) {
		t := f.Tried[i]
		past := strategy.Past{Plan: t.Plan, By: t.By, Needed: t.Needed, Measured: t.Measured}
		why := strategy.Admit(today.Policy, today.Job, today.Inventory, past)
		if why == "" {
			why = tight(t, today.Room)
		}
		if why == "" {
			r.Recalled, r.Unused = &strategy.Recalled{
				Plan: t.Plan.With(nil), Changed: f.Written.Changed(t.Plan), By: t.By, Training: t.Training, At: t.At, Peak: t.Peak,
				Room: t.Room,
				Age:  strategy.Seconds(today.Inventory.At.Sub(t.At)),
			}, ""
			return
		}
		if r.Unused == "" {
			r.Unused = why
		}
	}
}

// without returns a fit in which plans that needed remedies in place did not fit, if those are not allowed today.
func (f Fit) without(today FitsToday) Fit {
	if strategy.AllowInPlace(today.Policy, today.Job, nil, f.Written, today.Inventory.Accelerator) != nil {
		return f
	}
	f.Tried = slices.Clone(f.Tried)
	for i, t := range f.Tried {
		f.Tried[i].Fitted = t.Fitted && len(t.InPlace) == 0
	}
	return f
}

// arm has the run begin with the remedies in place that its first plan needed, with no more memory than then.
func (r *RememberedFits) arm(f Fit, today FitsToday) {
	plan := today.Job.Written
	if r.Recalled != nil {
		plan = r.Recalled.Plan
	}
	at := f.plan(plan)
	if at < 0 || len(f.Tried[at].InPlace) == 0 || !equal(f.Written, today.Job.Written) {
		return
	}
	if then := f.Tried[at].Room; then == 0 || float64(today.Room) <= float64(then)*(1+sameRoom) {
		r.Armed = &strategy.ArmedPlan{Plan: plan.With(nil), Remedies: f.Tried[at].InPlace}
	}
}

// rescued reports whether a plan fitted that is not the job as written.
func (f Fit) rescued() bool {
	return slices.ContainsFunc(f.Tried, func(t TriedPlan) bool { return t.Fitted && !equal(t.Plan, f.Written) })
}

// tight returns why a plan that fitted may not fit into today's memory; empty if it fits.
func tight(t TriedPlan, now int64) string {
	enough := now == 0 || t.Room == 0 || float64(now) >= float64(t.Room)*(1-sameRoom)
	if enough || t.Peak > 0 && float64(t.Peak)*(1+spare) <= float64(now) {
		return ""
	}
	return fmt.Sprintf("it had %s, and there are %s", strategy.GiB(t.Room), strategy.GiB(now))
}

// missed returns why the run does not start with the newest plan that fitted under other conditions; empty if
// there is none.
func missed(own []Fit, today FitsToday) string {
	i := slices.IndexFunc(own, Fit.rescued)
	if i < 0 {
		return ""
	}
	switch f := own[i]; {
	case f.Device != today.Device || f.DeviceBytes != today.DeviceBytes:
		return "that was on another device: " + f.Device
	case f.DataParallel != today.DataParallel:
		return fmt.Sprintf("that was on %d data-parallel ranks", f.DataParallel)
	case f.Recipe != today.Recipe:
		return "that was with another recipe"
	case f.Torch != today.Torch:
		return "that was with another PyTorch"
	}
	return "the job's code, arguments or configuration have changed since"
}
