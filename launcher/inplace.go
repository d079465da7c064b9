package launcher

import (
	"errors"
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

// mostInPlace bounds the kinds of repeats of an attempt that have events: a job can write anything into its report.
const mostInPlace = 256

// news returns the events about repeats that are due, and what all events so far have: the first repeat of a
// kind at once, later ones when their number has doubled, and all at the end.
func news(attempt int, shown, all []strategy.RankInPlace, end bool) (events []InPlace, now []strategy.RankInPlace) {
	for _, r := range all {
		before := 0
		if i := slices.IndexFunc(shown, r.SameKind); i >= 0 {
			before = shown[i].Times
		}
		if before == 0 && len(shown) >= mostInPlace {
			continue
		}
		if r.Times >= max(1, 2*before) || end && r.Times > before {
			e := InPlace{N: attempt, RankInPlace: r, More: r.Times - before}
			events, shown = append(events, e), FoldInPlace(shown, e)
		}
	}
	return events, shown
}

// again journals the steps that the ranks did again.
func (w *watch) again(end bool) {
	var events []InPlace
	events, w.inPlace = news(w.evidence.Attempt, w.inPlace, w.evidence.InPlace(), end)
	for _, e := range events {
		w.failed = errors.Join(w.failed, w.launcher.Store.Append(e))
	}
}

// foldInPlace returns the repeats that events are about, each kind once.
func foldInPlace(events []InPlace) (all []strategy.RankInPlace) {
	for _, e := range events {
		all = FoldInPlace(all, e)
	}
	return all
}

// FoldInPlace adds an event to the repeats of an attempt. A later event of one kind replaces the earlier one.
func FoldInPlace(all []strategy.RankInPlace, e InPlace) []strategy.RankInPlace {
	if i := slices.IndexFunc(all, e.SameKind); i >= 0 {
		all[i] = e.RankInPlace
		return all
	}
	return append(all, e.RankInPlace)
}
