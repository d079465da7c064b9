package memory

import (
	"fmt"
	"slices"
)

// Unit formats sizes that are shown together in one unit: the unit of the largest, with more
// decimals if another is far smaller.
func Unit(sizes ...int64) (figure func(int64) string, unit string) {
	const mib, gib = 1 << 20, 1 << 30
	format, size, unit := "%.1f", float64(gib), " GiB"
	switch {
	case slices.Max(sizes) < gib:
		format, size, unit = "%.0f", mib, " MiB"
	case slices.Min(sizes) < gib:
		format = "%.2f"
	}
	return func(n int64) string { return fmt.Sprintf(format, float64(n)/size) }, unit
}

// Of formats a need of some room: "36.1–37.8 of 40.0 GiB"; without the room if that is 0.
func Of(mean, bound, room int64) string {
	sizes := []int64{mean, bound}
	if room > 0 {
		sizes = append(sizes, room)
	}
	figure, unit := Unit(sizes...)
	words := figure(mean)
	if most := figure(bound); most != words {
		words += "–" + most
	}
	if room > 0 {
		words += " of " + figure(room)
	}
	return words + unit
}
