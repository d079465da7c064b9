package nodes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// newPipe is a link within the process.
func newPipe(node int) (head, follower *Link) {
	near, far := net.Pipe()
	return NewLink(addressed{near}, node), NewLink(addressed{far}, 0)
}

// addressed is a connection of a machine that has an address.
type addressed struct{ net.Conn }

func (addressed) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

// wires are how followers reach the head.
type wires struct {
	links chan *Link
	mu    sync.Mutex
	pipes map[int]*Link
	down  bool // nobody listens
	dead  int  // the node from which nothing comes any more
}

func (n *wires) Accept(ctx context.Context) (*Link, error) {
	select {
	case l := <-n.links:
		return l, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *wires) Close() error { return nil }

func (n *wires) cut(node int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.pipes[node].Close()
}

type dialer struct {
	net  *wires
	node int
}

func (d dialer) Dial(ctx context.Context) (*Link, error) {
	d.net.mu.Lock()
	down, dead := d.net.down, d.net.dead == d.node
	d.net.mu.Unlock()
	switch {
	case down:
		return nil, ErrRefused
	case dead:
		return nil, errors.New("no route to host")
	}
	head, follower := newPipe(d.node)
	select {
	case d.net.links <- head:
		d.net.mu.Lock()
		d.net.pipes[d.node] = follower
		d.net.mu.Unlock()
		return follower, nil
	case <-ctx.Done():
		_, _ = head.Close(), follower.Close()
		return nil, ctx.Err()
	}
}

// ranks replaces the ranks of a node: what they do in each attempt is a function.
type ranks struct {
	node int
	do   func(ctx context.Context, a *fake)
}

// A fake is running ranks. Their context ends when they are stopped.
type fake struct {
	launch launcher.Launch
	facts  chan strategy.Fact
	over   chan struct{}
	end    context.CancelFunc
}

func (r ranks) Start(_ context.Context, l launcher.Launch) (launcher.Attempt, error) {
	ctx, cancel := context.WithCancel(context.Background())
	a := &fake{launch: l, facts: make(chan strategy.Fact), over: make(chan struct{}), end: cancel}
	go func() {
		defer close(a.over)
		defer close(a.facts)
		r.do(ctx, a)
	}()
	return a, nil
}

func (a *fake) Facts() <-chan strategy.Fact        { return a.facts }
func (a *fake) Stop(int, time.Duration)            { a.end(); <-a.over }
func (a *fake) StopPeers(int, []int)               { a.end() }
func (a *fake) Release()                           {}
func (a *fake) LastSign(int) strategy.Sign         { return strategy.Sign{} }
func (a *fake) Stacks()                            {}
func (a *fake) Progress() []strategy.Fact          { return nil }
func (a *fake) exit(code int, ctx context.Context) { a.exits(code, ctx.Err() != nil) }

func (a *fake) exits(code int, stopped bool) {
	for k := range perNode {
		a.facts <- strategy.Fact{Time: time.Now(), Rank: a.launch.Meeting.Offset + k, Source: "exit", Content: &strategy.Exit{Code: code, Stopped: stopped, PID: 7}}
	}
}

const perNode = 2

type recipe struct{}

func (recipe) Apply(p strategy.Plan, by strategy.Arguments, checkpoint, dir string) (strategy.Command, error) {
	return strategy.Command{Argv: []string{"train.py", dir, string(p[strategy.MicroBatchSize])}}, nil
}

type inventory struct{ has strategy.Inventory }

func (i inventory) Inventory(context.Context) strategy.Inventory {
	i.has.At = time.Now()
	return i.has
}
func (inventory) Settle(context.Context, time.Duration) []strategy.Fact { return nil }
func (inventory) Notice() *strategy.Notice                              { return nil }

// A store remembers events, and nothing else.
type store struct {
	mu     sync.Mutex
	dir    string
	events []launcher.Event

	prepare, write error // why that is not possible
}

func (s *store) Append(e launcher.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	return nil
}
func (s *store) Prepare(n int) (string, error) {
	return fmt.Sprintf("%s/%d", s.dir, n), s.prepare
}
func (s *store) Write(string, strategy.Plan, strategy.Command) error { return s.write }
func (s *store) Draft(launcher.Verdict) error                        { return nil }
func (s *store) Finish(v launcher.Verdict) error                     { return s.Append(launcher.Finished{Verdict: v}) }

// threeNodes is a launch of three nodes, each with ranks whose behaviour is a function.
type threeNodes struct {
	net     *wires
	head    *Head
	job     launcher.Launcher
	store   *store
	ends    [3]chan End
	stop    [3]context.CancelFunc
	noticed [3]chan syscall.Signal
	kept    [3]*store
}

func begin(t *testing.T, do func(node int) func(context.Context, *fake)) *threeNodes {
	return beginOnce(t, do, false, 0)
}

// beginOnce is begin, where each node is started once, and one that is dead does not come.
func beginOnce(t *testing.T, do func(node int) func(context.Context, *fake), once bool, dead int) *threeNodes {
	n := &threeNodes{net: &wires{links: make(chan *Link), pipes: map[int]*Link{}, dead: dead}, store: &store{dir: "/0"}}
	launch := Agreement{Run: "slurm 7", Version: "v", Digest: "d", Nodes: 3, Ranks: perNode, Once: once}
	n.head = NewHead(HeadOptions{
		Agreement: launch, Links: n.net, Local: ranks{0, do(0)}, Join: 5 * time.Minute, Hosts: []string{"n1", "n2", "n3"}, Check: "look at its log",
		RunInfo: RunInfo{Dir: "/run", Port: func(context.Context, int) (int, error) { return 29500, nil }, Note: func(text string) { _ = n.store.Append(launcher.Noticed{Text: text}) }},
	})
	for k := 1; k < 3; k++ {
		n.follow(k, do(k), "")
	}
	n.job = jobOn(n.head, n.store, 3)
	return n
}

// jobOn is a job on so many nodes.
func jobOn(l *Head, s launcher.Store, nodes int) launcher.Launcher {
	return launcher.Launcher{
		Policy: strategy.Policy{Mode: strategy.Ladder, MaxAttempts: 20, TransientRetries: 3, Numerics: "mixed-precision"},
		Job: strategy.Job{
			Knobs: map[strategy.Knob]strategy.Range{strategy.MicroBatchSize: {Min: 1}, strategy.GradientAccumulationSteps: {Min: 1}},
			Ranks: nodes * perNode, LocalRanks: perNode, DataParallel: nodes * perNode,
		},
		Accelerator: "cuda", Recipe: recipe{}, Starter: l, World: l.World(inventory{}), Store: s, HangTimeout: 30 * time.Second,
		Graces: launcher.Graces{User: 25 * time.Second, Failure: 3 * time.Second},
	}
}

func (n *threeNodes) follow(k int, do func(context.Context, *fake), inc string) {
	n.followWith(k, inc, ranks{k, do})
}

func (n *threeNodes) followWith(k int, inc string, starter launcher.Starter) {
	ctx, cancel := context.WithCancel(context.Background())
	n.stop[k], n.ends[k], n.noticed[k] = cancel, make(chan End, 1), make(chan syscall.Signal, 1)
	n.kept[k] = &store{dir: fmt.Sprintf("/%d", k)}
	end := n.ends[k]
	o := FollowOptions{
		Hello: Hello{Node: k, Process: fmt.Sprint(k, inc), Agreement: Agreement{Run: "slurm 7", Version: "v", Digest: "d", Ranks: perNode}, Host: fmt.Sprintf("n%d", k+1)},
		Join:  5 * time.Minute, Dial: dialer{n.net, k}.Dial, Grace: 3 * time.Second,
		Begin: func(Welcome, func(string)) (Resources, error) {
			return Resources{Notice: func(signal syscall.Signal) { n.noticed[k] <- signal }, Recipe: recipe{}, Starter: starter, World: inventory{}, Store: n.kept[k]}, nil
		},
	}
	go func() { end <- Follow(ctx, o) }()
}

// train runs a job from its first attempt on.
func train(ctx context.Context, job launcher.Launcher) (launcher.Verdict, error) {
	plan := strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "1"}
	return job.Run(ctx, launcher.State{Policy: job.Policy, Job: job.Job, Next: launcher.Next{Plan: plan}})
}

