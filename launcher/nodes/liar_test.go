package nodes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

// TestLyingNodeIsExcludedAndNamed: a node with valid credentials reports what it cannot know. The head excludes it
// with the reason, and does not accept that gpurun again; another gpurun may be the node.
func TestLyingNodeIsExcludedAndNamed(t *testing.T) {
	own, foreign := strategy.Fact{Rank: 2}, strategy.Fact{Rank: 0}
	const rank = "it reports about rank %d, which is not one of its ranks"
	for name, test := range map[string]struct {
		message Message
		why     string // empty: it is not excluded
	}{
		"its own rank":              {Event{Attempt: 3, Seq: 1, Fact: own}, ""},
		"the node itself":           {Event{Attempt: 3, Seq: 1, Fact: strategy.Fact{Rank: -1}}, ""},
		"its own samples":           {Alive{Attempt: 3, Samples: []model.Sample{{Rank: 3}}, Signs: map[int]strategy.Sign{2: {}}, Progress: []strategy.Fact{own}}, ""},
		"a fact of a foreign rank":  {Event{Attempt: 3, Seq: 1, Fact: foreign}, fmt.Sprintf(rank, 0)},
		"a rank beyond the launch":  {Event{Attempt: 3, Seq: 1, Fact: strategy.Fact{Rank: 9}}, fmt.Sprintf(rank, 9)},
		"no rank":                   {Event{Attempt: 3, Seq: 1, Fact: strategy.Fact{Rank: -2}}, fmt.Sprintf(rank, -2)},
		"that another node is lost": {Event{Attempt: 3, Seq: 1, Fact: strategy.Fact{Rank: -1, Lost: &strategy.Lost{Node: 2}}}, "it reports which nodes take part, which only node 0 knows"},
		"forged samples":            {Alive{Attempt: 3, Samples: []model.Sample{{Rank: 2}, {Rank: 4}}}, fmt.Sprintf(rank, 4)},
		"a forged sign":             {Alive{Attempt: 3, Signs: map[int]strategy.Sign{0: {}}}, fmt.Sprintf(rank, 0)},
		"forged progress":           {Alive{Attempt: 3, Progress: []strategy.Fact{foreign}}, fmt.Sprintf(rank, 0)},
		"the digest of its command": {Ready{Attempt: 3, Digest: "d"}, ""},
		"another digest":            {Ready{Attempt: 3, Digest: "e"}, "the digest of its command is not the one that it was ordered to start"},
		"forged facts of the start": {Ready{Attempt: 3, Digest: "d", Facts: []strategy.Fact{foreign}}, fmt.Sprintf(rank, 0)},
	} {
		said := &told{}
		h := NewHead(said, launch, Welcome{})
		hello := Hello{Node: 1, Inc: "a", Terms: launch, Host: "n2", Attempt: -1}
		h.Receive(0, 1, 1, hello)
		h.Receive(0, 2, 2, Hello{Node: 2, Inc: "b", Terms: launch, Host: "n3", Attempt: -1})
		h.Prepare(0, Prepare{Launch: launcher.Launch{N: 3}, Digest: "d"}, func(int) string { return "10.0.0.1" })
		*said = nil
		h.Receive(time.Second, 1, 1, test.message)
		excluded := said.has("drop 1")
		if excluded != (test.why != "") {
			t.Errorf("%s: %q", name, *said)
		}
		if test.why == "" {
			continue
		}
		if !said.has("lost 1: it was excluded: "+test.why) || !said.has("refused 1: it was excluded: "+test.why) || !said.has("send 1 nodes.Reject") || said.has("heard 1 "+fmt.Sprintf("%T", test.message)) {
			t.Errorf("%s: %q", name, *said)
		}
		*said = nil
		h.Receive(2*time.Second, 1, 1, test.message) // what was on its way
		if h.Receive(2*time.Second, 3, 1, hello); !said.has("send 3 nodes.Reject") || said.has("send 3 nodes.Welcome") || len(*said) > 3 {
			t.Errorf("%s: the same gpurun again: %q", name, *said)
		}
		hello.Inc = "new"
		if h.Receive(3*time.Second, 4, 1, hello); !said.has("send 4 nodes.Welcome") {
			t.Errorf("%s: another gpurun: %q", name, *said)
		}
	}
}

// TestEndlessMessagesExcludeANode: messages, facts and notes have bounds that no real node reaches; these have two ranks.
func TestEndlessMessagesExcludeANode(t *testing.T) {
	for name, test := range map[string]struct {
		message func(i int) Message
		most    int
		rate    float64 // in a second, which is allowed for ever
	}{
		"signs of life": {func(int) Message { return Alive{Attempt: 3} }, 2 * mostMessages, 2 * messagesPerSecond},
		"repeats":       {func(int) Message { return Started{Attempt: 1} }, 2 * mostMessages, 2 * messagesPerSecond},
		"facts":         {func(i int) Message { return Event{Attempt: 3, Seq: i + 1, Fact: strategy.Fact{Rank: 2}} }, 2 * mostFacts, 2 * factsPerSecond},
		"notes":         {func(int) Message { return Note{Text: "hello"} }, 2 * mostNotes, 2 * notesPerSecond},
	} {
		for _, steady := range []bool{false, true} {
			said := &told{}
			h := NewHead(said, launch, Welcome{})
			h.Receive(0, 1, 1, Hello{Node: 1, Inc: "a", Terms: launch, Attempt: -1})
			h.Prepare(0, Prepare{Launch: launcher.Launch{N: 3}}, func(int) string { return "" })
			now := time.Second
			for i := range test.most + 100 {
				if h.Receive(now, 1, 1, test.message(i)); steady {
					now += time.Duration(float64(time.Second) / test.rate)
				}
				if h.nodes[1].link == 0 && i < test.most-1 {
					t.Fatalf("%s: excluded after %d", name, i)
				}
				*said = (*said)[max(len(*said)-4, 0):]
			}
			if excluded := h.nodes[1].expelled != ""; excluded == steady {
				t.Errorf("%s, steady %v: excluded %v: %q", name, steady, excluded, *said)
			}
		}
	}
}

// TestLyingNodeEndsTheRun: the other nodes stop their ranks, no plan is blamed, and the user reads which node it was.
func TestLyingNodeEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, func(node int) func(context.Context, *fake) {
			return func(ctx context.Context, a *fake) {
				if node == 2 {
					select {
					case a.facts <- oom(0):
					case <-ctx.Done():
					}
				}
				<-ctx.Done()
				a.exit(15, ctx)
			}
		})
		v, ends := n.run(t, t.Context())
		if v.Outcome != strategy.Retry || len(v.Attempts) != 1 || !strings.Contains(v.Reason, "node 2 (n3) was lost: it was excluded: it reports about rank 0") {
			t.Errorf("%+v", v)
		}
		if !strings.Contains(fmt.Sprint(ends[1]), "it was excluded: it reports about rank 0") {
			t.Errorf("node 2 ended with %+v", ends[1])
		}
	})
}
