package nodes

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	_ "github.com/gpurun/gpurun/test/testenv"
)

var launch = Agreement{Run: "slurm 7", Version: "v1", Digest: "d", Nodes: 3, Ranks: 2}

// A simulation is a head and its followers, connected by a network that delays messages, breaks links and
// loses messages in flight. Worse than any real network, it also loses, repeats and reorders messages on a
// link that stays open.
type simulation struct {
	t     *rapid.T
	now   time.Duration
	head  *headMachine
	nodes []*simulated
	links int

	events  map[int][]string // events by node, of the attempt
	points  []Point
	gone    map[int]bool
	attempt int
}

// A simulated node is a follower and what its owner does for it.
type simulated struct {
	w        *simulation
	k        int
	f        *followerMachine
	link     int // 0: none
	inc      int
	up, down []Message // on their way on the link
	ranks    int       // the attempt that its ranks run in, -1 for none
	of, said int       // the latest attempt that they ran in, and its events
	left     *int      // with which code
	cut      bool      // the network is
	paused   bool      // its ranks are
}

func newSimulation(t *rapid.T) *simulation {
	w := &simulation{t: t, events: map[int][]string{}, gone: map[int]bool{}, attempt: -1}
	w.head = newHeadMachine(w, launch, Welcome{Generation: "g", Dir: "/run"})
	for k := range launch.Nodes {
		if k > 0 {
			w.nodes = append(w.nodes, w.newNode(k, 0))
		}
	}
	return w
}

func (w *simulation) newNode(k, inc int) *simulated {
	hello := Hello{Node: k, Process: fmt.Sprintf("%d.%d", k, inc), Agreement: launch}
	n := &simulated{w: w, k: k, inc: inc, ranks: -1, of: -1}
	n.f = newFollowerMachine(n, hello, 15*time.Minute, true)
	return n
}

func (w *simulation) byLink(link int) *simulated {
	for _, n := range w.nodes {
		if n.link == link && link != 0 {
			return n
		}
	}
	return nil
}

// What follows does what the head's machine says.

func (w *simulation) send(link int, m Message) {
	if n := w.byLink(link); n != nil {
		n.down = append(n.down, m)
	}
}

func (w *simulation) drop(link int) {
	if n := w.byLink(link); n != nil {
		w.unlink(n, true)
	}
}

func (w *simulation) reached(p Point) {
	w.points = append(w.points, p)
	w.check(p)
}

func (w *simulation) received(node int, m Message) {
	if event, ok := m.(Event); ok {
		w.events[node] = append(w.events[node], string(strategy.As[strategy.Gap](event.Fact)))
	}
}

func (w *simulation) lost(node int, _ string, _ bool) { w.gone[node] = true }
func (w *simulation) silent(int, time.Duration)       {}
func (w *simulation) refused(Hello, Reject)           {}
func (w *simulation) superseded(Hello)                {}

// check holds what has to be true where the head believes that all nodes are at a point.
func (w *simulation) check(p Point) {
	for _, n := range w.nodes {
		switch {
		case p == AllThere && n.ranks >= 0:
			w.t.Fatalf("all are there, and node %d still has ranks of attempt %d", n.k, n.ranks)
		case p == AllOver && !w.gone[n.k] && n.ranks == w.attempt:
			w.t.Fatalf("attempt %d is over, and node %d has ranks of it", w.attempt, n.k)
		case p == AllOver && !w.gone[n.k] && n.of == w.attempt && len(w.events[n.k]) != n.said:
			w.t.Fatalf("attempt %d is over, and of node %d's %d events %d were heard", w.attempt, n.k, n.said, len(w.events[n.k]))
		}
	}
}

// What follows does what a follower's machine says.

func (n *simulated) send(m Message)           { n.up = append(n.up, m) }
func (n *simulated) drop()                    { n.w.unlink(n, true) }
func (n *simulated) reportAlive()             { n.f.Report(n.w.now, Alive{}) }
func (n *simulated) abandon(string)           { n.w.end(n) }
func (n *simulated) leave(code int, _ string) { n.left = &code }

func (n *simulated) do(order Message) {
	w := n.w
	switch o := order.(type) {
	case Prepare:
		if n.ranks >= 0 {
			w.t.Fatalf("node %d was to prepare attempt %d and has ranks of %d", n.k, o.Launch.N, n.ranks)
		}
		n.f.Report(w.now, Ready{})
	case Start:
		if n.ranks >= 0 {
			w.t.Fatalf("node %d was to start attempt %d and has ranks of %d", n.k, o.Attempt, n.ranks)
		}
		n.ranks, n.of, n.said, n.paused = o.Attempt, o.Attempt, 0, false
		n.f.Report(w.now, Started{})
	case Stop:
		w.end(n)
	case Pause:
		n.paused = true
	case Resume:
		n.paused = false
	}
}

