package launcher

import "time"

// BeganAt is when attempt 0 of the run was started, now for a new run. The
// second is cut off, since file systems keep times more coarsely than clocks.
func BeganAt(events []Event) time.Time {
	for _, e := range events {
		if ended, ok := e.(Ended); ok {
			return ended.Evidence.Started.Truncate(time.Second)
		}
		if b, ok := e.(Began); ok && !b.At.IsZero() {
			return b.At.Truncate(time.Second)
		}
	}
	return time.Now().Truncate(time.Second)
}
