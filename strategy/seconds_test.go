package strategy

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSecondsAsJSON(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0", time.Minute: "60", 1500 * time.Millisecond: "1.5", 3889864298: "3.889864298", -time.Second: "-1", 2202159003: "2.202159003", 100: "1e-7", 1234567890123456: "1234567.890123456", -1500000001: "-1.500000001"} {
		if got, err := json.Marshal(Seconds(d)); err != nil || string(got) != want {
			t.Errorf("%s is %s, %v; want %s", d, got, err, want)
		}
	}
	for _, text := range []string{`"60"`, `1e30`, `-1e300`, `{}`} {
		var s Seconds
		if err := json.Unmarshal([]byte(text), &s); err == nil {
			t.Errorf("%s is read as %s", text, s)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		want := Seconds(rapid.Int64Range(-int64(26*24*time.Hour), int64(26*24*time.Hour)).Draw(t, "nanoseconds"))
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Seconds
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Fatalf("%d becomes %s and then %d, %v", want, text, got, err)
		}
	})
}
