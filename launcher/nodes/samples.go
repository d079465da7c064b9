package nodes

import (
	"cmp"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

const (
	// digestPause is the least time between two reports of a follower's samples.
	digestPause = 2 * time.Second
	// mostDigest bounds the ranks in such a report, and mostSeen the ranks that the head shows. If there are
	// more, it shows those whose memory is nearest to its limit.
	mostDigest, mostSeen = 64, 256
	// silentBound is how long samples of a silent node count.
	silentBound = 30 * time.Second
)

// A sampleStore collects samples: on the head those of the other nodes' ranks, on another node its own.
type sampleStore struct {
	mu      sync.Mutex
	attempt int
	own     []strategy.Sample   // of a follower
	sent    time.Time           // last time they were sent to the head
	nodes   map[int]nodeSamples // samples that the head received
}

// nodeSamples are the latest samples from a node.
type nodeSamples struct {
	host    string
	came    time.Time
	samples []strategy.Sample
}

// Sampled takes in the samples of a follower's ranks, for the head.
func (n *Node) Sampled(attempt int, own []strategy.Sample) {
	n.samples.mu.Lock()
	defer n.samples.mu.Unlock()
	n.samples.attempt, n.samples.own = attempt, own
}

// Samples wraps next: it adds the samples of all other nodes to those of the head's ranks, and notes slow
// ranks.
func (n *Node) Samples(next func(int, []strategy.Sample), note func(string)) func(int, []strategy.Sample) {
	slow := slowness{host: n.samples.host}
	if n.agreement.Nodes > 1 {
		slow.ranks = n.agreement.Ranks
	}
	return func(attempt int, own []strategy.Sample) {
		now := time.Now()
		all := n.samples.with(attempt, own, now)
		if text := slow.look(now, attempt, all); text != "" {
			note(text)
		}
		next(attempt, nearest(all, mostSeen))
	}
}

// digest returns the samples for the head; none if it got some a moment ago.
func (s *sampleStore) digest(attempt int) []strategy.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempt != attempt || time.Since(s.sent) < digestPause {
		return nil
	}
	if len(s.own) > 0 {
		s.sent = time.Now()
	}
	return nearest(s.own, mostDigest)
}

// add takes in a node's samples.
func (s *sampleStore) add(node int, host string, c *clockOffset, m Alive) {
	if len(m.Samples) == 0 {
		return
	}
	n := nodeSamples{host: host, came: time.Now()}
	for _, sample := range m.Samples {
		sample.Time, sample.CountedAt = c.local(sample.Time), c.local(sample.CountedAt)
		n.samples = append(n.samples, sample)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil || s.attempt != m.Attempt {
		s.attempt, s.nodes = m.Attempt, map[int]nodeSamples{}
	}
	s.nodes[node] = n
}

// with returns the samples of the head's ranks and all others, by rank.
func (s *sampleStore) with(attempt int, own []strategy.Sample, now time.Time) []strategy.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempt != attempt {
		return own
	}
	all := slices.Clone(own)
	for _, n := range s.nodes {
		if now.Sub(n.came) < silentBound {
			all = append(all, n.samples...)
		}
	}
	slices.SortStableFunc(all, func(a, b strategy.Sample) int { return a.Rank - b.Rank })
	return all
}

// host returns a node's name for messages.
func (s *sampleStore) host(node int) string {
	if node == 0 {
		name, _ := os.Hostname()
		return name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[node].host
}

// nearest selects at most so many samples, in the order of ranks: that of the first rank, as an example of
// the training, and those of the ranks whose memory is nearest to its limit.
func nearest(all []strategy.Sample, most int) []strategy.Sample {
	if len(all) <= most {
		return all
	}
	rest := slices.Clone(all[1:])
	slices.SortStableFunc(rest, func(a, b strategy.Sample) int { return cmp.Compare(share(b), share(a)) })
	chosen := append(all[:1:1], rest[:most-1]...)
	slices.SortStableFunc(chosen, func(a, b strategy.Sample) int { return a.Rank - b.Rank })
	return chosen
}

// share returns the part of its allowed memory that a rank has needed.
func share(s strategy.Sample) float64 {
	return float64(max(s.Peak, cmp.Or(s.Allocated, s.Used))) / float64(max(s.Allowed, 1))
}
