package strategy

import "fmt"

// inUnit gives a way to write sizes that stand beside each other: in the unit of the largest,
// and finer where another is far smaller.
func inUnit(sizes ...int64) (figure func(int64) string, unit string) {
	const mib, gib = 1 << 20, 1 << 30
	most, least := int64(0), int64(1)<<62
	for _, n := range sizes {
		most, least = max(most, n), min(least, n)
	}
	format, size, unit := "%.1f", float64(gib), " GiB"
	switch {
	case most < gib:
		format, size, unit = "%.0f", mib, " MiB"
	case least < gib:
		format = "%.2f"
	}
	return func(n int64) string { return fmt.Sprintf(format, float64(n)/size) }, unit
}
