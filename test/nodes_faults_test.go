package test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// TestNodesOutliveFaults injects random faults, start after start: it kills, stops and suspends gpuruns,
// their guards and ranks, cuts and slows the nodes' connections, and fills their disks. After each start
// nothing is left behind, the journals are whole, each gpurun has ended with a code that its faults explain,
// and the plan that ran out of memory is not run again once that is known; in the end each run trains. Faults
// mostly wait, so that several campaigns run in parallel. GPURUN_FAULTS is the total number of faults,
// GPURUN_SEED repeats them, and GPURUN_CAMPAIGNS is the number of campaigns: go test -parallel must allow
// them.
func TestNodesOutliveFaults(t *testing.T) {
	lab(t)
	number := func(name string, otherwise uint64) uint64 {
		n, err := strconv.ParseUint(os.Getenv(name), 10, 64)
		if err != nil {
			return otherwise
		}
		return n
	}
	campaigns := number("GPURUN_CAMPAIGNS", 6)
	faults, seed := (number("GPURUN_FAULTS", 30)+campaigns-1)/campaigns, testenv.Of(t)
	t.Logf("GPURUN_CAMPAIGNS=%d", campaigns)
	var mu sync.Mutex
	all, starts := map[string]int{}, 0
	t.Run("campaign", func(t *testing.T) {
		for k := range campaigns {
			t.Run(strconv.Itoa(int(k)), func(t *testing.T) {
				t.Parallel()
				c := &campaign{random: rand.New(rand.NewPCG(seed, k)), left: int(faults), done: map[string]int{}}
				for c.left > 0 && !t.Failed() {
					c.job(t)
				}
				mu.Lock()
				defer mu.Unlock()
				starts += c.starts
				for kind, n := range c.done {
					all[kind] += n
				}
			})
		}
	})
	sum := 0
	for _, n := range all {
		sum += n
	}
	t.Logf("%d faults in %d starts: %v", sum, starts, all)
}

// A campaign is a series of faults.
type campaign struct {
	random *rand.Rand
	left   int            // faults to be done
	done   map[string]int // by kind
	starts int

	*crew               // that runs
	cables [3]*cable    // cables of its followers
	codes  map[int]bool // exit codes with which its gpuruns may end
	hurt   bool         // a fault was injected that may end it
}

// startsOfAJob bounds how often one is cut off: gpurun bounds its attempts.
const startsOfAJob = 6

// job starts a job again and again, and lets it train in the end.
func (c *campaign) job(t *testing.T) {
	dir := nodesJob(t)
	for range startsOfAJob {
		c.start(t, dir)
		if t.Failed() {
			return
		}
		if c.left <= 0 {
			break
		}
	}
	rest(t, dir)
	calm := newCrew(t, dir, nil)
	calm.exits(t, 0, 0, 0)
	calm.holds(t)
}

// start is one start of a job, to its end.
func (c *campaign) start(t *testing.T, dir string) {
	forget(t, dir)
	c.starts++
	c.codes, c.hurt = map[int]bool{strategy.CodeRetry: true}, false
	head := freeHead(t)
	env := map[int][]string{0: {"GPURUN_HEAD=" + head, "PACE=0.5"}}
	for k := 1; k < 3; k++ {
		c.cables[k] = newCable(t, head)
		defer c.cables[k].close()
		env[k] = []string{"GPURUN_HEAD=" + c.cables[k].addr(), "PACE=0.5"}
	}
	c.crew = newCrew(t, dir, env)
	early := c.random.IntN(4) == 0 // maybe before the nodes have met: then they look for each other for long
	if !early {
		c.awaitSteps(t)
	}
	for over := false; !over; c.left-- {
		time.Sleep(time.Duration(c.random.IntN(2500)) * time.Millisecond) // at any moment
		if over = c.fault(t); !over && !c.hurt {
			c.unharmed(t)
		}
	}
	if early {
		c.kill(0, 1, 2)
	}
	for k, n := range c.nodes {
		<-n.over
		if code := n.ProcessState.ExitCode(); !c.codes[code] {
			t.Errorf("node %d ended with %d, of %v", k, code, slices.Sorted(maps.Keys(c.codes)))
		}
	}
	await(t, "the end of all processes", func() bool { return len(marked(crewMark+dir)) == 0 })
	c.holds(t)
}

// freeHead returns an address for the head, below the ephemeral ports.
func freeHead(t *testing.T) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 11000+rand.IntN(9000))
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// unharmed checks that the faults so far have ended nothing.
func (c *campaign) unharmed(t *testing.T) {
	t.Helper()
	for k, n := range c.nodes {
		select {
		case <-n.over:
			t.Errorf("node %d has ended", k)
		default:
		}
	}
}

// forget removes the files by which awaitSteps recognises that ranks train.
func forget(t *testing.T, dir string) {
	t.Helper()
	for rank := range 3 {
		testenv.Check(t, os.RemoveAll(filepath.Join(dir, "rank"+strconv.Itoa(rank))))
	}
}

