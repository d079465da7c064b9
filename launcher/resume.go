package launcher

import "time"

// BeganAt is when attempt 0 of the run was started, now for a new run.
func BeganAt(events []Event) time.Time {
	for _, e := range events {
		if ended, ok := e.(Ended); ok {
			return ended.Evidence.Started
		}
		if b, ok := e.(Began); ok && !b.At.IsZero() {
			return b.At
		}
	}
	return time.Now()
}