// run runs the job to its end, and gives the verdict and how each follower ended.
func (n *threeNodes) run(t *testing.T, ctx context.Context) (launcher.Verdict, []End) {
	t.Helper()
	v, err := train(ctx, n.job)
	if err != nil {
		t.Errorf("run: %v", err)
	}
	n.head.Finish(v.Code, v.Reason)
	if err := n.head.Close(); err != nil {
		t.Error(err)
	}
	n.net.mu.Lock()
	n.net.down = true
	n.net.mu.Unlock()
	var ends []End
	for k := 1; k < 3; k++ {
		ends = append(ends, <-n.ends[k])
	}
	return v, ends
}

func oom(rank int) strategy.Fact {
	return strategy.Fact{Time: time.Now(), Rank: rank, Source: "probe", Content: &strategy.Finding{
		Code: cause.CUDAOOM, Weight: cause.WeightCause, Raised: true, Top: true, Phase: cause.Backward, Rank: -1, Stream: "probe", Seq: 1,
		Text: "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"}}
}

// Memory runs out on one node: all nodes get one next plan, and train.
func TestOutOfMemoryOnOneNodeChangesAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		batches := map[int][]string{}
		n := begin(t, func(node int) func(context.Context, *fake) {
			return func(ctx context.Context, a *fake) {
				mu.Lock()
				batches[node] = append(batches[node], string(a.launch.Plan[strategy.MicroBatchSize]))
				mu.Unlock()
				if a.launch.Meeting.Offset != node*perNode || a.launch.Meeting.World != 6 || a.launch.Meeting.Addr != "10.0.0.1" {
					t.Errorf("node %d: %+v", node, a.launch.Meeting)
				}
				if a.launch.N > 0 {
					a.exits(0, false)
					return
				}
				if node == 2 {
					time.Sleep(5 * time.Second)
					a.facts <- oom(5)
					a.exits(1, false)
					return
				}
				<-ctx.Done()
				a.exit(143, ctx)
			}
		})
		v, ends := n.run(t, t.Context())
		if v.Outcome != strategy.Trained || len(v.Attempts) != 2 || v.Attempts[0].Cause != cause.CUDAOOM || *v.Attempts[0].Rank != 5 {
			t.Errorf("%+v", v)
		}
		for _, e := range n.store.events {
			if d, ok := e.(launcher.Decided); ok && d.Diagnosis.Fatal && !strings.Contains(d.Decision.Reason, "out of memory in backward on rank 5 of node 2 (n3)") {
				t.Errorf("the node is not named: %s", d.Decision.Reason)
			}
		}
		for node, got := range batches {
			if !slices.Equal(got, []string{"8", "4"}) {
				t.Errorf("node %d trained with micro batches %q", node, got)
			}
		}
		for _, end := range ends {
			if end.Code != 0 || !end.FromHead {
				t.Errorf("a follower ended with %+v", end)
			}
		}
	})
}

