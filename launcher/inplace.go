package launcher

import (
	"errors"
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

// news returns the events about repeats that are due, and what all events so far have: the first repeat of a
// kind at once, later ones when their number has doubled, the way that is kept since, and all at the end.
func news(attempt int, shown, all []strategy.InPlace, end bool) (events []InPlace, now []strategy.InPlace) {
	for _, r := range all {
		before, tuned := 0, false
		if i := slices.IndexFunc(shown, r.SameKind); i >= 0 {
			before, tuned = shown[i].Times, slices.Equal(shown[i].Trials, r.Trials)
		}
		if before == 0 && len(shown) >= strategy.MostInPlace {
			continue
		}
		if r.Times >= max(1, 2*before) || end && (r.Times > before || !tuned) || !tuned && r.Kept() != nil {
			events = append(events, InPlace{N: attempt, InPlace: r, More: r.Times - before})
			shown = strategy.FoldInPlace(shown, r)
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
