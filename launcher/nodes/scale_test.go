package nodes

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	manyNodes = 1000 // beside the head
	// manyRun, in the environment of this test, makes it the other side: all nodes but the
	// head, in one process, of the launch that it names.
	manyRun = "GPURUN_TEST_NODES_OF"
	// What is aimed at: what bare gRPC with TLS took once, on two cores of its own.
	joinGoal, rescueGoal, memoryGoal = 1.9, 0.5, 136.0
)

// BenchmarkThousandNodes is one head with 1,000 nodes, each over a separate session: how
// long until all have joined, how long a rescue takes them all, and what the head holds. Only
// the ranks are none: one runs out of memory once all run, and the others then end with 8 KiB
// of what they saw.
func BenchmarkThousandNodes(b *testing.B) {
	if run := os.Getenv(manyRun); run != "" {
		followMany(b, run)
		return
	}
	run := fmt.Sprint("bench ", os.Getpid())
	links, err := Listen(b.Context(), trusted(b, run, 0), 0)
	if err != nil {
		b.Fatal(err)
	}
	others := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^"+b.Name()+"$", "-test.benchtime=1x")
	others.Env, others.Stderr = append(os.Environ(), manyRun+"="+run), os.Stderr
	said, err := others.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	was := held(b)
	began := time.Now()
	if err := others.Start(); err != nil {
		b.Fatal(err)
	}
	times, cpu := lead(b, links)
	most := held(b)
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if what, at, ok := strings.Cut(lines.Text(), " at "); ok {
			ns, _ := strconv.ParseInt(at, 10, 64)
			times[what] = time.Unix(0, ns)
		}
	}
	if err := others.Wait(); err != nil {
		b.Fatal(err)
	}
	since := func(from time.Time, to string) float64 { return times[to].Sub(from).Seconds() }
	waited := strategy.PeerWindow.Seconds()
	rescue := since(times["oom"], "again") - waited
	fmt.Printf("\n| %d nodes, one head, on this machine | gpurun | goal |\n|---|--:|--:|\n", manyNodes)
	for _, row := range []struct {
		what         string
		gpurun, goal float64
		unit         string
	}{
		{"all joined", since(began, "joined"), joinGoal, "s"},
		{
			fmt.Sprintf("from out of memory to started on all, less %.1f s for other last words", waited),
			rescue, rescueGoal, "s",
		},
		{"the head's peak RSS", most, memoryGoal, "MB"},
	} {
		fmt.Printf("| %s | %.3g %s | %.3g %s |\n", row.what, row.gpurun, row.unit, row.goal, row.unit)
	}
	fmt.Printf("\nof the rescue: all ranks stopped %.2f s, decided %.3f s, started on all %.2f s; the head's CPU time: until all joined %.2f s, after it %.2f s; its RSS before: %.0f MB\n",
		since(times["oom"], "ended")-waited, since(times["ended"], "decided"), since(times["decided"], "again"), cpu.Seconds(), (spent(b) - cpu).Seconds(), was)
}

// trusted are the credentials of one of the nodes.
func trusted(b *testing.B, run string, node int) *Credentials {
	c, err := Trust(b.Context(), TrustOptions{
		Run: run, Node: node, Nodes: manyNodes + 1, Environ: commandline.Environ{"GPURUN_SECRET": strings.Repeat("0123456789abcdef", 4)},
	})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// A timed store remembers when what happened.
type timed struct {
	*store
	times map[string]time.Time
}

func (s timed) Append(e launcher.Event) error {
	switch e := e.(type) {
	case launcher.Ended:
		if e.Evidence.Attempt == 0 {
			s.times["ended"] = time.Now()
		}
	case launcher.Decided:
		if e.Decision.Relaunch {
			s.times["decided"] = time.Now()
		}
	}
	return s.store.Append(e)
}

// lead is the head's side of the job, from its start to its end: when what happened, and
// what CPU time it had taken when all were there.
func lead(b *testing.B, come links) (times map[string]time.Time, cpu time.Duration) {
	s := timed{&store{dir: "/0"}, map[string]time.Time{}}
	l := NewHead(HeadOptions{
		Agreement: Agreement{Run: "many", Nodes: manyNodes + 1, Ranks: perNode}, Links: come,
		Local: ranks{0, untilStopped}, Join: time.Minute,
		RunInfo: RunInfo{Note: func(text string) { b.Log(text) }, Port: func(_ context.Context, attempt int) (int, error) { // is asked for once all are there
			if attempt == 0 {
				s.times["joined"], cpu = time.Now(), spent(b)
			}
			return 29500, nil
		}},
	})
	defer l.Close()
	v, err := train(b.Context(), jobOn(l, s, manyNodes+1))
	if err != nil || v.Outcome != strategy.Trained || len(v.Attempts) != 2 || v.Attempts[0].Cause != cause.CUDAOOM {
		b.Errorf("%+v, %v", v, err)
	}
	l.Finish(v.Code, v.Reason)
	return s.times, cpu
}

// untilStopped are ranks that the first attempt's out-of-memory error leaves waiting.
func untilStopped(ctx context.Context, a *fake) {
	if a.launch.N > 0 {
		a.exits(0, false)
		return
	}
	<-ctx.Done()
	f := oom(a.launch.Meeting.Offset)
	f.Finding().Code, f.Finding().Weight, f.Finding().Text = cause.NCCLError, cause.WeightSymptom, strings.Repeat("e", 8<<10)
	a.facts <- f
	a.exits(143, true)
}

// followMany is the other side: all nodes but the head, each with a separate session.
func followMany(b *testing.B, run string) {
	var started [2]atomic.Int32 // by attempt
	all := make(chan struct{})  // closed once the first attempt's ranks run on all nodes
	do := func(ctx context.Context, a *fake) {
		last := started[a.launch.N].Add(1) == manyNodes
		switch {
		case a.launch.N == 0 && last:
			close(all)
		case a.launch.N == 1 && last:
			fmt.Println("again at", time.Now().UnixNano())
		}
		if a.launch.N == 0 && a.launch.Meeting.Node == manyNodes/2 {
			<-all
			fmt.Println("oom at", time.Now().UnixNano())
			a.facts <- oom(a.launch.Meeting.Offset)
			a.exits(1, false)
			return
		}
		untilStopped(ctx, a)
	}
	var nodes sync.WaitGroup
	for k := 1; k <= manyNodes; k++ {
		nodes.Go(func() {
			end := Follow(b.Context(), FollowOptions{
				Hello: Hello{Node: k, Process: strconv.Itoa(k), Agreement: Agreement{Run: "many", Ranks: perNode}, Host: fmt.Sprintf("n%d", k)},
				Join:  time.Minute, Dial: NewDialer(trusted(b, run, k), "127.0.0.1", 0).Dial, Grace: 3 * time.Second,
				Begin: func(Welcome, func(string)) (Resources, error) {
					return Resources{Recipe: recipe{}, Starter: ranks{k, do}, World: inventory{}, Store: &store{dir: fmt.Sprintf("/%d", k)}}, nil
				},
			})
			if end.Code != 0 || !end.FromHead {
				b.Errorf("node %d ended with %+v", k, end)
			}
		})
	}
	nodes.Wait()
}

// held is the most memory that this process has had, in MB.
func held(b *testing.B) float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return kib * 1024 / 1e6
}

// spent is the CPU time that this process has taken.
func spent(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