// good ranks train for a minute, unless they are stopped.
func good(ctx context.Context, a *fake) {
	select {
	case <-time.After(time.Minute):
		a.exits(0, false)
	case <-ctx.Done():
		a.exits(143, true)
	}
}

func all(do func(context.Context, *fake)) func(int) func(context.Context, *fake) {
	return func(int) func(context.Context, *fake) { return do }
}

// A connection that breaks and comes back costs nothing, and no fact is lost or doubled.
func TestBrokenConnectionLosesNoFact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, all(good))
		go func() {
			for range 5 {
				time.Sleep(7 * time.Second)
				n.net.cut(1)
				n.net.cut(2)
			}
		}()
		v, ends := n.run(t, t.Context())
		if v.Outcome != strategy.Trained || len(v.Attempts) != 1 || ends[0].Code != 0 || ends[1].Code != 0 {
			t.Errorf("%+v, %+v", v, ends)
		}
		exits := map[int]int{}
		for _, e := range n.store.events {
			if ended, ok := e.(launcher.Ended); ok {
				for _, f := range ended.Evidence.Facts {
					if f.Exit() != nil {
						exits[f.Rank]++
					}
				}
			}
		}
		for rank := range 6 {
			if exits[rank] != 1 {
				t.Errorf("rank %d ended %d times: %v", rank, exits[rank], exits)
			}
		}
	})
}

