package nodes

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/strategy"
)

// A single node uses the same state machine without connections: it has no other node, is rescued, and leaves
// nothing behind. synctest waits for goroutines that would keep running.
func TestOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := Join(t.Context(), JoinOptions{At: cluster.Placement{Nodes: 1}, Name: "train", Ranks: perNode})
		if err != nil || p.Follows() || p.links != nil {
			t.Fatalf("%+v, %v", p, err)
		}
		var meetings []launcher.Meeting
		kept := &store{dir: "/0"}
		l := launcher.Launcher{
			Policy: strategy.Policy{Mode: strategy.Ladder, MaxAttempts: 3, Numerics: "mixed-precision"}, Accelerator: "cuda", Recipe: recipe{}, World: inventory{}, Store: kept,
			Job: strategy.Job{Knobs: map[strategy.Knob]strategy.Range{strategy.MicroBatchSize: {Min: 1}, strategy.GradientAccumulationSteps: {Min: 1}}, Ranks: perNode, LocalRanks: perNode, DataParallel: perNode},
			Starter: ranks{0, func(ctx context.Context, a *fake) {
				meetings = append(meetings, a.launch.Meeting)
				if a.launch.N == 0 {
					a.facts <- oom(1)
				}
				a.exits(1-min(a.launch.N, 1), false)
			}},
		}
		port := func(_ context.Context, attempt int) (int, error) { return 29500 + attempt, nil }
		p.MakeHead(&l, RunInfo{Port: port, Reach: true, Note: func(text string) { t.Errorf("noted: %s", text) }})
		plan := strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "1"}
		v, err := l.Run(t.Context(), launcher.State{Policy: l.Policy, Job: l.Job, Next: launcher.Next{Plan: plan}})
		p.End(v, err)
		if err != nil || v.Outcome != strategy.Trained || len(v.Attempts) != 2 {
			t.Errorf("%+v, %v", v, err)
		}
		for n, m := range meetings {
			if want := (launcher.Meeting{Nodes: 1, World: perNode, Addr: "127.0.0.1", Port: 29500 + n}); m != want {
				t.Errorf("attempt %d meets at %+v, want %+v", n, m, want)
			}
		}
		for _, e := range kept.events {
			if d, ok := e.(launcher.Decided); ok && (d.Diagnosis.Node != "" || strings.Contains(d.Decision.Reason, "node")) {
				t.Errorf("%+v", d)
			}
		}
	})
}

// What keeps the one node from starting is its own error, and a run that started nothing has
// nothing to end.
func TestOneNodeThatDoesNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := Join(t.Context(), JoinOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.End(launcher.Verdict{}, errors.New("the run directory is in use"))

		busy := errors.New("the port is in use")
		var l launcher.Launcher
		p.MakeHead(&l, RunInfo{Port: func(context.Context, int) (int, error) { return 0, busy }})
		if _, err := l.Starter.Start(t.Context(), launcher.Launch{}); !errors.Is(err, busy) {
			t.Errorf("%v", err)
		}
		p.End(launcher.Verdict{}, busy)
	})
}

// A bug of gpurun itself is reported: the ranks' facts are not read any more, and the end does not wait for
// them.
func TestEndWhileRanksRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := Join(t.Context(), JoinOptions{At: cluster.Placement{Nodes: 1}, Name: "train", Ranks: perNode})
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		l := launcher.Launcher{World: inventory{}, Starter: ranks{0, func(_ context.Context, a *fake) {
			a.facts <- oom(0)
			<-over
			a.exits(0, false)
		}}}
		p.MakeHead(&l, RunInfo{Port: func(context.Context, int) (int, error) { return 29500, nil }})
		if _, err := l.Starter.Start(t.Context(), launcher.Launch{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p.End(launcher.Verdict{}, errors.New("this is a bug in gpurun"))
		close(over)
	})
}

// A node that waits before the nodes know each other names the node that it waits for.
func TestWaitForCredentialsIsReported(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var said []string
		_, err := Join(ctx, JoinOptions{At: cluster.Placement{Nodes: 2, NodeRank: 1, Head: "n1"}, Name: "train", Folder: folder, Note: func(text string) {
			said = append(said, text)
			cancel()
		}})
		want := "waiting for node 0 on n1, for 5m0s at most: each node starts gpurun with the same command, and has to reach the port of node 0"
		if !errors.Is(err, context.Canceled) || len(said) != 1 || said[0] != want {
			t.Errorf("%q, %v", said, err)
		}
	})
}