// fault injects a fault, and reports whether it ends the crew.
func (c *campaign) fault(t *testing.T) (over bool) {
	node, follower := c.random.IntN(3), 1+c.random.IntN(2)
	faults := []struct {
		kind string
		do   func() (over bool)
	}{
		{"kill", func() bool { c.kill(node); return true }},
		{"term", func() bool { c.term(node); return true }},
		{"kill any process", func() bool { c.killAny(); c.kill(node); return true }},
		{"kill several", func() bool { c.kill(node, c.random.IntN(3)); return true }},
		{"stop and continue", func() bool { c.suspend(node); return false }},
		{"pause", func() bool { c.pause(); return false }},
		{"slow link", func() bool { c.slow(follower); return false }},
		{"broken link", func() bool { c.cables[follower].reset(); return false }},
		{"cut and heal", func() bool { c.cut(follower); return false }},
		{"cut and heal", func() bool { c.cut(follower); return false }},
		{"cut for good", func() bool { c.cables[follower].sever(true); return c.random.IntN(3) == 0 || c.end(node) }},
		{"full disk", func() bool { c.fill(t, node, true); return false }},
		{"full disk for good", func() bool { c.fill(t, node, false); return c.end(node) }},
	}
	f := faults[c.random.IntN(len(faults))]
	c.done[f.kind]++
	t.Logf("start %d: %s (node %d or %d)", c.starts, f.kind, node, follower)
	return f.do()
}

// end ends a node after a fault in its environment.
func (c *campaign) end(node int) bool {
	c.done["term beside it"]++
	c.left--
	c.term(node)
	return true
}

func (c *campaign) kill(nodes ...int) {
	c.codes[-1] = true
	for _, k := range nodes {
		_ = c.nodes[k].Process.Kill()
	}
}

// term sends SIGTERM to a gpurun. One that has just begun ends by the signal itself.
func (c *campaign) term(node int) {
	c.codes[128+int(syscall.SIGTERM)], c.codes[-1] = true, true
	_ = c.nodes[node].Process.Signal(syscall.SIGTERM)
}

// killAny kills any process, such as a guard or a rank. The end of a rank may count as the job's own failure.
func (c *campaign) killAny() {
	c.codes[1] = true
	if left := marked(crewMark + c.dir); len(left) > 0 {
		_ = syscall.Kill(left[c.random.IntN(len(left))], syscall.SIGKILL)
	}
}

func (c *campaign) suspend(node int) {
	_ = c.nodes[node].Process.Signal(syscall.SIGSTOP)
	time.Sleep(time.Duration(c.random.IntN(1500)) * time.Millisecond)
	_ = c.nodes[node].Process.Signal(syscall.SIGCONT)
}

// pause is Ctrl-Z at node 0, and fg.
func (c *campaign) pause() {
	_ = c.nodes[0].Process.Signal(syscall.SIGTSTP)
	time.Sleep(time.Duration(c.random.IntN(5000)) * time.Millisecond)
	_ = c.nodes[0].Process.Signal(syscall.SIGCONT)
}

// slow delays everything on a link from now on.
func (c *campaign) slow(follower int) {
	c.cables[follower].slow(time.Duration(c.random.IntN(1000)) * time.Millisecond)
}

// cut blocks a link for a while, sometimes for so long that gpurun warns.
func (c *campaign) cut(follower int) {
	lasts := 5 * time.Second
	if c.random.IntN(4) == 0 {
		lasts = 50 * time.Second
	}
	c.cables[follower].sever(true)
	time.Sleep(time.Duration(c.random.Int64N(int64(lasts))))
	c.cables[follower].sever(false)
}

// fill leaves a gpurun no disk space, or only enough for a part of a line in its journal.
func (c *campaign) fill(t *testing.T, node int, heals bool) {
	c.codes[strategy.CodeRunDir], c.hurt = true, true
	room := uint64(0)
	file := filepath.Join(c.dir, "run", journal.File)
	if node > 0 {
		file = filepath.Join(c.dir, "run", fmt.Sprintf("node-%d", node), journal.File)
	}
	if info, err := os.Stat(file); err == nil && c.random.IntN(2) == 0 {
		room = uint64(info.Size()) + c.random.Uint64N(300)
	}
	var was unix.Rlimit
	pid := c.nodes[node].Process.Pid
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &was); errors.Is(err, unix.ESRCH) {
		return
	} else if err != nil {
		t.Error(err)
		return
	}
	_ = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: room, Max: was.Max}, nil) // it may have ended
	time.Sleep(time.Duration(c.random.IntN(2000)) * time.Millisecond)
	if heals {
		_ = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &was, nil)
	}
}

// holds checks the invariants of the run: its journals are whole, and no plan runs again that is known to run
// out of memory.
func (c *crew) holds(t *testing.T) {
	t.Helper()
	for _, node := range []string{"node-1", "node-2"} {
		if _, err := journal.Read(filepath.Join(c.dir, "run", node)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	events, err := journal.Read(filepath.Join(c.dir, "run"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var ranOut strategy.Plan
	for _, e := range events {
		switch e := e.(type) {
		case launcher.Decided:
			if e.Diagnosis.OutOfMemory() {
				ranOut = e.Decision.Next.With(nil)
				for k, change := range e.Decision.Changed {
					ranOut[k] = change[0]
				}
			}
		case launcher.Started:
			if ranOut != nil && maps.Equal(e.Plan, ranOut) {
				t.Errorf("attempt %d has the plan that ran out: %s", e.N, e.Plan)
			}
		}
	}
}