// A node that is gone ends the attempt on all others, with 75, and is named.
func TestLostNodeChangesNoPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, all(good))
		go func() {
			time.Sleep(20 * time.Second)
			n.net.mu.Lock()
			defer n.net.mu.Unlock()
			_ = n.net.pipes[2].Close()
			n.net.dead = 2
		}()
		v, ends := n.run(t, t.Context())
		if v.Outcome != strategy.Retry || v.Code != 75 || len(v.Attempts) != 1 || !strings.Contains(v.Reason, "node 2 (n3) was lost: its gpurun is gone") {
			t.Errorf("%+v", v)
		}
		if ends[0].Code != 75 || !ends[0].FromHead {
			t.Errorf("the node that is there ended with %+v", ends[0])
		}
		if ends[1].Code != 75 || ends[1].FromHead || !strings.Contains(ends[1].Reason, "nothing was received from node 0") && !strings.Contains(ends[1].Reason, "gone") {
			t.Errorf("the one that is not, with %+v", ends[1])
		}
	})
}

// If the head is gone, each node ends its own ranks, with exit code 75.
func TestNodesStopRanksWithoutAHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, all(good))
		began := time.Now()
		var lasted [3]time.Duration
		go n.job.Run(t.Context(), launcher.State{Policy: n.job.Policy, Job: n.job.Job, Next: launcher.Next{Plan: strategy.Plan{}}}) //nolint:errcheck // it is killed
		time.Sleep(20 * time.Second)
		n.net.mu.Lock()
		n.net.down = true
		n.net.mu.Unlock()
		if err := n.head.Close(); err != nil {
			t.Error(err)
		}
		for k := 1; k < 3; k++ {
			end := <-n.ends[k]
			lasted[k] = time.Since(began)
			if end.Code != 75 || end.FromHead || !strings.Contains(end.Reason, "the gpurun of node 0 is gone") || lasted[k] > 60*time.Second {
				t.Errorf("node %d ended after %s with %+v", k, lasted[k], end)
			}
			if why := (launcher.Noticed{Text: "the ranks of this node are ended: the gpurun of node 0 is gone"}); !slices.Contains(n.kept[k].events, launcher.Event(why)) {
				t.Errorf("node %d keeps %+v", k, n.kept[k].events)
			}
		}
		time.Sleep(2 * time.Minute) // the head's own ranks are those of its guards
	})
}

// A node that is stopped while it waits for another head still reports the end of its ranks.
func TestEndNamesWhyRanksWereStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &follower{actor: newActor(t.Context())}
		f.machine = newFollowerMachine(f, Hello{}, 0, false)
		f.abandon("the gpurun of node 0 is gone")
		f.stopped(&launcher.Signal{Number: syscall.SIGTERM})
		if f.ended.Code != 143 || !strings.HasSuffix(f.ended.Reason, "; its ranks were ended before: the gpurun of node 0 is gone") {
			t.Errorf("%+v", f.ended)
		}
	})
}

// A node that does not come, or has left again, is named, and nothing is started.
func TestAMissingNodeIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, all(func(context.Context, *fake) { t.Error("ranks were started") }))
		n.stop[2]()
		<-n.ends[2]
		synctest.Wait() // until the head knows
		n.ends[2] <- End{}
		go func() {
			time.Sleep(noteAfter + time.Millisecond)
			n.store.mu.Lock()
			defer n.store.mu.Unlock()
			if len(n.store.events) != 1 {
				t.Errorf("after %s: %+v", noteAfter, n.store.events)
			}
		}()
		_, err := n.head.Start(t.Context(), launcher.Launch{})
		if err == nil || !strings.Contains(err.Error(), `node 2 (n3) of 3 did not come within 5m0s`) || errext.Code(err, 0) != 75 {
			t.Error(err)
		}
		n.store.mu.Lock()
		if told, ok := n.store.events[0].(launcher.Noticed); !ok || told.Text != "waiting for node 2 (n3) of 3, for 5m0s at most: look at its log" {
			t.Errorf("%+v", n.store.events)
		}
		n.store.mu.Unlock()
		n.head.Finish(75, "")
		_ = n.head.Close()
		<-n.ends[1]
	})
}

