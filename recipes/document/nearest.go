package document

import "strings"

// Nearest returns the word that was probably meant by a wrong one, or empty: the
// nearest by edit distance, where at most a third of the letters are wrong.
func Nearest(wrong string, words []string) string {
	best, least := "", len(wrong)/3+1
	if len(wrong) < 3 {
		least = 1
	}
	for _, w := range words {
		if d := distance(fold(wrong), fold(w)); d < least || d == least && best == "" && d <= 1 {
			best, least = w, d
		}
	}
	if best == "" && len(wrong) >= 3 {
		for _, w := range words {
			if strings.HasPrefix(fold(w), fold(wrong)) {
				return w
			}
		}
	}
	return best
}

// fold removes the differences that people do not hear.
func fold(word string) string {
	return strings.ReplaceAll(strings.ToLower(word), "_", "-")
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that make b out of a (optimal string alignment).
func distance(a, b string) int {
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
