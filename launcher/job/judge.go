package job

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

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
				Plan: t.Plan.With(nil), Changed: f.Written.Changed(t.Plan), By: t.By, Training: t.Training, At: t.At, Peak: t.Peak, Room: t.Room,
				Age: strategy.Seconds(today.Inventory.At.Sub(t.At)),
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