// A node that cannot take part reports why. A node that is not restarted is not awaited once it has left or
// its gpurun is gone: nothing is started, at once.
func TestUnableNodeEndsTheWait(t *testing.T) {
	for want, leave := range map[string]func(*threeNodes){
		"node 1 (n2) cannot take part: no such file": func(n *threeNodes) {
			n.stop[1]()
			<-n.ends[1]
			n.net.mu.Lock()
			n.net.dead = 0
			n.net.mu.Unlock()
			hello := Hello{Node: 1, Process: "x", Agreement: Agreement{Run: "slurm 7"}, Host: "n2", Unable: &NotReady{Why: "no such file", Code: 75}}
			n.ends[1] <- Follow(context.Background(), FollowOptions{Hello: hello, Join: time.Minute, Dial: dialer{n.net, 1}.Dial})
		},
		"node 2 (n3) was lost: it was stopped": func(n *threeNodes) {
			n.stop[2]()
		},
		"node 2 (n3) was lost: its gpurun is gone": func(n *threeNodes) {
			n.net.mu.Lock()
			defer n.net.mu.Unlock()
			_ = n.net.pipes[2].Close()
			n.net.dead = 2
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := beginOnce(t, all(func(context.Context, *fake) { t.Error("ranks were started") }), true, 1)
			began := time.Now()
			go func() {
				time.Sleep(time.Second)
				leave(n)
			}()
			_, err := n.head.Start(t.Context(), launcher.Launch{})
			if took := time.Since(began); err == nil || err.Error() != want || errext.Code(err, 0) != 75 || took > 15*time.Second {
				t.Errorf("after %s: %v, want %s", took, err, want)
			}
			n.stop[1]()
			n.stop[2]()
			<-n.ends[1]
			<-n.ends[2]
			_ = n.head.Close()
		})
	}
}

// A node that does not find node 0 reports where it looks, and why it finds nothing.
func TestUnreachableHeadIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &wires{down: true}
		var said []string
		began := time.Now()
		end := Follow(t.Context(), FollowOptions{Hello: Hello{Node: 1}, Join: time.Minute, Dial: dialer{n, 1}.Dial, Waits: func(why string) {
			said = append(said, fmt.Sprint(time.Since(began).Round(time.Second), " ", why))
		}})
		if end.Code != 75 || !slices.Equal(said, []string{"3s no process listens there"}) {
			t.Errorf("%+v, said %q", end, said)
		}
	})
}

// Where one node cannot start, none does, and its reason is the run's.
func TestOneUnstartableNodeStopsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, all(func(context.Context, *fake) { t.Error("ranks were started") }))
		n.job.Recipe = other{}
		_, err := n.job.Run(t.Context(), launcher.State{Policy: n.job.Policy, Job: n.job.Job, Next: launcher.Next{Plan: strategy.Plan{}}})
		if err == nil || !strings.Contains(err.Error(), "(n2): for the same plan it would start another command than node 0") && !strings.Contains(err.Error(), "(n3): for the same plan") || errext.Code(err, 0) != 2 {
			t.Error(err)
		}
		n.head.Finish(2, "")
		_ = n.head.Close()
		if end := <-n.ends[1]; end.Code != 2 {
			t.Errorf("%+v", end)
		}
		<-n.ends[2]
	})
}

type other struct{}

func (other) Apply(strategy.Plan, strategy.Arguments, string, string) (strategy.Command, error) {
	return strategy.Command{Argv: []string{"another.py"}}, nil
}

// A node of another job, version, size or configuration is rejected with the reason.
func TestRejectedNodesGetTheReason(t *testing.T) {
	for want, change := range map[string]func(*Hello){
		"another job":     func(h *Hello) { h.Run = "slurm 8" },
		"earlier start":   func(h *Hello) { h.Restart = -1 },
		"runs gpurun old": func(h *Hello) { h.Version = "old" },
		"would start 4":   func(h *Hello) { h.Ranks = 4 },
		"train.toml":      func(h *Hello) { h.Digest = "e" },
	} {
		synctest.Test(t, func(t *testing.T) {
			n := begin(t, all(good))
			h := Hello{Node: 1, Process: "x", Agreement: Agreement{Run: "slurm 7", Version: "v", Digest: "d", Ranks: perNode}}
			change(&h)
			n.stop[1]()
			<-n.ends[1]
			end := Follow(t.Context(), FollowOptions{Hello: h, Join: time.Minute, Dial: dialer{n.net, 1}.Dial})
			if !strings.Contains(end.Reason, want) || end.Code != 2 && want != "earlier start" {
				t.Errorf("%s: %+v", want, end)
			}
			n.stop[2]()
			<-n.ends[2]
			_ = n.head.Close()
		})
	}
}

