package test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// A cable is a follower's connection to the head. It can be slow, blocked for a while, or broken.
type cable struct {
	listener net.Listener
	head     string
	owner    sync.WaitGroup

	mu     sync.Mutex
	change *sync.Cond
	conns  map[net.Conn]bool
	cut    bool
	delay  time.Duration
	over   bool
}

// newCable opens a cable to the head's address, with its own address.
func newCable(t *testing.T, head string) *cable {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Check(t, err)
	w := &cable{listener: listener, head: head, conns: map[net.Conn]bool{}}
	w.change = sync.NewCond(&w.mu)
	w.owner.Go(w.accept)
	return w
}

func (w *cable) addr() string { return w.listener.Addr().String() }

func (w *cable) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.owner.Go(func() { w.carry(near) })
	}
}

// carry joins a connection with one to the head. If nothing listens there, it is reset.
func (w *cable) carry(near net.Conn) {
	defer w.forget(near)
	if !w.hold(near) || !w.open() {
		return
	}
	far, err := net.Dial("tcp", w.head)
	if err != nil {
		_ = near.(*net.TCPConn).SetLinger(0)
		return
	}
	defer w.forget(far)
	if !w.hold(far) {
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { w.pass(near, far) })
	ways.Go(func() { w.pass(far, near) })
	ways.Wait()
}

// pass carries one direction to its end, each part with a delay.
func (w *cable) pass(from, to net.Conn) {
	type part struct {
		text []byte
		due  time.Time
	}
	parts := make(chan part, 1000)
	w.owner.Go(func() {
		defer close(parts)
		for {
			text := make([]byte, 32<<10)
			n, err := from.Read(text)
			w.mu.Lock()
			due := time.Now().Add(w.delay)
			w.mu.Unlock()
			if n > 0 {
				parts <- part{text[:n], due}
			}
			if err != nil {
				return
			}
		}
	})
	for p := range parts {
		time.Sleep(time.Until(p.due))
		if w.open() {
			_, _ = to.Write(p.text) // no error: the other direction shows that the reader is gone
		}
	}
	if w.open() {
		_ = to.(*net.TCPConn).CloseWrite()
	}
}

// open waits while the cable is cut, and reports whether it still exists.
func (w *cable) open() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.cut && !w.over {
		w.change.Wait()
	}
	return !w.over
}

func (w *cable) hold(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = true
	return !w.over
}

func (w *cable) forget(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
	_ = c.Close()
}

// sever blocks the cable, without an end that either side would see.
func (w *cable) sever(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	w.change.Broadcast()
}

// slow delays everything from now on.
func (w *cable) slow(delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = delay
}

// reset breaks existing connections. New connections work.
func (w *cable) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}

// close ends the cable, and waits for its goroutines.
func (w *cable) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	w.over = true
	w.change.Broadcast()
	w.mu.Unlock()
	w.reset()
	w.owner.Wait()
}

// A cable carries all data, late if it is slow, and after a cut the data sent meanwhile.
func TestCable(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Check(t, err)
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	w := newCable(t, echo.Addr().String())
	defer w.close()
	c, err := net.Dial("tcp", w.addr())
	testenv.Check(t, err)
	defer c.Close()
	say := func(text string) string {
		_, _ = io.WriteString(c, text)
		got := make([]byte, len(text))
		_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		n, _ := io.ReadFull(c, got)
		return string(got[:n])
	}
	if got := say("one"); got != "one" {
		t.Errorf("%q", got)
	}
	w.sever(true)
	if got := say("two"); got != "" {
		t.Errorf("a cable that is cut carries %q", got)
	}
	w.sever(false)
	if got := say("!"); got != "t" {
		t.Errorf("after the cut comes %q", got)
	}
	w.reset()
	if _, err := io.ReadAll(c); err == nil {
		t.Error("the connection has not ended")
	}
}

// The status on node 0 has the ranks of all nodes, by their global numbers, with the memory of each.
func TestNodesStatus(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nodesJob(t), map[int][]string{0: {"FITS=8"}, 1: {"FITS=8"}, 2: {"FITS=8"}})
	c.awaitSteps(t)
	var s launcher.Status
	await(t, "the memory of three ranks", func() bool {
		cmd := exec.Command(binary(t), "status", "--json", "run")
		cmd.Dir = c.dir
		out, err := cmd.Output()
		s = launcher.Status{}
		return err == nil && json.Unmarshal(out, &s) == nil && len(s.Ranks) == 3
	})
	for k, rank := range s.Ranks {
		if rank.Rank != k || rank.Device != "cpu" || rank.Used == 0 || rank.Allowed == 0 {
			t.Errorf("rank %d: %+v", k, rank)
		}
	}
	rest(t, c.dir)
	c.exits(t, 0, 0, 0)
}

