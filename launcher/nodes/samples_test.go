package nodes

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
)

func ranksOf(all []strategy.Sample) (ranks []int) {
	for _, s := range all {
		ranks = append(ranks, s.Rank)
	}
	return ranks
}

// The head's samples have those of all nodes among them, for as long as they are news and of
// the attempt that runs.
func TestTheMemoryOfAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		head, follower := &Node{agreement: Agreement{Nodes: 3, Ranks: 2}}, &Node{}
		var got []strategy.Sample
		take := head.Samples(func(_ int, all []strategy.Sample) { got = all }, func(string) {})
		own := []strategy.Sample{{Rank: 0, Peak: 5}, {Rank: 1}}
		loss := .5
		there := time.Now().Add(-time.Hour) // another clock
		far := strategy.Sample{Time: there, Rank: 4, Device: "cuda:0", Step: 7, Total: 9, Loss: &loss, Counted: 7, CountedAt: there, Phase: "train", Allocated: 1, Reserved: 2, Peak: 3, Retries: 4, Allowed: 5, Used: 6, Capacity: 7}
		follower.Sampled(0, []strategy.Sample{far})
		var c clockOffset
		c.observe(there, time.Now())
		hear := func(m Alive) { head.samples.add(2, "n3", &c, sent(t, m)) }

		take(0, own)
		if len(got) != 2 {
			t.Errorf("alone: %+v", got)
		}
		hear(Alive{Samples: follower.samples.digest(0)})
		if again := follower.samples.digest(0); again != nil {
			t.Errorf("told again at once: %+v", again)
		}
		take(0, own)
		far.Time, far.CountedAt = time.Now(), time.Now()
		if diff := cmp.Diff(append(slices.Clone(own), far), got, cmp.Comparer(time.Time.Equal)); diff != "" {
			t.Error(diff)
		}
		if own[0].Peak != 5 || len(own) != 2 {
			t.Errorf("the head's own: %+v", own)
		}

		time.Sleep(digestPause)
		if stale := follower.samples.digest(1); stale != nil {
			t.Errorf("of the attempt before: %+v", stale)
		}
		hear(Alive{}) // each second, without figures
		if take(0, own); len(got) != 3 {
			t.Errorf("between two digests: %+v", got)
		}
		if take(1, own); len(got) != 2 {
			t.Errorf("the next attempt: %+v", got)
		}
		hear(Alive{Attempt: 1, Samples: []strategy.Sample{{Rank: 5}}})
		take(1, own)
		if ranks := ranksOf(got); !slices.Equal(ranks, []int{0, 1, 5}) {
			t.Errorf("the next attempt: %v", ranks)
		}
		time.Sleep(silentBound)
		if take(1, own); len(got) != 2 {
			t.Errorf("of a silent node: %+v", got)
		}
	})
}

