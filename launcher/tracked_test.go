package launcher

import (
	"regexp"
	"strings"
	"testing"
)

func TestTrackedAs(t *testing.T) {
	plain := regexp.MustCompile(`^[A-Za-z0-9-]{1,49}$`)
	for _, run := range []string{"20270115-080000-ab12", "", "mein Lauf/ü?#", strings.Repeat("ä", 300), "---"} {
		a, b := TrackedAs(run, nil), TrackedAs(run, []Event{Began{Run: run}, Started{}})
		if a == b || !plain.MatchString(a) || !plain.MatchString(b) || a[0] == '-' {
			t.Errorf("%q: %q and %q", run, a, b)
		}
		if c := TrackedAs(run, []Event{Began{Run: run}, Started{}, Began{Run: run, Tracked: a}, Ended{}, Began{Run: run, Tracked: b}}); c != a {
			t.Errorf("a run that goes on: %q, want %q", c, a)
		}
	}
}
