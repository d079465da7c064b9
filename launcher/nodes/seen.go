package nodes

import (
	"cmp"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/model"
)

const (
	// digestPause is how often a follower tells what its ranks hold, at most.
	digestPause = 2 * time.Second
	// mostDigest is how many ranks it tells of, and mostSeen of how many those learn who look
	// on at the head: where there are more, those whose memory is nearest to its limit.
	mostDigest, mostSeen = 64, 256
	// silentBound is how long a node's figures count of which nothing new comes.
	silentBound = 30 * time.Second
)

// seen is what ranks let see of themselves: on the head those of the other nodes, on another
// node its own. The zero value has seen nothing, and nil sees nothing. Who looks on waits for
// nobody, and nobody for them.
type seen struct {
	mu      sync.Mutex
	attempt int
	own     []model.Sample  // of a follower
	told    time.Time       // when the head was
	nodes   map[int]glimpse // of the head
}

// A glimpse is what a node told last.
type glimpse struct {
	host    string
	came    time.Time
	samples []model.Sample
}

// Sampled takes the samples of a follower's ranks, which the head hears of.
func (p *Part) Sampled(attempt int, own []model.Sample) {
	p.seen.mu.Lock()
	defer p.seen.mu.Unlock()
	p.seen.attempt, p.seen.own = attempt, own
}

// Samples is next, which gets the samples of the head's ranks with those of all other nodes;
// note is told of ranks that are slow. On one node there are no others.
func (p *Part) Samples(next func(int, []model.Sample), note func(string)) func(int, []model.Sample) {
	var others *seen
	ranks := 0
	if p.launch.Nodes > 1 {
		others, ranks = &p.seen, p.launch.Ranks
	}
	slow := slowness{ranks: ranks, host: others.host}
	return func(attempt int, own []model.Sample) {
		now := time.Now()
		all := others.beside(attempt, own, now)
		if text := slow.look(now, attempt, all); text != "" {
			note(text)
		}
		next(attempt, nearest(all, mostSeen))
	}
}

// digest is what the head is to hear of an attempt's ranks now; nothing where it has just
// heard.
func (s *seen) digest(attempt int) []model.Sample {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempt != attempt || time.Since(s.told) < digestPause {
		return nil
	}
	if len(s.own) > 0 {
		s.told = time.Now()
	}
	return nearest(s.own, mostDigest)
}

// hear takes what a node says of its ranks. What it cannot know does not count.
func (s *seen) hear(node, ranks int, host string, c *clock, m Alive) {
	if s == nil || len(m.Samples) == 0 {
		return
	}
	g := glimpse{host: host, came: time.Now()}
	for _, sample := range m.Samples[:min(len(m.Samples), mostDigest)] {
		again := slices.ContainsFunc(g.samples, func(other model.Sample) bool { return other.Rank == sample.Rank })
		if again || sample.Rank/ranks != node || len(sample.Device) > longestDevice {
			continue
		}
		sample.Time, sample.CountedAt = c.here(sample.Time), c.here(sample.CountedAt)
		g.samples = append(g.samples, sample)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil || s.attempt != m.Attempt {
		s.attempt, s.nodes = m.Attempt, map[int]glimpse{}
	}
	s.nodes[node] = g
}

const longestDevice = 64 // bytes; "cuda:0" is one

// beside are samples of the head's ranks and those of all others, by rank.
func (s *seen) beside(attempt int, own []model.Sample, now time.Time) []model.Sample {
	if s == nil {
		return own
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempt != attempt {
		return own
	}
	all := slices.Clone(own)
	for _, g := range s.nodes {
		if now.Sub(g.came) < silentBound {
			all = append(all, g.samples...)
		}
	}
	slices.SortFunc(all, func(a, b model.Sample) int { return a.Rank - b.Rank })
	return all
}

// host is a node's name, for people.
func (s *seen) host(node int) string {
	if node == 0 {
		name, _ := os.Hostname()
		return name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[node].host
}

// nearest are at most so many samples, by rank: those of the first rank, which stands for the
// training, and of the ranks whose memory is nearest to its limit.
func nearest(all []model.Sample, most int) []model.Sample {
	if len(all) <= most {
		return all
	}
	rest := slices.Clone(all[1:])
	slices.SortStableFunc(rest, func(a, b model.Sample) int { return cmp.Compare(share(b), share(a)) })
	chosen := append(all[:1:1], rest[:most-1]...)
	slices.SortFunc(chosen, func(a, b model.Sample) int { return a.Rank - b.Rank })
	return chosen
}

// share is how much of what is allowed a rank needed so far.
func share(s model.Sample) float64 {
	return float64(max(s.Peak, cmp.Or(s.Allocated, s.Used))) / float64(max(s.Allowed, 1))
}
