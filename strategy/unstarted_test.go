package strategy

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// An attempt that could not be started ends the run: as the job's failure, or, if waiting helps,
// with the advice to wait.
func TestUnstartedAttemptEndsTheRun(t *testing.T) {
	for _, test := range []struct {
		unstarted Unstarted
		cause     cause.Code
		outcome   Outcome
		code      int
	}{
		{Unstarted{Reason: "no such file"}, cause.UserError, Failed, CodeFailed},
		{Unstarted{Reason: "too many open files", Wait: true}, cause.Unknown, Retry, CodeRetry},
		{Unstarted{Reason: "no space left on device", RunDir: true}, cause.Unknown, Retry, CodeRunDir},
	} {
		ev := Evidence{Attempt: 1, Ranks: 2, Accelerator: "cuda", Unstarted: &test.unstarted}
		diagnosis := Diagnose(ev)
		if diagnosis.Cause != test.cause || !diagnosis.Fatal || diagnosis.Error != test.unstarted.Reason {
			t.Errorf("%+v: diagnosis %+v", test.unstarted, diagnosis)
		}
		d := Decide(Policy{Mode: Ladder, MaxAttempts: 10, Restarts: 3}, Job{}, []Attempt{
			{N: 0, Diagnosis: Diagnosis{Cause: cause.CUDAOOM, Fatal: true}},
			{N: 1, Remedy: RemedyMicroBatch, Diagnosis: diagnosis, Unstarted: &test.unstarted},
		}, Inventory{})
		if d.Relaunch || d.Rule != "could-not-start" || d.Outcome != test.outcome || d.Code != test.code ||
			d.Reason != "attempt 1 could not be started: "+test.unstarted.Reason {
			t.Errorf("%+v: %+v", test.unstarted, d)
		}
	}
}

// When the run is started again, the attempt that never ran does not count: not as a restart, not
// among the attempts, and not for comparison with the next one.
func TestUnstartedAttemptUsesNoBudget(t *testing.T) {
	p := Policy{Mode: Ladder, MaxAttempts: 2, Restarts: 1}
	failed := Diagnosis{Cause: cause.UserError, Fatal: true, Error: "KeyError: 1"}
	never := Unstarted{Reason: "too many open files", Wait: true}
	at := time.Unix(0, 0)
	history := []Attempt{
		{N: 0, Diagnosis: never.diagnosis(), Unstarted: &never},
		{N: 1, Diagnosis: never.diagnosis(), Unstarted: &never},
		{N: 2, Diagnosis: failed, Started: at, Ended: at.Add(time.Minute)},
	}
	d := Decide(p, Job{}, history, Inventory{})
	if !d.Relaunch || d.Rule != "restart" {
		t.Errorf("%+v", d)
	}
	if want := Decide(p, Job{}, history[2:], Inventory{}); want.Reason != d.Reason {
		t.Errorf("%q, without them %q", d.Reason, want.Reason)
	}
}
