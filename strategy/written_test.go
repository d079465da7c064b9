package strategy

import (
	"testing"
	"time"
)

// A file counts as written before a moment only by more than a tick; with times in whole seconds,
// only if its second is earlier.
func TestWrittenBefore(t *testing.T) {
	began := time.Date(2026, 5, 4, 8, 0, 5, 600_000_000, time.UTC)
	for name, test := range map[string]struct {
		written time.Time
		want    bool
	}{
		"half a second before":           {began.Add(-500 * time.Millisecond), true},
		"a tick of the kernel's before":  {began.Add(-4 * time.Millisecond), false},
		"after it":                       {began.Add(time.Millisecond), false},
		"in whole seconds":               {began.Truncate(time.Second), false},
		"in whole seconds, the one ago":  {began.Truncate(time.Second).Add(-time.Second), true},
		"in whole seconds, the one then": {began.Truncate(time.Second).Add(time.Second), false},
	} {
		if got := WrittenBefore(test.written, began); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
