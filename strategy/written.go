package strategy

import "time"

// tick is how far the clock by which a kernel dates files may be behind the one that a process
// asks: a tick of the slowest, and one more.
const tick = 20 * time.Millisecond

// WrittenBefore reports whether a file that was written then is older than a moment. Some
// file systems keep whole seconds: a file of the moment's own second is not older there.
func WrittenBefore(written, moment time.Time) bool {
	if written.Nanosecond() == 0 {
		return written.Before(moment.Truncate(time.Second))
	}
	return written.Before(moment.Add(-tick))
}
