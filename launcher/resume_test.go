package launcher

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A run began when its attempt 0 did.
func TestBeganAt(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	for name, events := range map[string][]Event{
		"cut off in attempt 0": {Began{At: at}, Began{At: at.Add(time.Hour)}},
		"by its attempt":       {Began{}, Ended{Evidence: strategy.Evidence{Started: at}}, Ended{Evidence: strategy.Evidence{Started: at.Add(time.Hour)}}},
	} {
		if got := BeganAt(events); !got.Equal(at) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if since := time.Since(BeganAt(nil)); since < 0 || since > time.Hour {
		t.Errorf("a new run began %s ago", since)
	}
}
