package strategy

import (
	"slices"
	"strings"
	"testing"
)

func TestAdviceForOneRankAndForAll(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ranks int
		facts []Fact
		want  string // "": no such advice
	}{
		{"one of two", 2, slices.Concat(says(1, 1, oomForward), exits(1, 2, 1), stopped(0, 3)), "rank 1 of 2 alone ran out"},
		{"all of two", 2, slices.Concat(says(0, 1, oomForward), says(1, 1, oomForward), exits(0, 2, 1), exits(1, 2, 1)), "all 2 ranks ran out"},
		{"two of four", 4, slices.Concat(says(0, 1, oomForward), says(3, 1, oomForward), exits(0, 2, 1), exits(3, 2, 1)), "2 of 4 ranks ran out, the first on rank 0"},
		{"one rank in all", 1, slices.Concat(says(0, 1, oomForward), exits(0, 2, 1)), ""},
		{"nobody knows how many", 0, slices.Concat(says(5, 1, oomForward), exits(5, 2, 1)), ""},
	} {
		d := Diagnose(Evidence{Ranks: tt.ranks, Facts: tt.facts})
		if tt.want == "" && strings.Contains(d.Advice, "ran out") || !strings.HasPrefix(d.Advice, tt.want) {
			t.Errorf("%s: advice %q, want %q", tt.name, d.Advice, tt.want)
		}
	}
}
