package ranks

import (
	"context"
	"testing"
)

// What a rank left behind is waited for wherever it has gone, and not signalled.
func TestLingerWaitsForWhatRanksLeft(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{Marker: t.Name()}, h.rank(0, "farewell"))
	daemon := h.readProcesses(1)[0]
	<-g.Exits()
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan bool)
	go func() { waited <- g.Linger(ctx) }()
	cancel()
	if <-waited {
		t.Error("nothing is left, says Linger beside a daemon")
	}
	if p, err := readProcess(daemon.PID); err != nil || p.identity != daemon || !p.alive() {
		t.Errorf("the daemon is gone: %v", err)
	}
	go func() { waited <- g.Linger(t.Context()) }()
	h.kill(daemon)
	if !<-waited {
		t.Error("something is left, says Linger when the daemon is gone")
	}
	if report := g.Stop(0); report.Swept != 0 || len(report.Leftover) != 0 {
		t.Errorf("report %+v", report)
	}
}