// TestASlowNodeIsNamed is a training whose ranks wait for each other in each step, on two nodes. After some
// minutes, node 0 reports what one of them is slow at: its data, or its forward pass. With two GPUs it uses
// NCCL.
func TestASlowNodeIsNamed(t *testing.T) {
	python := testenv.Torch(t)
	lab(t)
	gpus := 0
	if nvml, err := ranks.OpenNVML(); err == nil {
		defer nvml.Close()
		devices, _ := nvml.Devices()
		gpus = len(devices)
	}
	for slow, words := range map[string]string{
		"data":    `rank 1 of node 1 \(.*\) is slow: a step of \S+ s waits \S+ s for data, and the other's \S+ s`,
		"forward": `rank 1 of node 1 \(.*\) is slow: the forward pass takes \S+ s of a step's \S+ s, and the other's \S+ s`,
	} {
		t.Run(slow, func(t *testing.T) {
			t.Parallel()
			env := map[int][]string{}
			for k := range 2 {
				env[k] = []string{"PYTHON_EXEC=" + python, "CUDA_VISIBLE_DEVICES="}
				if gpus > 1 {
					env[k] = []string{"PYTHON_EXEC=" + python, "CUDA_VISIBLE_DEVICES=" + strconv.Itoa(k), "BACKEND=nccl"}
				}
			}
			env[1] = append(env[1], "SLOW="+slow)
			c := crewOf(t, 2, copyOf(t, filepath.Join("testdata", "nodes_slow")), env)
			says := func(pattern string) func() bool {
				return func() bool { return regexp.MustCompile(pattern).MatchString(c.nodes[0].said.String()) }
			}
			await(t, "the first steps", says(`step 100 after`))
			await(t, "many steps", says(`step 300 after`))
			await(t, "a word of slowness", says(`is slow:`))
			c.says(t, 0, words)
			t.Log(regexp.MustCompile(`.*slow:.*`).FindString(c.nodes[0].said.String()))
		})
	}
}

// TestNodesOnGPUs is one training on nodes that see one GPU each. The last has less memory: its rescue
// changes no loss. NCCL needs a GPU for each node, since it does not support two ranks on one. With fewer
// than four GPUs, four nodes share them, over gloo.
func TestNodesOnGPUs(t *testing.T) {
	python := os.Getenv("GPURUN_TEST_PYTHON")
	nvml, err := ranks.OpenNVML()
	if err != nil || python == "" {
		t.Skipf("needs two NVIDIA GPUs and GPURUN_TEST_PYTHON: %v", err)
	}
	t.Cleanup(func() { _ = nvml.Close() })
	devices, err := nvml.Devices()
	if err != nil || len(devices) < 2 {
		t.Skipf("needs two NVIDIA GPUs: %d, %v", len(devices), err)
	}
	ways := map[string]int{"nccl": len(devices)}
	if len(devices) < 4 {
		ways["gloo"] = 4
	}
	for backend, nodes := range ways {
		t.Run(fmt.Sprintf("%s/%d", backend, nodes), func(t *testing.T) {
			calm, tight := map[int][]string{}, map[int][]string{}
			for k := range nodes {
				calm[k] = []string{"PYTHON_EXEC=" + python, "CUDA_VISIBLE_DEVICES=" + strconv.Itoa(k%len(devices)), "BACKEND=" + backend}
				tight[k] = calm[k]
			}
			tight[nodes-1] = append([]string{"TAKEN_MIB=3000"}, calm[nodes-1]...)
			rescuedOnGPUs(t, calm, tight)
			for _, d := range devices {
				if now, err := nvml.Devices(); err != nil || now[d.Index].Used > d.Used+512<<20 {
					t.Errorf("GPU %d: %+v in use, %d before, %v", d.Index, now, d.Used, err)
				}
			}
		})
	}
}

// rescuedOnGPUs trains with enough memory on all nodes, and with less on the last: the losses must be the
// same.
func rescuedOnGPUs(t *testing.T, calm, tight map[int][]string) {
	zeros := make([]int, len(calm))
	undisturbed := crewOf(t, len(calm), copyOf(t, filepath.Join("testdata", "nodes_gpu")), calm)
	undisturbed.exits(t, zeros...)
	want := lossesOf(undisturbed.nodes[0].said.String())
	if v := undisturbed.verdict(t); v.Code != 0 || len(v.Attempts) != 1 || len(want) != 3 {
		t.Fatalf("%+v, losses %q", v, want)
	}

	c := crewOf(t, len(tight), copyOf(t, filepath.Join("testdata", "nodes_gpu")), tight)
	c.exits(t, zeros...)
	t.Logf("node 0 says\n%s", c.nodes[0].said.String())
	v := c.verdict(t)
	first, final := v.Attempts[0], v.Attempts[len(v.Attempts)-1]
	if v.Outcome != strategy.Trained || len(v.Attempts) != 2 || first.Rank == nil || *first.Rank != len(tight)-1 || first.Cause != "cuda-oom" {
		t.Errorf("%+v", v)
	}
	if samples(first.Plan) != samples(final.Plan) {
		t.Errorf("the global batch is that of %v, and was that of %v", final.Plan, first.Plan)
	}
	got := lossesOf(c.nodes[0].said.String())
	for k := range want {
		if k >= len(got) || math.Abs(lossOf(t, got[k])/lossOf(t, want[k])-1) > 1e-4 {
			t.Errorf("losses %q, and undisturbed %q", got, want)
		}
	}
}

// lossOf reads "step N loss X".
func lossOf(t *testing.T, line string) float64 {
	t.Helper()
	loss, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
	testenv.Check(t, err)
	return loss
}