// A node that violates the protocol harms no other node: an unreadable message ends its connection.
func TestUnreadableMessageEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, all(good))
		for _, text := range []string{"", "no message", "Shell\n\"rm\"", "Hello\n{\"node\":\"2\"}", "Hello\n" + strings.Repeat("[", 100_000)} {
			link, err := dialer{n.net, 1}.Dial(t.Context())
			if err == nil {
				err = link.Send([]byte(text))
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := link.Receive(t.Context()); err == nil {
				t.Errorf("%.20q is answered by %q", text, got)
			}
			_ = link.Close()
		}
		if v, _ := n.run(t, t.Context()); v.Code != 0 {
			t.Errorf("%+v", v)
		}
	})
}

// A signal to the head stops all nodes; one to another node is a node that is lost.
func TestSignals(t *testing.T) {
	for _, test := range []struct{ node, code int }{{0, 143}, {1, 75}} {
		synctest.Test(t, func(t *testing.T) {
			n := begin(t, all(good))
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				time.Sleep(20 * time.Second)
				if test.node == 0 {
					cancel(&launcher.Signal{Number: syscall.SIGTERM})
				} else {
					n.stop[1]()
				}
			}()
			v, ends := n.run(t, ctx)
			if v.Code != test.code || ends[1].Code != test.code || ends[1].FromHead != true {
				t.Errorf("signal to node %d: %+v, %+v", test.node, v, ends)
			}
		})
	}
}

// What there is to work with is the least that any node has.
func TestInventoryIsTheLeastOfAllNodes(t *testing.T) {
	a := strategy.Inventory{BF16: true, HostAvailable: 8, HostTotal: 10, Device: memory.DeviceMemory{Total: 80, Host: 8}}
	b := strategy.Inventory{BF16: false, HostAvailable: 4, NVMeFree: 3, Device: memory.DeviceMemory{Total: 40, Host: 4}, Missing: map[strategy.Remedy]string{"nvme": "no libaio"}}
	got := least(a, b)
	if got.BF16 || got.HostAvailable != 4 || got.HostTotal != 10 || got.NVMeFree != 3 || got.Device.Total != 40 || got.Device.Host != 4 || got.Missing["nvme"] == "" {
		t.Errorf("%+v", got)
	}
}

// A node that does not reach the address of the rendezvous reports that before ranks start.
func TestAFirewallIsFoundBeforeRanksWait(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d := listenToTest(t.Context(), port)
	if err := reach(t.Context(), "127.0.0.1", port); err != nil {
		t.Error(err)
	}
	d.close()
	err = reach(t.Context(), "127.0.0.1", port)
	if errext.Code(err, 0) != 2 || !strings.Contains(errext.Hint(err), "launch.master_port") {
		t.Error(err)
	}
	again, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatalf("the port is not free for rank 0: %v", err)
	}
	_ = again.Close()
	if d := listenToTest(t.Context(), -1); d != nil {
		t.Error("listening without a port")
	}
}

// A clock that is an hour off, and is put right, is off for two windows at most.
func TestClocks(t *testing.T) {
	var c clockOffset
	came := time.Now()
	for k := range 300 { // seconds
		off := time.Hour
		if k >= 100 {
			off = 0
		}
		sent := came.Add(off - 5*time.Millisecond)
		c.observe(sent, came)
		got := c.local(sent)
		if wrong := k >= 100 && k < 230; !wrong && got.Sub(came).Abs() > 10*time.Millisecond {
			t.Errorf("after %d s: %s", k, got.Sub(came))
		}
		came = came.Add(time.Second)
	}
	if !c.local(time.Time{}).IsZero() {
		t.Error("no time has become one")
	}
}

// slowStart is ranks that take a while to start, or cannot be.
type slowStart struct {
	ranks
	takes time.Duration
	err   error
}

func (s slowStart) Start(ctx context.Context, l launcher.Launch) (launcher.Attempt, error) {
	time.Sleep(s.takes)
	if s.err != nil {
		return nil, s.err
	}
	return s.ranks.Start(ctx, l)
}

