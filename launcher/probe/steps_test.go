package probe

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseStep(t *testing.T) {
	const good = "  412  2000  2.5  1700000000.250000  0  100  200  300  4  412\n"
	want := Step{N: 412, Total: 2000, Loss: 2.5, At: time.Unix(1700000000, 250e6).UTC(), Held: Held{Device: 0, Allocated: 100, Reserved: 200, Peak: 300, Retries: 4}}
	if got, ok := parseStep(good); !ok || got != want {
		t.Errorf("%+v (%v), want %+v", got, ok, want)
	}
	cpu, ok := parseStep("1 0 nan 1700000000 -1 100 0 300 0 1\nrest of a longer record")
	if !ok || cpu.Held.Device != -1 || !math.IsNaN(cpu.Loss) {
		t.Errorf("on the CPU: %+v (%v)", cpu, ok)
	}
	for name, record := range map[string]string{
		"torn":              strings.TrimSuffix(good, "\n"),
		"two halves":        strings.Replace(good, " 412\n", " 413\n", 1),
		"of an older probe": "412 2000 2.5 1700000000 412\n",
		"a number too many": strings.Replace(good, "100", "100 100", 1),
		"no step":           "0 0 nan 1700000000 -1 0 0 0 0 0\n",
		"less than nothing": strings.Replace(good, "100", "-100", 1),
		"more than there is": strings.Replace(good, "300",
			"1125899906842624", 1),
		"no number":     strings.Replace(good, "200", "0x10", 1),
		"no device":     strings.Replace(good, "  0  ", "  -2  ", 1),
		"devices":       strings.Replace(good, "  0  ", "  1024  ", 1),
		"before it all": strings.Replace(good, "1700000000.250000", "-1", 1),
		"nothing":       "",
	} {
		if got, ok := parseStep(record); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
