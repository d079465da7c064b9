package job

import (
	"strings"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"24GiB": 24 << 30, "24 GiB": 24 << 30, " 512MiB ": 512 << 20, "1.5GiB": 3 << 29, "80GB": 80e9, "24gib": 24 << 30,
		"1TB": 1e12, "1TiB": 1 << 40, "64KiB": 64 << 10, "64KB": 64000, "7B": 7, "0.5KiB": 512,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"24": `write "24GiB"`, "24G": `write "24GiB"`, "24m": `write "24MiB"`, "24Gi": `write "24GiB"`, "3 parsecs": "unknown unit",
		"": "not a size", "GiB": "not a size", "-1GiB": "not a size", "1e3GiB": "not a size", "1.2.3GiB": "not a size",
		"0GiB": "out of range", "9999999999TiB": "out of range", "0.1B": "out of range", "NaNGiB": "not a size",
	} {
		if got, err := ParseSize(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseSize(%q) = %d, %v, want an error with %q", text, got, err, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "30m": 30 * time.Minute, "2h30m": 150 * time.Minute, "1.5h": 90 * time.Minute,
		"500ms": 500 * time.Millisecond, "0s": 0,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"30": `write "30s"`, "1.5": `write "1.5s"`, "2 days": `write "48h"`, "1d": `write "24h"`, "30min": `write "30m"`,
		"30 s": `write "30s"`, "30M": `write "30m"`, "5 hours": `write "5h"`, "-1s": "negative", "": "not a duration", "soon": "not a duration",
		"3 parsecs": "not a duration", "-30": "not a duration",
	} {
		if got, err := parseDuration(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseDuration(%q) = %v, %v, want an error with %q", text, got, err, want)
		}
	}
}
