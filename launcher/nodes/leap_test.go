package nodes

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
)

// TestClockThatLeapsLosesNoNode: node 0 stood still for an hour, as a virtual machine that is moved. Silence that it
// could not hear does not count; silence afterwards does.
func TestClockThatLeapsLosesNoNode(t *testing.T) {
	said := &told{}
	h := newHeadMachine(said, launch, Welcome{})
	for k := 1; k < launch.Nodes; k++ {
		h.Receive(0, k, k, Hello{Node: k, Process: "a", Agreement: launch, Attempt: -1})
	}
	h.Prepare(0, Prepare{Launch: launcher.Launch{N: 0}}, func(int) string { return "" })
	for k := 1; k < launch.Nodes; k++ {
		h.Receive(0, k, k, Ready{})
	}
	h.Start(0)
	for k := 1; k < launch.Nodes; k++ {
		h.Receive(0, k, k, Started{})
	}
	lost := func() bool {
		return slices.ContainsFunc(*said, func(s string) bool { return strings.HasPrefix(s, "lost ") })
	}
	now := time.Second
	h.Tick(now)
	now += time.Hour
	for end := now + lostAfter - 2*time.Second; now < end; now += time.Second {
		if h.Tick(now); lost() {
			t.Fatalf("after %s: %q", now, *said)
		}
		h.Receive(now, 2, 2, Alive{})
	}
	for range 5 {
		now += time.Second
		h.Tick(now)
	}
	if !slices.ContainsFunc(*said, func(s string) bool { return strings.HasPrefix(s, "lost 1: nothing was received from it for") }) {
		t.Errorf("node 1 is silent: %q", *said)
	}
	if slices.ContainsFunc(*said, func(s string) bool { return strings.HasPrefix(s, "lost 2") }) {
		t.Errorf("node 2 is not: %q", *said)
	}
}
