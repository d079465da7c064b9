package job

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/recipes/edit"
)

// A fileTable reads one table of a train.toml. It adds paths, durations and sizes to edit.ValueTable.
type fileTable struct{ *edit.ValueTable }

// file reads a path. Nothing is expanded in it.
func (t *fileTable) file(key, fallback string) string {
	s := t.Text(key, fallback)
	switch {
	case strings.HasPrefix(s, "~"):
		t.Bad(key, "only a shell expands ~; write the path out, or ./%s for a file of that name", s)
	case strings.Contains(s, "\x00"):
		t.Bad(key, "holds a NUL character")
		return fallback
	}
	return s
}

// duration reads a duration such as "30s" or "2h30m", of at least least.
func (t *fileTable) duration(key string, fallback, least time.Duration) time.Duration {
	v, set := t.Get(key)
	if !set {
		return fallback
	}
	s, ok := v.(string)
	if !ok {
		if n, isNumber := edit.Number(v); isNumber {
			t.Bad(key, "%v", bareDuration(n))
		} else {
			t.Bad(key, "want a duration such as \"30s\", found %s", edit.Describe(v))
		}
		return fallback
	}
	d, err := parseDuration(s)
	switch {
	case err != nil:
		t.Bad(key, "%v", err)
	case d < least:
		t.Bad(key, "%q is less than %v", s, least)
	default:
		return d
	}
	return fallback
}

// size reads "24GiB", in bytes.
func (t *fileTable) size(key string) int64 {
	v, set := t.Get(key)
	if !set {
		return 0
	}
	s, ok := v.(string)
	if n, isNumber := edit.Number(v); isNumber {
		s, ok = n, true
	}
	if !ok {
		t.Bad(key, "want a size such as \"24GiB\", found %s", edit.Describe(v))
		return 0
	}
	bytes, err := ParseSize(s)
	if err != nil {
		t.Bad(key, "%v", err)
	}
	return bytes
}

// sizeUnits maps a unit, in lower case, to its bytes.
var sizeUnits = map[string]float64{
	"b":  1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

// ParseSize reads an amount of memory, such as "24GiB" or "512 MB": a decimal number and one of B, KB, MB,
// GB, TB (powers of 1000), KiB, MiB, GiB and TiB (powers of 1024). Fractions of a byte are dropped.
func ParseSize(text string) (bytes int64, err error) {
	text = strings.TrimSpace(text)
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit := strings.ToLower(text[len(digits):])
	digits = strings.TrimSpace(digits)
	if digits == "" || strings.Trim(digits, "0123456789.") != "" {
		return 0, fmt.Errorf("%q is not a size; write one like \"24GiB\"", text)
	}
	number, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size; write one like \"24GiB\"", text)
	}
	if unit == "" {
		return 0, fmt.Errorf("%q has no unit; write \"%sGiB\", or whichever is meant", text, digits)
	}
	scale, known := sizeUnits[unit]
	if !known {
		return 0, fmt.Errorf("%q has an unknown unit; write \"%s\"", text, digits+likelyUnit(unit))
	}
	size := number * scale
	if size < 1 || size >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is out of range", text)
	}
	return int64(size), nil
}

// likelyUnit returns the unit that was probably meant by an invalid one: "G" is 1024³ in some tools and 1000³
// in others.
func likelyUnit(unit string) string {
	if i := strings.IndexByte("kmgt", unit[0]); i >= 0 {
		return "KMGT"[i:i+1] + "iB"
	}
	return "GiB"
}

// spelledUnits maps long names of units of time to those of time.ParseDuration.
var spelledUnits = map[string]string{
	"sec": "s", "secs": "s", "second": "s", "seconds": "s",
	"min": "m", "mins": "m", "minute": "m", "minutes": "m",
	"hr": "h", "hrs": "h", "hour": "h", "hours": "h",
}

// parseDuration reads "30s", "30m" or "2h30m".
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err == nil && d < 0:
		return 0, fmt.Errorf("%q is negative", text)
	case err == nil:
		return d, nil
	}
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.ToLower(strings.TrimSpace(text[len(digits):]))
	number, notNumber := strconv.ParseFloat(digits, 64)
	if notNumber != nil || number < 0 {
		return 0, fmt.Errorf("%q is not a duration; write one like \"30s\", \"30m\" or \"2h30m\"", text)
	}
	if unit == "" {
		return 0, bareDuration(digits)
	}
	if unit == "d" || strings.HasPrefix(unit, "day") {
		return 0, fmt.Errorf("%q is not a duration; write \"%gh\"", text, number*24)
	}
	if short, known := spelledUnits[unit]; known {
		return 0, fmt.Errorf("%q is not a duration; write \"%s%s\"", text, digits, short)
	}
	if short := unit[:1]; strings.Contains("smh", short) && len(unit) == 1 {
		return 0, fmt.Errorf("%q is not a duration; write \"%s%s\"", text, strings.TrimSpace(digits), short)
	}
	return 0, fmt.Errorf("%q is not a duration; write one like \"30s\", \"30m\" or \"2h30m\"", text)
}

// bareDuration refuses a number without a unit.
func bareDuration(digits string) error {
	return errors.New(digits + " has no unit; write \"" + digits + "s\" for seconds, \"" + digits + "m\" for minutes")
}
