package launcher

import (
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

func TestContinueRefusesAnotherJob(t *testing.T) {
	events := []Event{Began{Digest: "a"}, Started{N: 0, Plan: plan0}}
	if _, _, err := Continue(plan0, "/runs/r", sameAs("b"), events); errext.Code(err, 0) != strategy.CodeUsage || !strings.Contains(err.Error(), "/runs/r is of another job") {
		t.Errorf("another job: %v", err)
	}
	state, done, err := Continue(plan0, "/runs/r", sameAs("a"), events)
	if err != nil || done || state.Next.N != 1 || state.Verdict.Run != "r" {
		t.Errorf("the same job: %+v, done %v, %v", state, done, err)
	}
}

// A run began when its attempt 0 did; file systems keep whole seconds, some of them.
func TestBeganAt(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	whole := at.Truncate(time.Second)
	for name, events := range map[string][]Event{
		"cut off in attempt 0": {Began{At: at}, Began{At: at.Add(time.Hour)}},
		"by its attempt":       {Began{}, Ended{Evidence: strategy.Evidence{Started: at}}, Ended{Evidence: strategy.Evidence{Started: at.Add(time.Hour)}}},
	} {
		if got := BeganAt(events); !got.Equal(whole) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if since := time.Since(BeganAt(nil)); since < 0 || since > time.Minute {
		t.Errorf("a new run began %s ago", since)
	}
}

// sameAs is a job with a digest of version 1.
func sameAs(digest string) func(string) (bool, bool) {
	return func(stored string) (same, known bool) { return stored == digest, true }
}
