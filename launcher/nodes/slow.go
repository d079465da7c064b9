package nodes

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

const (
	// lookPause is how often ranks are compared. One is slow that is so at two looks, and the
	// time of its steps is that between them.
	lookPause = time.Minute
	// tellPause is how long people hear nothing more of it.
	tellPause = 10 * time.Minute
)

// A slowness finds the ranks of an attempt that are slow for a while. It decides nothing.
type slowness struct {
	ranks int // of each node; 0: there is one node
	host  func(node int) string

	attempt      int
	looked, told time.Time
	marks        map[int]mark // by rank, at the last look
}

// A mark is where a rank stood.
type mark struct {
	step int
	at   time.Time // when it came there
	slow bool
}

// look compares the ranks where it is time to, and says which are slow, or nothing.
func (s *slowness) look(now time.Time, attempt int, samples []model.Sample) string {
	if attempt != s.attempt {
		s.attempt, s.marks = attempt, nil
	}
	begun := slices.ContainsFunc(samples, func(sample model.Sample) bool { return sample.Counted > 0 })
	if now.Sub(s.looked) < lookPause || !begun {
		return ""
	}
	s.looked = now
	before := s.marks
	s.marks = map[int]mark{}
	var paces []strategy.Pace
	for _, sample := range samples {
		p := strategy.Pace{
			Rank: sample.Rank, Step: sample.Counted, Idle: strategy.Seconds(now.Sub(sample.CountedAt)), Data: sample.Data, Forward: sample.Forward,
		}
		if m := before[p.Rank]; m.step > 0 && p.Step > m.step {
			p.Took = strategy.Seconds(sample.CountedAt.Sub(m.at) / time.Duration(p.Step-m.step))
		}
		paces = append(paces, p)
		s.marks[p.Rank] = mark{step: p.Step, at: sample.CountedAt}
	}
	var still []strategy.Slow
	for _, slow := range strategy.Stragglers(paces) {
		m := s.marks[slow.Rank]
		m.slow = true
		s.marks[slow.Rank] = m
		if before[slow.Rank].slow {
			still = append(still, slow)
		}
	}
	if len(still) == 0 || now.Sub(s.told) < tellPause {
		return ""
	}
	s.told = now
	return s.words(still)
}

// words name the slowest rank, with those of its node that are slow, too.
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
