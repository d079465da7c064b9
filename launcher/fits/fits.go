// Package fits remembers across runs what plans of a job needed: which fitted, which ran
// out of memory and of how much, and what the processes measured.
//
// It lies in the user's state directory, one file a job, and holds measurements and plans
// only: no word of a command, no path, no variable. What is read back is judged (Judge)
// before anything starts with it: against the job as it is today, its device, its policy.
// A copy beside the job serves whoever starts it elsewhere; it is a hint, and starts nothing.
package fits

import (
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// A Key says under which conditions a job ran. What was seen under equal ones holds.
type Key struct {
	// Code is a digest of the job's script, the modules that it imports, its arguments and
	// configuration files, without the settings that gpurun may change.
	Code   string `json:"code"`
	Recipe string `json:"recipe"`
	// Device is the name of what it trained on, DeviceBytes its memory; "cpu" and 0 on a CPU.
	Device      string `json:"device"`
	DeviceBytes int64  `json:"device_bytes,omitempty"`
	// Torch is the minor version of PyTorch: "2.11"; empty: not known.
	Torch        string `json:"torch,omitempty"`
	DataParallel int    `json:"data_parallel"`
}

// A Fit is all that is remembered of a job under one key.
type Fit struct {
	Key
	// Written is the plan of the job as it was written then.
	Written strategy.Plan `json:"written"`
	// Model is the fingerprint of its model, nil where no process told of it.
	Model *memory.Fingerprint `json:"model,omitempty"`
	// Tried are the plans that were run, the newest first.
	Tried []Tried `json:"tried"`
}

// A Tried is how one plan ended when it last ran.
type Tried struct {
	Plan strategy.Plan `json:"plan"`
	// Training is what the plan does to the training, by all that its run saw; empty where an
	// earlier version has written it.
	Training strategy.Training `json:"training,omitempty"`
	// Fitted: the job trained to its end with it. Otherwise it ran out of memory.
	Fitted bool `json:"fitted"`
	// Room is the memory that each rank had on its device, in bytes; Peak what it held of
	// that at most. 0: not known.
	Room int64 `json:"room_bytes,omitempty"`
	Peak int64 `json:"peak_bytes,omitempty"`
	// Needed is how many runs came to the plan by themselves, and fitted.
	Needed int `json:"needed,omitempty"`
	// Seconds is the time of a step; 0: not known.
	Seconds  float64              `json:"step_seconds,omitempty"`
	At       time.Time            `json:"at"`
	Measured []memory.Measurement `json:"measured,omitempty"`
}

// Bounds of what is kept of one job, and of all.
const (
	mostFits     = 8  // of a job
	mostTried    = 16 // of a fit
	mostMeasured = 2  // of a plan: the ranks that say the most
	largestFile  = 1 << 20
	mostFiles    = 256
	largestStore = 32 << 20 // bytes
)

// plan finds what was tried with a plan, -1 for nothing.
func (f Fit) plan(p strategy.Plan) int {
	return slices.IndexFunc(f.Tried, func(t Tried) bool { return equal(t.Plan, p) })
}

// Begins reports whether a run of the job as it is written begins with a plan: the newest one
// of the strongest class that fitted, where the one as written ran out of memory.
func (f Fit) Begins(written, plan strategy.Plan) bool {
	at := f.plan(f.Written)
	fitted := f.fitted(strategy.Policy{}, strategy.Job{Written: f.Written})
	return equal(f.Written, written) && at >= 0 && !f.Tried[at].Fitted && len(fitted) > 0 && equal(f.Tried[fitted[0]].Plan, plan)
}

// equal plans set the same knobs to the same values.
func equal(a, b strategy.Plan) bool { return len(a) == len(b) && len(a.Changed(b)) == 0 }
