package strategy

import (
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// An attempt is not started if it could not end in time: one and a half times the time to the
// first step has to be left, and at least two minutes. The decision stays valid.
func TestNoAttemptStartsTooLate(t *testing.T) {
	const m = time.Minute
	slow := func(before time.Duration) Attempt {
		a := ended(0, plain, oom(cause.Backward))
		a.Stepping = Stepping{Steps: 3, Before: Seconds(before)}
		return a
	}
	loading := ended(0, plain, oom(cause.Load))
	loading.Ended = loading.Started.Add(10 * m)
	occupied := ended(0, plain, Diagnosis{Cause: cause.GPUOccupied, Fatal: true})
	for name, test := range map[string]struct {
		history []Attempt
		left    time.Duration // 0: no deadline is known
		resume  string
		late    string // empty: started at once
	}{
		"no deadline":                        {[]Attempt{slow(10 * m)}, 0, "", ""},
		"time enough":                        {[]Attempt{slow(10 * m)}, 15 * m, "", ""},
		"too late":                           {[]Attempt{slow(10 * m)}, 15*m - 1, "", "not enough time before the deadline: 15m0s left, and an attempt takes 10m0s to its first step"},
		"too late, with a checkpoint":        {[]Attempt{slow(10 * m)}, 14 * m, "ckpt-5", "not enough time before the deadline: 14m0s left, and an attempt takes 10m0s to its first step; it continues from ckpt-5"},
		"fast, and two minutes are left":     {[]Attempt{slow(time.Second)}, 2 * m, "", ""},
		"fast, and less is left":             {[]Attempt{slow(1500 * time.Millisecond)}, 2*m - 1, "", "not enough time before the deadline: 2m0s left, and an attempt takes 1.5s to its first step"},
		"nothing is known, and less is left": {[]Attempt{ended(0, plain, oom(cause.Forward))}, m, "", "not enough time before the deadline: 1m0s left"},
		"nothing is known":                   {[]Attempt{ended(0, plain, oom(cause.Forward))}, 3 * m, "", ""},
		"the end is over":                    {[]Attempt{slow(10 * m)}, -m, "", "not enough time before the deadline: 0s left"},
		"it loads for long":                  {[]Attempt{loading}, 14 * m, "", "and an attempt takes 10m0s to its first step"},
		"an attempt before made steps":       {[]Attempt{slow(10 * m), ended(1, plain.With(Plan{ActivationCheckpointing: "full"}), oom(cause.Forward))}, 14 * m, "", "10m0s"},
		"it would have to wait first":        {[]Attempt{occupied}, 3*m - 1, "", "2m0s left"},
	} {
		t.Run(name, func(t *testing.T) {
			inv := h100
			inv.At, inv.Checkpoint = time.Date(2026, 1, 2, 6, 0, 0, 0, time.UTC), test.resume
			if test.left != 0 {
				inv.Deadline = inv.At.Add(test.left)
			}
			d := Decide(defaults, gpt(2), test.history, inv)
			if !d.Relaunch || !strings.Contains(d.Late, test.late) || (d.Late == "") != (test.late == "") {
				t.Fatalf("relaunch %t, late %q, want %q", d.Relaunch, d.Late, test.late)
			}
			if p := Postponed(d); p.Outcome != Retry || p.Code != CodeRetry || !strings.HasPrefix(p.Reason, d.Reason) || !strings.HasSuffix(p.Reason, d.Late) {
				t.Errorf("postponed: %+v", p)
			}
		})
	}
}
