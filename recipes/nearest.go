package recipes

import (
	"slices"
	"strings"
)

// nearest is the candidate that a mistyped word was probably meant for, empty
// where none is close: up to two letters or a third of them may differ, or the
// rest of the candidate may be missing.
func nearest(word string, candidates []string) string {
	best, distance := "", max(min(len(word)/2, 2), len(word)/3)+1
	for _, candidate := range slices.Sorted(slices.Values(candidates)) {
		if d := edits(word, candidate); d < distance {
			best, distance = candidate, d
		}
	}
	for _, candidate := range slices.Sorted(slices.Values(candidates)) {
		if best == "" && len(word) >= 4 && strings.HasPrefix(candidate, word) {
			best = candidate
		}
	}
	return best
}

// edits counts the letters to insert, delete or replace between two words.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
