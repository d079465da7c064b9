package strategy

import (
	"encoding/json"
	"math"
	"time"
)

// Seconds is a duration that JSON holds as a number of seconds. A key for one ends
// in "_seconds".
type Seconds time.Duration

// Duration is the same as the standard library has it.
func (s Seconds) Duration() time.Duration { return time.Duration(s) }

func (s Seconds) String() string { return s.Duration().String() }

// MarshalJSON writes seconds, with as many decimals as there are.
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(s.Duration().Seconds()) }

// UnmarshalJSON reads what MarshalJSON writes, to the nanosecond.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	var seconds float64
	if err := json.Unmarshal(b, &seconds); err != nil {
		return err
	}
	*s = Seconds(math.Round(seconds * float64(time.Second)))
	return nil
}