// end ends a node's ranks.
func (w *simulation) end(n *simulated) {
	n.ranks = -1
	n.f.Report(w.now, Stopped{})
}

func (w *simulation) linkUp(n *simulated) {
	if n.link != 0 || n.cut || n.left != nil {
		return
	}
	w.links++
	n.link, n.up, n.down = w.links, nil, nil
	n.f.Linked(w.now)
}

// unlink breaks a link: what was on its way is lost.
func (w *simulation) unlink(n *simulated, tell bool) {
	if n.link == 0 {
		return
	}
	link := n.link
	n.link, n.up, n.down = 0, nil, nil
	n.f.Gone(w.now)
	if tell {
		w.head.Gone(w.now, link)
	}
}

// pass lets some of what is on its way arrive.
func (w *simulation) pass(n *simulated, most int) {
	for range most {
		if n.link == 0 || n.cut || len(n.up) == 0 {
			break
		}
		m := n.up[0]
		n.up = n.up[1:]
		w.head.Receive(w.now, n.link, n.k, m)
	}
	for range most {
		if n.link == 0 || n.cut || len(n.down) == 0 {
			break
		}
		m := n.down[0]
		n.down = n.down[1:]
		n.f.Receive(w.now, m)
	}
}

func (w *simulation) tick(d time.Duration) {
	for range int(d / time.Second) {
		w.now += time.Second
		w.head.Tick(w.now)
		for _, n := range w.nodes {
			n.f.Tick(w.now)
		}
	}
}

// settle lets everything arrive on links that are there.
func (w *simulation) settle() {
	for range 50 {
		for _, n := range w.nodes {
			w.linkUp(n)
			w.pass(n, 100)
		}
	}
}

func (w *simulation) waitFor(p Point, most time.Duration) {
	w.t.Helper()
	for until := w.now + most; !slices.Contains(w.points, p); {
		if w.now >= until {
			w.t.Fatalf("%d was not reached in %s: %+v", p, most, w.head.nodes)
		}
		w.settle()
		if !slices.Contains(w.points, p) {
			w.tick(time.Second)
		}
	}
}

// Whatever the network does, an event is heard once and in order, no two attempts' ranks
// are on a node at once, and the head's belief that an attempt is over is true.
func TestMachinesSurviveAnyNetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newSimulation(t)
		for attempt := range rapid.IntRange(1, 4).Draw(t, "attempts") {
			w.heal()
			w.points = nil
			w.head.Gather()
			w.waitFor(AllThere, 20*time.Minute)
			w.events, w.gone, w.attempt, w.points = map[int][]string{}, map[int]bool{}, attempt, nil
			w.head.Prepare(w.now, Prepare{Launch: launcher.Launch{N: attempt}}, func(int) string { return "" })
			w.trouble(rapid.IntRange(0, 20).Draw(t, "before"))
			if !slices.Contains(w.points, AllReady) || len(w.gone) > 0 {
				w.finish()
				continue
			}
			w.head.Start(w.now)
			w.trouble(rapid.IntRange(0, 60).Draw(t, "steps"))
			w.finish()
		}
		w.heal()
		w.points = nil
		w.head.Finish(w.now, Final{Code: 12})
		w.waitFor(AllLeft, time.Minute)
	})
}

func (w *simulation) heal() {
	for i, n := range w.nodes {
		n.cut = false
		w.unlink(n, true) // else what was lost on it never comes
		if n.left != nil && *n.left != 12 {
			w.nodes[i] = w.newNode(n.k, n.inc+1) // the engine replaces it
		}
	}
}

// finish stops the attempt, and holds that it ends, and that what was heard is right.
func (w *simulation) finish() {
	w.head.Resume(w.now)
	w.points = nil
	w.head.Stop(w.now, Stop{Signal: 15, Grace: 3 * time.Second})
	w.waitFor(AllOver, 10*time.Minute)
	for k, events := range w.events {
		for i, e := range events {
			if e != fmt.Sprintf("%d/%d", w.attempt, i+1) {
				w.t.Fatalf("of node %d was heard %q", k, events)
			}
		}
	}
}

