package notify

import (
	"slices"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// A run that is over and is started again only shows its verdict: that is no event. An event
// has the same id whoever tells it, and another one in another run.
func TestAStoryEndsOnce(t *testing.T) {
	read := func(dir string, at time.Time, events ...launcher.Event) (told []Notification) {
		s := story{dir: dir}
		for _, e := range events {
			if m, ok := s.take(e, at); ok {
				told = append(told, m)
			}
		}
		return told
	}
	all := slices.Concat(opening(), rescue(), ending(strategy.Trained, 0), ending(strategy.Trained, 0)[2:])
	first, later := read("/a/r", began, all...), read("/a/r", began.Add(time.Hour), all...)
	if len(first) != 2 || len(later) != 2 || first[0].ID != later[0].ID || first[1].ID != later[1].ID || first[0].ID == first[1].ID {
		t.Errorf("told %+v, then %+v", first, later)
	}
	if other := read("/a/other", began, all...); other[0].ID == first[0].ID {
		t.Error("two runs have the same id")
	}
}