// sent is a message as it comes.
func sent(t *testing.T, m Alive) Alive {
	t.Helper()
	text, err := encode(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return got.(Alive)
}

// Of a thousand nodes the ranks are shown that are nearest to their limit, and a message is
// small however many ranks a node has.
func TestManyNodes(t *testing.T) {
	head := &Node{agreement: Agreement{Nodes: 1000, Ranks: 8}}
	var got []strategy.Sample
	take := head.Samples(func(_ int, all []strategy.Sample) { got = all }, func(string) {})
	for node := 1; node < 1000; node++ {
		m := Alive{}
		for k := range 8 {
			m.Samples = append(m.Samples, strategy.Sample{Rank: 8*node + k, Peak: int64(node), Allowed: 1000})
		}
		head.samples.add(node, fmt.Sprint("n", node), &clockOffset{}, m)
	}
	take(0, []strategy.Sample{{Rank: 0}, {Rank: 1}})
	if len(got) != mostSeen || got[0].Rank != 0 || got[1].Rank < 8*900 || got[mostSeen-1].Rank != 7999 || !slices.IsSorted(ranksOf(got)) {
		t.Errorf("%d ranks, %v", len(got), ranksOf(got))
	}

	follower := &Node{}
	large := make([]strategy.Sample, 10_000)
	for k := range large {
		large[k] = strategy.Sample{Time: time.Now(), Rank: k, Device: "cuda:0", Step: 1 << 40, Counted: 1 << 40, CountedAt: time.Now(), Allocated: 1 << 50, Peak: 1 << 50, Allowed: 1 << 50}
	}
	follower.Sampled(0, large)
	text, err := json.Marshal(follower.samples.digest(0))
	if err != nil || len(text) > 32<<10 {
		t.Errorf("a digest of %d bytes: %v", len(text), err)
	}
}

// Ranks that are slow for a while are named once in ten minutes, with their node.
func TestASlowNodeIsNamed(t *testing.T) {
	start := time.Unix(1700000000, 0)
	for name, test := range map[string]struct {
		ranks int // of each node
		took  func(rank int, at time.Duration) time.Duration
		want  []string
	}{
		"in step":   {2, func(int, time.Duration) time.Duration { return time.Second }, nil},
		"one":       {2, func(rank int, _ time.Duration) time.Duration { return time.Duration(1+2*(rank/5)) * time.Second }, []string{"2m0s rank 5 of node 2 (n2) is slow: a step takes 3 s, and the others' 1 s", "12m0s rank 5 of node 2 (n2) is slow: a step takes 3 s, and the others' 1 s"}},
		"a node":    {2, func(rank int, _ time.Duration) time.Duration { return time.Duration(1+2*(rank/4)) * time.Second }, []string{"2m0s ranks 4–5 of node 2 (n2) are slow: a step takes 3 s, and the others' 1 s", "12m0s ranks 4–5 of node 2 (n2) are slow: a step takes 3 s, and the others' 1 s"}},
		"no nodes":  {0, func(rank int, _ time.Duration) time.Duration { return time.Duration(1+2*(rank/5)) * time.Second }, []string{"2m0s rank 5 is slow: a step takes 3 s, and the others' 1 s", "12m0s rank 5 is slow: a step takes 3 s, and the others' 1 s"}},
		"waits":     {2, func(int, time.Duration) time.Duration { return time.Second }, []string{"2m0s rank 5 of node 2 (n2) is slow: a step of 1 s waits 0.4 s for data, and the others' 0.001 s", "12m0s rank 5 of node 2 (n2) is slow: a step of 1 s waits 0.4 s for data, and the others' 0.001 s"}},
		"forward":   {2, func(int, time.Duration) time.Duration { return time.Second }, []string{"2m0s rank 5 of node 2 (n2) is slow: the forward pass takes 0.4 s of a step's 1 s, and the others' 0.1 s", "12m0s rank 5 of node 2 (n2) is slow: the forward pass takes 0.4 s of a step's 1 s, and the others' 0.1 s"}},
		"stopped":   {2, func(int, time.Duration) time.Duration { return time.Second }, []string{"3m0s ranks 4–5 of node 2 (n2) are slow: at step 41, where the others are at 181; its last step was 2m20s ago", "13m0s ranks 4–5 of node 2 (n2) are slow: at step 41, where the others are at 781; its last step was 12m20s ago"}},
		"a moment":  {2, func(rank int, at time.Duration) time.Duration { return time.Second }, nil},
		"in place":  {2, func(rank int, _ time.Duration) time.Duration { return time.Duration(1+2*(rank/5)) * time.Second }, nil},
		"no counts": {2, func(int, time.Duration) time.Duration { return 0 }, nil},
	} {
		s := slowness{ranks: test.ranks, host: func(node int) string { return fmt.Sprint("n", node) }}
		var said []string
		for at := time.Duration(0); at <= 15*time.Minute; at += time.Second {
			var all []strategy.Sample
			for rank := range 6 {
				sample := strategy.Sample{Rank: rank, InPlace: name == "in place" && rank == 5}
				if took := test.took(rank, at); took > 0 {
					sample.Counted = 1 + int(at/took)
					sample.CountedAt = start.Add(at.Truncate(took))
				}
				if name == "a moment" && rank == 3 && at > 170*time.Second && at < 190*time.Second {
					sample.Counted, sample.CountedAt = 100, start.Add(100*time.Second) // it saves
				}
				if name == "forward" {
					sample.Forward = strategy.Seconds(time.Duration(100+300*(rank/5)) * time.Millisecond)
				}
				if name == "stopped" && rank >= 4 && at > 40*time.Second {
					sample.Counted, sample.CountedAt = 41, start.Add(40*time.Second)
				}
				if name == "waits" {
					sample.Data = strategy.Seconds(time.Duration(1+399*(rank/5)) * time.Millisecond)
				}
				all = append(all, sample)
			}
			if text := s.look(start.Add(at), 0, all); text != "" {
				said = append(said, fmt.Sprint(at, " ", text))
			}
		}
		if !slices.Equal(said, test.want) {
			t.Errorf("%s: %q\nwant %q", name, said, test.want)
		}
	}
}

// One node is not named where there is no other.
func TestASlowRankOfOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := Join(t.Context(), JoinOptions{Ranks: 3})
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		take := p.Samples(func(int, []strategy.Sample) {}, func(text string) { said = append(said, text) })
		for n := range 5 {
			all := make([]strategy.Sample, 3)
			for rank, steps := range []int{60, 60, 20} {
				all[rank] = strategy.Sample{Rank: rank, Counted: 1 + n*steps, CountedAt: time.Now()}
			}
			take(0, all)
			time.Sleep(lookPause)
		}
		if !slices.Equal(said, []string{"rank 2 is slow: a step takes 3 s, and the others' 1 s"}) {
			t.Errorf("%q", said)
		}
	})
}
