package strategy

import (
	"fmt"
	"slices"
	"time"
)

// countPause is how old a count of steps may be: a process tells its own once a second.
const countPause = 2 * time.Second

// Behind says which ranks are behind the others where all have stopped making steps, by how
// far each has come; empty where none is.
func (e *Evidence) Behind(progress []Fact) string {
	ranks, step, others := behind(progress)
	if len(ranks) == 0 {
		return ""
	}
	is, theOthers, they := "is", "the others", "they are"
	if len(ranks) > 1 {
		is = "are"
	}
	if e.Ranks == 2 {
		theOthers, they = "the other", "it is"
	}
	words := RankWords(ranks)
	if node := e.folded().nodeOf(*e, ranks[0]); node != "" && len(ranks) == 1 {
		words += " of " + node
	}
	return fmt.Sprintf("%s %s behind %s: at step %d, and %s at %d", words, is, theOthers, step, they, others)
}

// behind are the ranks that have made fewer steps than most, the first of them furthest
// behind, the step that it is at, and that of the others. Only what the processes count can
// be compared: of lines, some ranks print fewer.
func behind(progress []Fact) (ranks []int, step, others int) {
	counted := slices.DeleteFunc(slices.Clone(progress), func(f Fact) bool { return f.Source != "probe" || f.Progress == nil })
	if len(counted) < 2 {
		return nil, 0, 0
	}
	slices.SortFunc(counted, func(a, b Fact) int {
		if a.Progress.Last != b.Progress.Last {
			return a.Progress.Last - b.Progress.Last
		}
		return a.Rank - b.Rank
	})
	front := counted[len(counted)/2].Progress
	made := front.Last - front.First
	for _, f := range counted[:len(counted)/2] {
		gap := front.Last - f.Progress.Last
		if made <= 0 || gap <= 0 || front.For.Duration()/time.Duration(made)*time.Duration(gap) <= countPause {
			break
		}
		ranks = append(ranks, f.Rank)
	}
	return ranks, counted[0].Progress.Last, front.Last
}