// A node that is lost while the head starts its own ranks ends the attempt, too.
func TestNodeLostWhileTheHeadStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, all(good))
		n.head.opts.Local = slowStart{ranks: ranks{0, good}, takes: 40 * time.Second}
		go func() {
			time.Sleep(5 * time.Second)
			n.stop[2]()
		}()
		v, err := n.job.Run(t.Context(), launcher.State{Policy: n.job.Policy, Job: n.job.Job, Next: launcher.Next{Plan: strategy.Plan{}}})
		if err == nil || errext.Code(err, 0) != 75 || !strings.Contains(err.Error(), "node 2 (n3) was lost") {
			t.Errorf("%+v, %v", v, err)
		}
		n.head.Finish(75, "")
		_ = n.head.Close()
		<-n.ends[1]
		<-n.ends[2]
	})
}

// A node whose ranks cannot be started is no broken GPU, and trying again is not asked for
// where it would not help.
func TestANodeThatCannotStartItsRanks(t *testing.T) {
	for code, want := range map[int]int{2: 1, 74: 74, 75: 75} {
		synctest.Test(t, func(t *testing.T) {
			n := begin(t, all(good))
			n.stop[2]()
			<-n.ends[2]
			n.followWith(2, "again", slowStart{err: errext.WithCode(errors.New("no such file"), code)})
			v, _ := n.run(t, t.Context())
			if v.Code != want || len(v.Attempts) != 1 || v.Attempts[0].Cause == cause.GPUHardware || !strings.Contains(v.Reason, "node 2 (n3) was lost: it could not start its ranks: no such file") {
				t.Errorf("code %d: %+v", code, v)
			}
		})
	}
}

// A follower's full disk is no failure of the job: it continues once there is space.
func TestAFollowersFullDisk(t *testing.T) {
	for what, fill := range map[string]func(*store){
		"its folder": func(s *store) { s.prepare = syscall.ENOSPC }, "its files": func(s *store) { s.write = syscall.ENOSPC },
	} {
		synctest.Test(t, func(t *testing.T) {
			n := begin(t, all(func(context.Context, *fake) { t.Error("ranks were started") }))
			fill(n.kept[2])
			_, err := n.job.Run(t.Context(), launcher.State{Policy: n.job.Policy, Job: n.job.Job, Next: launcher.Next{Plan: strategy.Plan{}}})
			if errext.Code(err, 0) != strategy.CodeRunDir || !strings.Contains(err.Error(), "node 2 (n3): ") {
				t.Errorf("%s: %v", what, err)
			}
			n.head.Finish(74, "")
			_ = n.head.Close()
			<-n.ends[1]
			<-n.ends[2]
		})
	}
}

// The newer start of a job ends the older one.
func TestTheNewerStartEndsTheOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, all(good))
		go func() {
			time.Sleep(20 * time.Second)
			h := Hello{Node: 1, Process: "new", Agreement: Agreement{Run: "slurm 7", Restart: 1, Version: "v", Digest: "d", Ranks: perNode}}
			Follow(t.Context(), FollowOptions{Hello: h, Join: time.Minute, Dial: dialer{n.net, 1}.Dial})
		}()
		v, _ := n.run(t, t.Context())
		if v.Code != 75 || !strings.Contains(v.Reason, "the job was started again (start 1)") {
			t.Errorf("%+v", v)
		}
	})
}

// One that is found between two attempts ends the older one before the next, too.
func TestTheNewerStartComesBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, all(good))
		if err := n.head.gather(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.head.own(func() { n.head.superseded(Hello{Agreement: Agreement{Restart: 1}, Node: 1}) })
		v, err := n.job.Run(t.Context(), launcher.State{Policy: n.job.Policy, Job: n.job.Job, Next: launcher.Next{Plan: strategy.Plan{}}})
		if err == nil || errext.Code(err, 0) != 75 || !strings.Contains(err.Error(), "the job was started again (start 1)") {
			t.Errorf("%+v, %v", v, err)
		}
		n.head.Finish(75, "")
		_ = n.head.Close()
		for k := 1; k < 3; k++ {
			if end := <-n.ends[k]; end.Code != 75 || !end.FromHead {
				t.Errorf("node %d: %+v", k, end)
			}
		}
	})
}

