package launcher

import (
	"crypto/rand"
	"strings"
)

// longestTracked bounds how much of a run's name is in the name for trackers, in bytes.
const longestTracked = 40

// TrackedAs is the name by which experiment trackers know a run, the same for all its
// attempts: that which its events have, else a new one. No other run has it, be it one of
// the same name, and it has letters, digits and hyphens only.
func TrackedAs(run string, events []Event) string {
	for _, e := range events {
		if b, ok := e.(Began); ok && b.Tracked != "" {
			return b.Tracked
		}
	}
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, run)
	return strings.Trim(plain[:min(len(plain), longestTracked)]+"-"+strings.ToLower(rand.Text()[:8]), "-")
}
