package strategy

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// GiB formats bytes for people: "2.0 GiB", "512 MiB", "3 KiB".
func GiB(bytes int64) string {
	const kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
	switch {
	case bytes >= 100*gib:
		return fmt.Sprintf("%.0f GiB", float64(bytes)/gib)
	case bytes >= gib:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/gib)
	case bytes >= mib:
		return fmt.Sprintf("%.0f MiB", float64(bytes)/mib)
	case bytes >= kib:
		return fmt.Sprintf("%.0f KiB", float64(bytes)/kib)
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// Count formats a number of things: "1 attempt", "2 attempts".
func Count[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// RankWords names ranks: "rank 3", "ranks 0–7, 12".
func RankWords(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	return "ranks " + ranges(ranks)
}

// ranges is "0–7, 12".
func ranges(ranks []int) string {
	ranks = slices.Sorted(slices.Values(ranks))
	var words []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		word := fmt.Sprint(ranks[i])
		if j > i {
			word = fmt.Sprintf("%d–%d", ranks[i], ranks[j])
		}
		words, i = append(words, word), j+1
	}
	return strings.Join(words, ", ")
}

// Seconds is a duration that is a number of seconds in JSON, under a key that ends in _seconds.
type Seconds time.Duration

// Duration is the same as a time.Duration.
func (s Seconds) Duration() time.Duration { return time.Duration(s) }

// String is "1m30s".
func (s Seconds) String() string { return s.Duration().String() }

// MarshalJSON writes seconds with all decimals. One division is rounded once, and prints as the
// intended decimal; Duration.Seconds adds two rounded numbers.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(s) / float64(time.Second))
}

// UnmarshalJSON reads the form that MarshalJSON writes, exactly for durations of up to 26 days.
// A number that no duration can hold is an error.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	var n float64
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("read seconds: %w", err)
	}
	nanoseconds := math.Round(n * float64(time.Second))
	if nanoseconds >= math.MaxInt64 || nanoseconds <= math.MinInt64 {
		return fmt.Errorf("read seconds: %s is longer than 292 years", b)
	}
	*s = Seconds(nanoseconds)
	return nil
}

// A StepPattern has the groups of a regular expression for a line with a training step, by their
// names "step", "total" and "loss"; 0: no such group. Without a group "step", the first unnamed
// group is the step.
type StepPattern struct{ Step, Total, Loss int }

// StepPatternOf finds the groups by the names that regexp's SubexpNames returns. unknown lists
// names without a meaning.
func StepPatternOf(names []string) (p StepPattern, unknown []string) {
	for i, name := range names {
		switch {
		case i == 0 || name == "":
		case name == "step":
			p.Step = i
		case name == "total":
			p.Total = i
		case name == "loss":
			p.Loss = i
		default:
			unknown = append(unknown, name)
		}
	}
	if p.Step == 0 && len(names) > 1 {
		p.Step = max(slices.Index(names[1:], "")+1, 0)
	}
	return p, unknown
}
