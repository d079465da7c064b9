package strategy

import (
	"maps"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A Start is one of several starts of a job in the same output: scripts and schedulers append to
// a log.
type Start struct {
	Line int `json:"line"` // its first line
	// Sign is the sign of its beginning, and Text the line; empty for the first start.
	Sign      cause.Sign `json:"sign,omitempty"`
	Text      string     `json:"text,omitempty"`
	Diagnosis Diagnosis  `json:"diagnosis"`
}

// A streamID is a stream of output; its rank is -1 if several ranks share it.
type streamID struct {
	source, stream string
	rank           int
}

// startsIn returns the number of the last start in each stream that has several.
func (e *Evidence) startsIn() map[streamID]int {
	var last map[streamID]int
	for i := range e.Facts {
		f := &e.Facts[i]
		if f.Finding() == nil || f.Finding().Begins == "" || f.Finding().Last && !e.endedSilently() {
			continue
		}
		if last == nil {
			last = map[streamID]int{}
		}
		id := streamID{f.Source, f.Finding().Stream, f.Rank}
		last[id] = max(last[id], f.Finding().Start)
	}
	return last
}

// endedSilently reports whether the exit is known, and needs no message: a start that shows only
// its beginning may be the one that ended so.
func (e *Evidence) endedSilently() bool {
	return slices.ContainsFunc(e.Facts, func(f Fact) bool {
		return f.Exit() != nil && (signalOf(f.Exit()) != 0 || f.Exit().Code == 0)
	})
}

// startsAfter returns how many starts came in the fact's stream after the one that it belongs
// to. Facts that are not from output belong to the last start.
func startsAfter(f *Fact, last map[streamID]int) int {
	if f.Finding() == nil || f.Finding().Stream == "" {
		return 0
	}
	n, ok := last[streamID{f.Source, f.Finding().Stream, f.Rank}]
	if !ok {
		n = last[streamID{f.Source, f.Finding().Stream, -1}]
	}
	return max(0, n-f.Finding().Start)
}

// of returns the evidence of the start that so many others follow, and the indexes of its facts.
func (e *Evidence) of(after int, last map[streamID]int) (Evidence, []int) {
	part, at := *e, []int{}
	part.fold, part.Facts = nil, nil
	for i := range e.Facts {
		f := &e.Facts[i]
		if startsAfter(f, last) != after || f.Finding() != nil && f.Finding().Begins != "" {
			continue
		}
		part.Facts = append(part.Facts, *f)
		at = append(at, i)
	}
	return part, at
}

// diagnoseStart diagnoses one of several starts, the last one with all that was observed.
func (e *Evidence) diagnoseStart(after int, last map[streamID]int) Diagnosis {
	part, at := e.of(after, last)
	d := diagnose(part)
	for i, fact := range d.Because {
		d.Because[i] = at[fact]
	}
	return d
}

// Starts returns the starts of the job that its output shows, each with its diagnosis; nil if it
// shows only one. Streams of different ranks are compared from their ends.
func Starts(ev Evidence) []Start {
	last := ev.startsIn()
	if len(last) == 0 {
		return nil
	}
	n := slices.Max(slices.Collect(maps.Values(last)))
	starts := make([]Start, n+1)
	for i := range starts {
		starts[i] = Start{Line: 1, Diagnosis: ev.diagnoseStart(n-i, last)}
	}
	for i := range ev.Facts {
		f := &ev.Facts[i]
		if f.Finding() == nil || f.Finding().Begins == "" {
			continue
		}
		s := &starts[n-startsAfter(f, last)]
		if s.Sign == "" {
			s.Line, s.Sign, s.Text = f.Finding().Line, f.Finding().Begins, f.Finding().Text
		}
	}
	return starts
}
