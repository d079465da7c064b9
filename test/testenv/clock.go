package testenv

import (
	"testing"
	"time"
	"unsafe"
)

// SetClock returns a moment as it is read after the wall clock was put forward by whole seconds: its monotonic clock
// stays. The first word of a time with a monotonic clock has the seconds above 30 bits of nanoseconds.
func SetClock(t *testing.T, moment time.Time, forward time.Duration) time.Time {
	t.Helper()
	after := moment
	*(*uint64)(unsafe.Pointer(&after)) += uint64(forward/time.Second) << 30
	if after.Sub(moment) != 0 || after.Round(0).Sub(moment.Round(0)) != forward {
		t.Fatalf("%s is not %s put forward by %s", after, moment, forward)
	}
	return after
}
