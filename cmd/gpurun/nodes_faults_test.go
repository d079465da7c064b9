package main

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

// TestNodesOutliveFaults kills, stops and suspends gpuruns, their guards and all that they
// started at random, start after start, in one run. Nothing is left behind at any time, the
// plan that ran out of memory is not run again once that is known, and in the end the run
// trains. GPURUN_FAULTS is how many, GPURUN_SEED repeats a run.
func TestNodesOutliveFaults(t *testing.T) {
	lab(t)
	faults, _ := strconv.Atoi(os.Getenv("GPURUN_FAULTS"))
	if faults == 0 {
		faults = 30
	}
	seed, err := strconv.ParseUint(os.Getenv("GPURUN_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("GPURUN_SEED=%d", seed)
	dir, done, starts := nodesJob(t), 0, 0
	for done < faults {
		starts++
		forget(t, dir)
		c := newCrew(t, dir, nil)
		early := random.IntN(3) == 0 // before the nodes have met, perhaps: then they look for each other for long
		if !early {
			c.awaitSteps(t)
		}
		for over := false; !over; {
			time.Sleep(time.Duration(random.IntN(2500)) * time.Millisecond) // whatever happens then
			done++
			over = c.fault(random)
		}
		for k := 0; early && k < 3; k++ {
			_ = c.nodes[k].Process.Kill()
		}
		for _, n := range c.nodes {
			<-n.over
		}
		await(t, "the end of all processes", func() bool { return len(marked(crewMark+dir)) == 0 })
		c.holds(t)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d faults in %d starts", done, starts)
	rest(t, dir)
	c := newCrew(t, dir, nil)
	c.exits(t, 0, 0, 0)
	c.holds(t)
}

// forget takes away by what awaitSteps knows that ranks train.
func forget(t *testing.T, dir string) {
	t.Helper()
	for rank := range 3 {
		if err := os.RemoveAll(filepath.Join(dir, "rank"+strconv.Itoa(rank))); err != nil {
			t.Fatal(err)
		}
	}
}

// fault does something to the crew, and reports whether that ends it.
func (c *crew) fault(random *rand.Rand) (over bool) {
	gpurun := c.nodes[random.IntN(3)].Process
	left := marked(crewMark + c.dir)
	switch random.IntN(6) {
	case 0, 1:
		_ = gpurun.Kill()
		return true
	case 2:
		_ = gpurun.Signal(syscall.SIGTERM)
		return true
	case 3: // anything, a guard or a rank
		if len(left) > 0 {
			_ = syscall.Kill(left[random.IntN(len(left))], syscall.SIGKILL)
		}
		_ = gpurun.Kill()
		return true
	case 4:
		for range 1 + random.IntN(3) {
			_ = c.nodes[random.IntN(3)].Process.Kill()
		}
		return true
	}
	_ = gpurun.Signal(syscall.SIGSTOP)
	time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
	_ = gpurun.Signal(syscall.SIGCONT)
	return false
}

// holds is what has to be true of the run at any time: its journal is whole, and no plan is
// run again of which it knows that it runs out of memory.
func (c *crew) holds(t *testing.T) {
	t.Helper()
	events, err := journal.Read(c.dir + "/run")
	if err != nil && !os.IsNotExist(err) {
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
