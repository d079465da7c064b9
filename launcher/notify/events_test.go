package notify

import (
	"slices"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// A run that is over and is started again only shows its verdict: that is no event. An event
// has the same id whichever node reports it, and another one in another run.
func TestAStoryEndsOnce(t *testing.T) {
	read := func(dir string, at time.Time, events ...launcher.Event) (told []Notification) {
		s := eventSource{dir: dir}
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

// The message at the end says what the steps cost that were done again in place.
func TestTrainedAfterRepeatsInPlace(t *testing.T) {
	s, again := newEventSource("/a/r", "n1"), launcher.InPlace{InPlace: strategy.InPlace{Remedy: strategy.RemedyCheckpointing, Phase: "forward", LastStep: 1, Times: 2, Seconds: strategy.Seconds(time.Second)}}
	var told []Notification
	events := slices.Concat(opening(), []launcher.Event{again}, ending(strategy.Trained, 0))
	events[len(events)-1] = launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{InPlace: []strategy.InPlace{again.InPlace}}}}}
	for _, e := range events {
		if m, ok := s.take(e, began); ok {
			told = append(told, m)
		}
	}
	if want := "gpt: trained; 2 steps repeated in place with activation checkpointing (1.00 s)"; len(told) != 1 || told[0].Summary != want {
		t.Errorf("told %+v, want one: %s", told, want)
	}
}
