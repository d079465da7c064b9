package strategy

import "testing"

func TestRanges(t *testing.T) {
	for want, ranks := range map[string][]int{"3": {3}, "0–7": {7, 1, 2, 3, 0, 4, 5, 6}, "0–1, 4, 6–7": {0, 1, 4, 7, 6}} {
		if got := ranges(ranks); got != want {
			t.Errorf("%v: %q, want %q", ranks, got, want)
		}
	}
}
