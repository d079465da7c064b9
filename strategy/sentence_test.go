package strategy

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A sentence is shortened before a word, because secrets are masked later and must be whole for
// that.
func TestClipKeepsWordsWhole(t *testing.T) {
	const token = "hf_abcdefgh123456789"
	for n := range 200 {
		d := Diagnosis{Cause: cause.UserError, Fatal: true, Rank: -1, Error: "ValueError: " + strings.Repeat("x ", n) + token + " " + strings.Repeat("y", 40)}
		said := d.Sentence()
		if i := strings.Index(said, "hf_"); i >= 0 && !strings.HasPrefix(said[i:], token) {
			t.Fatalf("%q", said)
		}
		if len(said) > 200 {
			t.Fatalf("%d bytes: %q", len(said), said)
		}
	}
}

// A code above those of the standard signals is the program's own.
func TestExitCodesAboveSignals(t *testing.T) {
	for code, want := range map[int]string{
		255: "ended with exit code 255 for an unknown reason", 160: "ended with exit code 160 for an unknown reason", 134: "ended by signal 6 for an unknown reason",
	} {
		d := Diagnose(Evidence{Ranks: 1, Facts: []Fact{{Rank: 0, Source: "exit", Content: &Exit{Code: code}}}})
		if d.Cause != cause.Unknown || !strings.HasPrefix(d.Sentence(), want) {
			t.Errorf("%d: %s, %q, want %q", code, d.Cause, d.Sentence(), want)
		}
	}
}
