package report

// A level is how much a report shows, so that it stays below MostBytes whatever the run was.
type level struct {
	full   int // attempts that are shown in full
	points int // of all charts together
	lines  int // of a diff or a traceback
}

var most = level{full: 12, points: 20_000, lines: 160}

// less is the next lower level; one with no attempt in full is the lowest.
func (l level) less() level { return level{l.full / 2, l.points / 2, max(l.lines/2, 10)} }

// Bounds that no level changes: of rows and lists whose entries are short.
const (
	mostRows   = 60 // attempts in the timeline
	mostRanks  = 8  // charts of an attempt
	mostListed = 12 // entries of a list
)

// shownInFull are the indices of so many attempts: the first and the last ones.
func shownInFull(attempts, most int) []int {
	var shown []int
	for i := range attempts {
		if most > 0 && (i == 0 || i > attempts-most) {
			shown = append(shown, i)
		}
	}
	return shown
}
