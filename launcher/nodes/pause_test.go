package nodes

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A pause ends nothing, however long the head is stopped and whatever happens to the links meanwhile: all
// ranks are paused, none continues before the head does, and then all do.
func TestAPauseEndsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newSimulation(t)
		w.head.Gather()
		w.waitFor(AllThere, time.Minute)
		w.attempt = 0
		w.head.Prepare(w.now, Prepare{}, func(int) string { return "" })
		w.waitFor(AllReady, time.Minute)
		w.head.Start(w.now)
		if rapid.Bool().Draw(t, "once all run") {
			w.waitFor(AllRunning, time.Minute)
		}
		w.head.Pause()
		w.settle()
		for range rapid.IntRange(0, 5).Draw(t, "broken links") {
			w.unlink(w.nodes[rapid.IntRange(0, 1).Draw(t, "node")], false)
			w.asleep(rapid.IntRange(0, 3000).Draw(t, "seconds"))
		}
		w.asleep(3600)
		for _, n := range w.nodes {
			if n.ranks != 0 || !n.paused {
				t.Fatalf("node %d in the pause: %+v", n.k, n)
			}
		}
		w.head.Resume(w.now)
		for link := 1; link <= w.links; link++ { // what broke is found out now
			if w.byLink(link) == nil {
				w.head.Gone(w.now, link)
			}
		}
		for range 600 {
			w.settle()
			w.tick(time.Second)
		}
		for _, n := range w.nodes {
			if n.ranks != 0 || n.paused || n.left != nil || w.gone[n.k] {
				t.Fatalf("node %d after the pause: %+v", n.k, n)
			}
		}
		if !slices.Contains(w.points, AllRunning) {
			t.Fatal("the head does not know that all run")
		}
	})
}

// asleep lets time pass for all but the head.
func (w *simulation) asleep(seconds int) {
	for range seconds {
		w.now += time.Second
		for _, n := range w.nodes {
			n.f.Tick(w.now)
		}
	}
}

// followed is what a follower's machine reported to its owner, as text.
type followed struct{ told }

func (f *followed) send(m Message)                { f.add("send %T", m) }
func (f *followed) drop()                         { f.add("drop") }
func (f *followed) do(m Message)                  { f.add("do %T", m) }
func (f *followed) reportAlive()                  {}
func (f *followed) abandon(why string)            { f.add("abandon: %s", why) }
func (f *followed) leave(code int, reason string) { f.add("leave %d: %s", code, reason) }

// A head that is killed while it is stopped is gone.
func TestAHeadThatIsKilledInAPause(t *testing.T) {
	said := &followed{}
	f := newFollowerMachine(said, Hello{}, time.Minute, false)
	f.Linked(0)
	f.Receive(0, Welcome{Generation: "g"})
	f.Receive(0, Prepare{})
	f.Report(0, Ready{})
	f.Receive(0, Start{})
	f.Report(0, Started{})
	f.Receive(0, Pause{})
	said.told = nil
	if f.Tick(time.Hour); len(said.told) > 0 {
		t.Errorf("in the pause: %q", said.told)
	}
	f.Gone(time.Hour)
	f.Unreached(time.Hour, "nobody", true, false)
	if f.Tick(time.Hour + refusedBound); len(said.told) != 2 || said.told[0] != "abandon: the gpurun of node 0 is gone" {
		t.Errorf("%q", said.told)
	}
}

// A head that could not be stopped, as the first process of a container, and ends while all
// are paused waits no longer for a node than else.
func TestTheEndOfAPausedLaunch(t *testing.T) {
	said := &told{}
	h := newHeadMachine(said, Agreement{Run: "r", Version: "v", Digest: "d", Nodes: 2, Ranks: 1}, Welcome{Generation: "g"})
	h.Receive(0, 1, 1, Hello{Node: 1, Process: "a", Agreement: Agreement{Run: "r", Version: "v", Digest: "d", Ranks: 1}, Attempt: -1})
	h.Pause()
	h.Finish(0, Final{})
	for now := time.Second; now <= byeBound; now += time.Second {
		if h.Tick(now); said.has(fmt.Sprint("reached ", AllLeft)) {
			return
		}
	}
	t.Errorf("the head waits beyond %s", byeBound)
}
