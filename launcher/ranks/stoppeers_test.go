package ranks

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/strategy"
)

// Only the peers are stopped: their ends do not count for the job. The other rank continues, and ends by
// itself with its own code.
func TestStopPeers(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{Marker: t.Name()}, h.rank(0, "heeds"), h.rank(1, "exit", "3"), h.rank(2, "heeds"), h.rank(3, "notices"))
	ids := h.readProcesses(3)
	var ends []strategy.Exit
	next := func() {
		t.Helper()
		select {
		case f := <-g.Exits():
			ends = append(ends, strategy.Exit{PID: f.Rank, Code: f.Exit().Code, Signal: f.Exit().Signal, Stopped: f.Exit().Stopped})
		case <-time.After(2 * time.Minute):
			t.Fatalf("no further end after %+v", ends)
		}
	}
	next() // of rank 1, which had failed before
	g.StopPeers(unix.SIGTERM, []int{0})
	next()
	next()
	if ends[1].PID > ends[2].PID {
		ends[1], ends[2] = ends[2], ends[1]
	}
	if p, err := readProcess(g.PIDs()[0]); err != nil || !p.alive() {
		t.Errorf("rank 0 does not go on: state %c, %v", p.state, err)
	}
	report := g.Stop(time.Hour)
	next()
	h.gone(ids...)
	want := []strategy.Exit{{PID: 1, Code: 3}, {PID: 2, Code: 7, Stopped: true}, {PID: 3, Code: 143, Signal: 15, Stopped: true}, {PID: 0, Code: 7, Stopped: true}}
	if diff := cmp.Diff(want, ends); diff != "" {
		t.Errorf("ends (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(StopReport{}, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}
