package show

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// EvidenceLines are the facts that the diagnosis rests on, the strongest first. What several
// ranks, or several sources, report in the same words is one line.
func (a *ReportedAttempt) EvidenceLines() (lines []string) {
	var all []*sameReports
	for _, f := range a.Diagnosis.Facts(&a.Evidence) {
		at := slices.IndexFunc(all, func(r *sameReports) bool { return r.words == wordsOf(f) })
		if at < 0 {
			at = len(all)
			all = append(all, &sameReports{first: f, words: wordsOf(f)})
		}
		all[at].by(f)
	}
	for n, r := range all {
		if n == mostListed {
			return append(lines, fmt.Sprintf("… and %d more", len(all)-n))
		}
		lines = append(lines, r.String())
	}
	return lines
}

// sameReports are what one or more facts report in the same words.
type sameReports struct {
	first   strategy.Fact
	words   string
	ranks   []int
	sources []string
}

// wordsOf is what a fact reports, without its rank and source.
func wordsOf(f strategy.Fact) string {
	switch {
	case f.Rank < 0:
		return launcher.Describe(f)
	case f.Finding() != nil:
		return f.Finding().Text
	}
	f.Rank = 0
	return launcher.Describe(f)
}

func (r *sameReports) by(f strategy.Fact) {
	if !slices.Contains(r.ranks, f.Rank) {
		r.ranks = append(r.ranks, f.Rank)
	}
	if by := f.Reporter(); !slices.Contains(r.sources, by) {
		r.sources = append(r.sources, by)
	}
}

// String is the line of one fact, or of several with their ranks and sources: "ranks 0–7,
// gpurun's hook and stderr: RuntimeError: …".
func (r *sameReports) String() string {
	if len(r.ranks) == 1 && len(r.sources) == 1 || r.first.Rank < 0 {
		return launcher.Describe(r.first)
	}
	ranks := strategy.RankWords(r.ranks)
	if r.first.Finding() != nil {
		return fmt.Sprintf("%s, %s: %s", ranks, strings.Join(r.sources, " and "), r.words)
	}
	_, rest, _ := strings.Cut(r.words, "rank 0")
	return ranks + rest
}

// A jobError is an error of the job that is not about memory. The page shows it before everything about
// memory.
type jobError struct {
	*ReportedAttempt
	Traceback []string
}

// Error is that of the last attempt; nil if it has none, or if memory was the reason.
func (p *reportPage) Error() *jobError {
	last := p.LastAttempt()
	if last == nil || p.Verdict != nil && p.Verdict.Outcome == strategy.Trained || !last.failedByItself() ||
		last.Diagnosis.Error == "" {
		return nil
	}
	return &jobError{last, last.traceback(p.level)}
}

// traceback is the end of the failing rank's traceback.
func (a *ReportedAttempt) traceback(l pageLevel) []string {
	return cause.Shown(launcher.Traceback(a.Evidence, a.Diagnosis), min(l.lines, 30))
}
