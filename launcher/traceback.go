package launcher

import (
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// tracebackLines is how many lines of a traceback are kept, the last ones: what
// raised stands at the end.
const tracebackLines = 50

// Traceback is the failing rank's traceback, oldest line first and with the
// exception last, without the frames of gpurun's own: the one that the diagnosis rests on, else the rank's own word of
// its end (error.json, the probe's), else the last that it printed. It is nil where
// no rank is known to have failed, or where the rank printed none.
func Traceback(e strategy.Evidence, d strategy.Diagnosis) []string {
	if !d.Fatal || d.Rank < 0 {
		return nil
	}
	var best *cause.Finding
	for _, i := range slices.Backward(d.Because) { // the strongest is the last to be kept
		if i >= 0 && i < len(e.Facts) {
			best = tracedBy(e.Facts[i], d.Rank, best)
		}
	}
	if best != nil {
		return linesOf(best)
	}
	for _, f := range e.Facts {
		best = tracedBy(f, d.Rank, best)
	}
	for _, f := range e.Facts {
		if f.Source == "error.json" || f.Source == "probe" {
			best = tracedBy(f, d.Rank, best)
		}
	}
	return linesOf(best)
}

// tracedBy is what a fact shows of a rank with a traceback, else what is known
// already.
func tracedBy(f strategy.Fact, rank int, known *cause.Finding) *cause.Finding {
	if f.Finding == nil || f.Rank != rank || len(f.Finding.Traceback) == 0 {
		return known
	}
	return f.Finding
}

// linesOf is a traceback with its exception, whose line may stand apart from it.
func linesOf(s *cause.Finding) []string {
	if s == nil {
		return nil
	}
	lines := slices.Clone(s.Traceback)
	if !sameLine(lines[len(lines)-1], s.Text) {
		lines = append(lines, s.Text)
	}
	return cause.Shown(lines, tracebackLines)
}

// sameLine reports whether two lines are one, of which either may be shortened.
func sameLine(a, b string) bool {
	a, b = strings.TrimSuffix(strings.TrimSpace(a), "…"), strings.TrimSuffix(strings.TrimSpace(b), "…")
	return a != "" && b != "" && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
}
