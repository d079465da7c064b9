package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// evidence are the facts that the diagnosis rests on, the strongest first. What several ranks,
// or several sources of one, say in the same words is one line.
func (d *Data) evidence(a *Attempt) (lines []string) {
	var said []*saying
	for _, i := range a.Diagnosis.Because {
		if i < 0 || i >= len(a.Evidence.Facts) {
			continue
		}
		f := a.Evidence.Facts[i]
		same := func(s *saying) bool { return s.words == wordsOf(f) }
		at := slices.IndexFunc(said, same)
		if at < 0 {
			at = len(said)
			said = append(said, &saying{first: f, words: wordsOf(f)})
		}
		said[at].by(f)
	}
	for n, s := range said {
		if n == mostListed {
			return append(lines, fmt.Sprintf("… and %d more", len(said)-n))
		}
		lines = append(lines, d.say.text(s.String(), longLine/2))
	}
	return lines
}

// A saying is what facts say in the same words.
type saying struct {
	first   strategy.Fact
	words   string
	ranks   []int
	sources []string
}

// wordsOf is what a fact says, whoever says it.
func wordsOf(f strategy.Fact) string {
	switch {
	case f.Rank < 0:
		return launcher.Describe(f)
	case f.Finding != nil:
		return f.Finding.Text
	}
	f.Rank = 0
	return launcher.Describe(f)
}

func (s *saying) by(f strategy.Fact) {
	if !slices.Contains(s.ranks, f.Rank) {
		s.ranks = append(s.ranks, f.Rank)
	}
	if !slices.Contains(s.sources, f.Source) {
		s.sources = append(s.sources, f.Source)
	}
}

// String is the line of one fact as it is, and of several with all that said it: "ranks 0–7,
// probe and stderr: RuntimeError: …".
func (s *saying) String() string {
	if len(s.ranks) == 1 && len(s.sources) == 1 || s.first.Rank < 0 {
		return launcher.Describe(s.first)
	}
	who := strategy.RankWords(s.ranks)
	if s.first.Finding != nil {
		return fmt.Sprintf("%s, %s: %s", who, strings.Join(s.sources, " and "), s.words)
	}
	_, rest, _ := strings.Cut(s.words, "rank 0")
	return who + rest
}

// An ownError is what a run ended with that no change of its memory answers: it comes before
// all that is told of memory.
type ownError struct {
	Words, Place string
	Traceback    []string
}

// ownError is that of the last attempt; nil where it has none, or memory was the reason.
func (d *Data) ownError(l level) *ownError {
	if len(d.Attempts) == 0 || d.Verdict != nil && d.Verdict.Outcome == strategy.Trained {
		return nil
	}
	a := &d.Attempts[len(d.Attempts)-1]
	if !a.failedByItself() || a.Diagnosis.Error == "" {
		return nil
	}
	e := &ownError{Words: d.say.text(a.Diagnosis.Error, longSentence), Traceback: d.traceback(a, l)}
	if a.Diagnosis.Place != nil {
		e.Place = d.say.text(a.Diagnosis.Place.Words(), longLine)
	}
	return e
}

// failedByItself reports whether an attempt failed, and not for want of memory.
func (a *Attempt) failedByItself() bool { return a.Diagnosis.Fatal && !a.Diagnosis.OutOfMemory() }

// traceback is the failing rank's, its last lines.
func (d *Data) traceback(a *Attempt, l level) (shown []string) {
	for _, line := range cause.Shown(launcher.Traceback(a.Evidence, a.Diagnosis), min(l.lines, 30)) {
		shown = append(shown, d.say.text(line, longLine))
	}
	return shown
}
