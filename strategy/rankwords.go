package strategy

import (
	"fmt"
	"slices"
	"strings"
)

// RankWords names ranks: "rank 3", "ranks 0–7, 12".
func RankWords(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + fmt.Sprint(ranks[0])
	}
	return "ranks " + ranges(ranks)
}

// ranges are ranks in words: "0–7, 12".
func ranges(ranks []int) string {
	ranks = slices.Sorted(slices.Values(ranks))
	var words []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		word := fmt.Sprint(ranks[i])
		if j > i {
			word = fmt.Sprintf("%d–%d", ranks[i], ranks[j])
		}
		words, i = append(words, word), j+1
	}
	return strings.Join(words, ", ")
}
