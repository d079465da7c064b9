package strategy

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Seconds is a duration that JSON has as a number of seconds, under a key that
// ends in _seconds.
type Seconds time.Duration

// Duration is the same as package time has it.
func (s Seconds) Duration() time.Duration { return time.Duration(s) }

// String is "1m30s".
func (s Seconds) String() string { return s.Duration().String() }

// MarshalJSON writes seconds, with as many decimals as there are. One division is
// rounded once, so that it prints as the decimal that is meant; Duration.Seconds adds
// two rounded numbers.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(s) / float64(time.Second))
}

// UnmarshalJSON reads what MarshalJSON writes, to the nanosecond for durations of
// up to 26 days: two roundings of 2^-53 are half of one in 2^51. A number that no duration holds is an error.
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