// trouble lets things happen.
func (w *simulation) trouble(steps int) {
	for range steps {
		n := w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(w.t, "node")]
		switch rapid.IntRange(0, 15).Draw(w.t, "what") {
		case 0, 1, 2:
			w.pass(n, rapid.IntRange(1, 5).Draw(w.t, "messages"))
		case 3, 4, 5:
			if n.ranks >= 0 {
				n.said++
				n.f.Report(w.now, Event{Fact: strategy.Fact{Rank: -1, Content: strategy.Gap(fmt.Sprintf("%d/%d", n.ranks, n.said))}})
			}
		case 6:
			w.unlink(n, true)
		case 7:
			w.linkUp(n)
		case 8:
			n.cut = !n.cut
		case 9:
			w.tick(time.Duration(rapid.IntRange(1, 300).Draw(w.t, "seconds")) * time.Second)
		case 10:
			if n.ranks >= 0 {
				w.end(n)
			}
		case 11:
			n.up = w.spoil(n.up)
		case 12:
			n.down = w.spoil(n.down)
		case 14:
			w.head.Pause()
		case 15:
			w.head.Resume(w.now)
		case 13: // kill -9, and the engine starts another
			w.unlink(n, true)
			for i := range w.nodes {
				if w.nodes[i] == n {
					w.nodes[i] = w.newNode(n.k, n.inc+1)
				}
			}
		}
		for _, n := range w.nodes {
			w.linkUp(n)
		}
	}
	w.head.Resume(w.now)
}

// spoil loses, doubles or swaps messages.
func (w *simulation) spoil(on []Message) []Message {
	if len(on) < 2 {
		return on
	}
	i := rapid.IntRange(1, len(on)-1).Draw(w.t, "message")
	switch rapid.IntRange(0, 2).Draw(w.t, "spoil") {
	case 0:
		return slices.Delete(on, i, i+1)
	case 1:
		return slices.Insert(on, i, on[i])
	}
	on[i-1], on[i] = on[i], on[i-1]
	return on
}

// told is what a machine reported to its owner, as text.
type told []string

func (t *told) add(format string, args ...any)    { *t = append(*t, fmt.Sprintf(format, args...)) }
func (t *told) send(link int, m Message)          { t.add("send %d %T", link, m) }
func (t *told) drop(link int)                     { t.add("drop %d", link) }
func (t *told) received(node int, m Message)      { t.add("heard %d %T", node, m) }
func (t *told) reached(p Point)                   { t.add("reached %d", p) }
func (t *told) lost(node int, why string, _ bool) { t.add("lost %d: %s", node, why) }
func (t *told) silent(node int, d time.Duration)  { t.add("silent %d %s", node, d) }
func (t *told) refused(h Hello, r Reject)         { t.add("refused %d: %s", h.Node, r.Why) }
func (t *told) superseded(h Hello)                { t.add("superseded by %d", h.Restart) }
func (t *told) has(text string) bool              { return slices.Contains(*t, text) }

// A node that cannot be part of the launch is not waited for at its end; one that has not
// come yet is, so that it need not look for a head that is gone.
func TestEarlyEndReachesAllNodes(t *testing.T) {
	said := &told{}
	h := newHeadMachine(said, launch, Welcome{})
	h.Gather()
	other := Hello{Node: 1, Process: "1", Agreement: launch}
	other.Version = "v2"
	if h.Receive(0, 1, 1, other); !said.has("refused 1: it runs gpurun v2, and node 0 runs v1") {
		t.Fatalf("%q", *said)
	}
	*said = nil
	if h.Finish(time.Second, Final{Code: strategy.CodeUsage}); len(*said) != 0 {
		t.Fatalf("nobody was waited for: %q", *said)
	}
	late := Hello{Node: 2, Process: "2", Agreement: launch, Attempt: -1}
	if h.Receive(2*time.Second, 2, 2, late); !said.has("send 2 nodes.Final") {
		t.Fatalf("the late node is not told: %q", *said)
	}
	if h.Receive(3*time.Second, 2, 2, Bye{}); !said.has(fmt.Sprint("reached ", AllLeft)) {
		t.Errorf("%q", *said)
	}
}

// A node that declines after the end has the head wait for it no more.
func TestANodeThatDeclinesAfterTheEnd(t *testing.T) {
	said := &told{}
	h := newHeadMachine(said, Agreement{Run: "r", Nodes: 2}, Welcome{})
	h.Finish(0, Final{})
	if h.Receive(0, 1, 1, Hello{Node: 1, Process: "1", Agreement: Agreement{Run: "r"}, Unable: &NotReady{Why: "no file", Code: 2}}); !said.has(fmt.Sprint("reached ", AllLeft)) {
		t.Errorf("%q", *said)
	}
}