// Another gpurun does not take the place of one that trains.
func TestSecondGpurunOfANodeIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, all(good))
		twin := make(chan End, 1)
		go func() {
			time.Sleep(20 * time.Second)
			h := Hello{Node: 1, Process: "twin", Agreement: Agreement{Run: "slurm 7", Version: "v", Digest: "d", Ranks: perNode}}
			twin <- Follow(t.Context(), FollowOptions{Hello: h, Join: time.Minute, Dial: dialer{n.net, 1}.Dial})
		}()
		v, _ := n.run(t, t.Context())
		if end := <-twin; v.Code != 0 || end.Code != 75 || !strings.Contains(end.Reason, "another gpurun is this node already") {
			t.Errorf("%+v, %+v", v, end)
		}
	})
}

// Nodes that come after the end get the verdict, for a while.
func TestLateNodesGetTheVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, all(good))
		for k := 1; k < 3; k++ {
			n.stop[k]()
			<-n.ends[k]
		}
		n.head.own(func() { n.head.machine = newHeadMachine(n.head, n.head.opts.Agreement, Welcome{}) }) // nobody has been there
		go n.head.Finish(12, "the end")
		time.Sleep(15 * time.Second)
		n.follow(1, good, "late")
		if end := <-n.ends[1]; end.Code != 12 || !end.FromHead {
			t.Errorf("%+v", end)
		}
		_ = n.head.Close()
	})
}

// hear wants the ranks of all other nodes to get a signal next.
func (n *threeNodes) hear(t *testing.T, want syscall.Signal) {
	t.Helper()
	for k := 1; k < 3; k++ {
		if got := <-n.noticed[k]; got != want {
			t.Errorf("node %d: %s, want %s", k, got, want)
		}
	}
}

// A notice to the head is one to the ranks of all nodes.
func TestANoticeReachesAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, all(good))
		go func() {
			time.Sleep(20 * time.Second)
			n.head.Notice(syscall.SIGUSR1)
		}()
		if v, _ := n.run(t, t.Context()); v.Code != 0 {
			t.Errorf("%+v", v)
		}
		n.hear(t, syscall.SIGUSR1)
	})
}

// While the head is stopped the ranks of all nodes pause, and nothing of that counts as silence.
func TestAPauseReachesAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, all(good))
		go func() {
			time.Sleep(20 * time.Second)
			n.head.Notice(syscall.SIGTSTP)
			n.hear(t, syscall.SIGTSTP)
			time.Sleep(20 * time.Second)
			n.head.Notice(syscall.SIGCONT)
		}()
		if v, _ := n.run(t, t.Context()); v.Code != 0 {
			t.Errorf("%+v", v)
		}
		n.hear(t, syscall.SIGCONT)
	})
}

// What a rank let see of itself is its own; what all ranks did is that of all nodes. Of
// another node's ranks a node can say nothing.
func TestTheLastSignOfARank(t *testing.T) {
	at := time.Now()
	a := newAttempt(&Head{opts: HeadOptions{Agreement: Agreement{Nodes: 3, Ranks: 2}}}, signing{strategy.Sign{Output: at, Steps: 2, Longest: 3, Others: at}}, nil)
	var c clockOffset
	c.observe(at, at)
	for node := 1; node < 3; node++ {
		steps := at.Add(time.Duration(node) * time.Minute)
		a.alive(node, &c, Alive{Signs: map[int]strategy.Sign{
			2 * node: {Output: steps, Steps: 5, Longest: 7, Others: steps}, 2*node + 1: {Output: at, Steps: 5, Longest: 7, Others: steps},
		}, Progress: []strategy.Fact{{Rank: 2 * node}}})
	}
	last := at.Add(2 * time.Minute)
	if len(a.progress) != 2 {
		t.Errorf("progress of %v", a.progress)
	}
	for rank, output := range map[int]time.Time{0: at, 1: at, 2: at.Add(time.Minute), 3: at, 4: last, 5: at} {
		got := a.LastSign(rank)
		if !got.Output.Equal(output) || got.Steps != 12 || got.Longest != 7 || !got.Others.Equal(last) {
			t.Errorf("rank %d: %+v", rank, got)
		}
	}
}

// signing is ranks that all let see the same.
type signing struct{ sign strategy.Sign }

func (s signing) LastSign(int) strategy.Sign { return s.sign }
func (signing) Facts() <-chan strategy.Fact  { return nil }
func (signing) Stop(int, time.Duration)      {}
func (signing) StopPeers(int, []int)         {}
func (signing) Release()                     {}
func (signing) Stacks()                      {}
func (signing) Progress() []strategy.Fact    { return nil }
