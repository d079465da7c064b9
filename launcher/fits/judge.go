package fits

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// Today is the job as it is now, and what there is to run it with.
type Today struct {
	Key
	Policy    strategy.Policy
	Job       strategy.Job
	Inventory strategy.Inventory
	// Room is the memory that each rank has on its device, in bytes; 0: not known.
	Room int64
	// Fits says that a plan is predicted to fit a device, by what was measured with the
	// plans of the past; nil where nobody predicts. It lets a job that has grown smaller
	// run as written again.
	Fits func(past []strategy.Past, plan strategy.Plan, device memory.DeviceMemory) bool
}

// Remembered is what is remembered of a job, as far as it holds today.
type Remembered struct {
	// Recalled is the plan to start with in place of the job as written; nil: as written.
	Recalled *strategy.Recalled
	// Unused says why a plan that fitted is not started with, empty where none is left.
	Unused string
	// Sure and Unsure are what was measured: strategy.Job's Remembered and Unsure.
	Sure, Unsure []memory.Measurement
}

// otherTorch is by which fraction bytes may be off with another minor version of PyTorch.
const otherTorch = 0.10

// Judge says what of a job's fits holds today. Those of the copy beside the job start
// nothing; what they measured counts as the others'.
func Judge(own, beside []Fit, today Today) Remembered {
	var r Remembered
	for _, f := range own {
		r.take(f, today)
	}
	for _, f := range beside {
		if !slices.ContainsFunc(own, func(o Fit) bool { return o.Key == f.Key }) {
			r.take(f, today)
		}
	}
	if i := slices.IndexFunc(own, func(f Fit) bool { return f.Key == today.Key }); i >= 0 {
		r.choose(own[i], today)
	} else {
		r.Unused = missed(own, today)
	}
	return r
}

// take adds what was measured under a fit's conditions, as far as it holds under today's.
func (r *Remembered) take(f Fit, today Today) {
	var all []memory.Measurement
	for _, t := range f.Tried {
		for _, m := range t.Measured {
			if f.Device != today.Device || f.DeviceBytes != today.DeviceBytes {
				m.StepSeconds, m.CallSeconds = 0, 0 // times never cross to another card
				m.Outside, m.Total, m.Allowed = 0, 0, 0
			}
			if f.Torch != today.Torch {
				m.Doubt = max(m.Doubt, otherTorch)
			}
			all = append(all, m)
		}
	}
	if f.Code == today.Code {
		r.Sure = append(r.Sure, all...)
	} else {
		r.Unsure = append(r.Unsure, all...)
	}
}

// choose takes the newest plan that fitted, where the job as written is known to run out
// of memory.
func (r *Remembered) choose(f Fit, today Today) {
	if !equal(f.Written, today.Job.Written) {
		if f.rescued() {
			r.Unused = fmt.Sprintf("the job is now written with %s", f.Written.Changed(today.Job.Written))
		}
		return
	}
	at := f.plan(f.Written)
	if at < 0 || f.Tried[at].Fitted || roomier(f.Tried[at].Room, today.Room) {
		return
	}
	past := make([]strategy.Past, len(f.Tried))
	for i, t := range f.Tried {
		past[i] = strategy.Past{Plan: t.Plan, Needed: t.Needed, Measured: t.Measured}
	}
	if today.Fits != nil && today.Fits(past, f.Written, today.Inventory.Device) {
		return
	}
	exact := today.exactFits(f, r.Sure)
	for _, i := range f.fitted(today.Policy, today.Job) {
		t := f.Tried[i]
		class := t.class(today.Job)
		why := strategy.Admit(today.Policy, today.Job, today.Inventory, past[i])
		if why == "" {
			why = tight(t, today.Room)
		}
		if why == "" && class == strategy.Average && exact {
			why = "it is equal on average, and a plan that trains the same is predicted to fit"
		}
		if why == "" {
			r.Recalled, r.Unused = &strategy.Recalled{
				Plan: clone(t.Plan), Changed: f.Written.Changed(t.Plan), Training: class, At: t.At, Peak: t.Peak, Room: t.Room,
				Age: strategy.Seconds(today.Inventory.At.Sub(t.At)),
			}, ""
			return
		}
		if r.Unused == "" {
			r.Unused = why
		}
	}
}

// class is what the plan does to the training; of one that does not say so, what is known
// of the job before it runs.
func (t Tried) class(j strategy.Job) strategy.Training {
	if t.Training != "" {
		return t.Training
	}
	class, _ := j.Training(t.Plan, nil)
	return class
}

// fitted are the plans that fitted, by their index: those that train the same first where the
// policy prefers them, and of each the newest first.
func (f Fit) fitted(p strategy.Policy, j strategy.Job) []int {
	var all []int
	for i, t := range f.Tried {
		if t.Fitted {
			all = append(all, i)
		}
	}
	if p.ExactFirst() {
		slices.SortStableFunc(all, func(a, b int) int { return f.Tried[a].class(j).Compare(f.Tried[b].class(j)) })
	}
	return all
}

// exactFits reports whether a plan that trains the same is predicted to fit.
func (today Today) exactFits(f Fit, measured []memory.Measurement) bool {
	if today.Fits == nil {
		return false
	}
	var ranOut []strategy.Plan
	for _, t := range f.Tried {
		if !t.Fitted {
			ranOut = append(ranOut, t.Plan)
		}
	}
	j := today.Job
	j.Remembered = measured
	return strategy.ExactFits(today.Policy, j, today.Inventory, ranOut)
}

// rescued reports whether a plan fitted that is not the job as written.
func (f Fit) rescued() bool {
	return slices.ContainsFunc(f.Tried, func(t Tried) bool { return t.Fitted && !equal(t.Plan, f.Written) })
}

// sameRoom is how far two figures of one device's room may be apart: a context, another
// process of the desktop.
const sameRoom = 0.01

// roomier reports whether there is more room than a plan ran out of: its failure says
// nothing then. One that is not known is that of the same device.
func roomier(then, now int64) bool {
	return then > 0 && now > 0 && float64(now) > float64(then)*(1+sameRoom)
}

// spare is how much of what a plan held at most is to be left over, where there is less
// room than it had.
const spare = 0.02

// tight says why a plan that fitted may not fit into the room of today, empty where it does.
func tight(t Tried, now int64) string {
	if now == 0 || t.Room == 0 || float64(now) >= float64(t.Room)*(1-sameRoom) {
		return ""
	}
	if t.Peak > 0 && float64(t.Peak)*(1+spare) <= float64(now) {
		return ""
	}
	return fmt.Sprintf("it had %s, and there are %s", strategy.GiB(t.Room), strategy.GiB(now))
}

// missed says why a plan that fitted under other conditions is not started with, of the
// newest fit; empty where there was no such plan.
func missed(own []Fit, today Today) string {
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
