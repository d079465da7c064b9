package nodes

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

const (
	// lookPause is the interval at which ranks are compared. A rank counts as slow if it is slow in two
	// comparisons in a row. Its step time is measured between the two.
	lookPause = time.Minute
	// notePause is the least time between two notes.
	notePause = 10 * time.Minute
)

// A slowness finds the ranks of an attempt that stay slow. It has no effect on decisions.
type slowness struct {
	ranks int // ranks per node; 0 on a single node
	host  func(node int) string

	attempt       int
	looked, noted time.Time
	paces         map[int]rankPace // by rank, at the last look
}

// A rankPace is a rank's step and when it was reached.
type rankPace struct {
	step int
	at   time.Time
	slow bool
}

// look compares the ranks at its interval, and returns a text about slow ones, or nothing.
func (s *slowness) look(now time.Time, attempt int, samples []strategy.Sample) string {
	if attempt != s.attempt {
		s.attempt, s.paces = attempt, nil
	}
	begun := slices.ContainsFunc(samples, func(sample strategy.Sample) bool { return sample.Counted > 0 })
	if now.Sub(s.looked) < lookPause || !begun {
		return ""
	}
	s.looked = now
	before := s.paces
	s.paces = map[int]rankPace{}
	var paces []strategy.Pace
	for _, sample := range samples {
		p := strategy.Pace{
			Rank: sample.Rank, Step: sample.Counted, Idle: strategy.Seconds(now.Sub(sample.CountedAt)),
			Data: sample.Data, Forward: sample.Forward,
		}
		if m := before[p.Rank]; m.step > 0 && p.Step > m.step {
			p.Took = strategy.Seconds(sample.CountedAt.Sub(m.at) / time.Duration(p.Step-m.step))
		}
		paces = append(paces, p)
		s.paces[p.Rank] = rankPace{step: p.Step, at: sample.CountedAt}
	}
	var still []strategy.Slow
	for _, slow := range strategy.Stragglers(paces) {
		remedied := func(s strategy.Sample) bool { return s.Rank == slow.Rank && s.InPlace }
		if slices.ContainsFunc(samples, remedied) {
			continue // its remedies take time, which is said
		}
		m := s.paces[slow.Rank]
		m.slow = true
		s.paces[slow.Rank] = m
		if before[slow.Rank].slow {
			still = append(still, slow)
		}
	}
	if len(still) == 0 || now.Sub(s.noted) < notePause {
		return ""
	}
	s.noted = now
	return s.words(still)
}

// words describes the slowest rank, and the other slow ranks of its node.
func (s *slowness) words(slow []strategy.Slow) string {
	first := slow[0]
	node := func(rank int) int { return rank / max(s.ranks, 1) }
	var ranks []int
	for _, one := range slow {
		if s.ranks == 0 || node(one.Rank) == node(first.Rank) {
			ranks = append(ranks, one.Rank)
		}
	}
	who, is := strategy.RankWords(ranks), "is"
	if len(ranks) > 1 {
		is = "are"
	}
	if s.ranks > 0 {
		who += " of " + strategy.NodeName(node(first.Rank), s.host(node(first.Rank)))
	}
	return fmt.Sprintf("%s %s slow: %s", who, is, first)
}
