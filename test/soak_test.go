package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/test/testenv"
)

// soakTrainer has a loader worker, one in its own session without an environment,
// and dies with it or leaves it behind.
const soakTrainer = `#!/bin/sh
sleep 1000 &
env -i setsid sleep 1000 &
echo "step $TORCHELASTIC_RESTART_COUNT"
echo $$ >rank$RANK.new
mv rank$RANK.new "rank$RANK.$TORCHELASTIC_RESTART_COUNT"
sleep 1000
`

// usage is the resources of a process at one moment.
type usage struct{ descriptors, threads, goroutines, memory, children int }

// TestSoak makes GPURUN_SOAK attempts in one run, each ended by a random kill: of a rank, of both, of a
// rank's group, or first of the guard. gpurun's resources must not grow, and nothing may be left in the end.
func TestSoak(t *testing.T) {
	attempts, err := strconv.Atoi(os.Getenv("GPURUN_SOAK"))
	if err != nil {
		t.Skip("GPURUN_SOAK is not a number of attempts; make soak sets it")
	}
	dir := home(t, map[string]string{"train.sh": soakTrainer})
	cmd := exec.Command(build(t), "--json", "--run-dir", "run", "--max-restarts", strconv.Itoa(attempts-1), "--shutdown-timeout", "5",
		"--no-python", "--nproc-per-node", "2", "./train.sh")
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	testenv.Check(t, err)
	testenv.Check(t, cmd.Start())
	events := json.NewDecoder(bufio.NewReader(out))
	chance := rand.New(rand.NewPCG(testenv.Of(t), 0))
	var warm, last usage
	var window []usage
	n := 0
	for events.More() {
		var e struct {
			Kind  string
			Event struct{ N int }
		}
		testenv.Check(t, events.Decode(&e))
		if e.Kind != "started" {
			continue
		}
		n++
		ranks := awaitRanks(t, dir, e.Event.N)
		window = append(window, measure(t, dir, cmd.Process.Pid))
		window = window[max(len(window)-10, 0):] // some files are open for a moment
		last = least(window)
		if n == attempts/10 {
			warm = last
		}
		if n%max(attempts/10, 1) == 0 {
			t.Logf("after %d attempts %+v", n, last)
		}
		killAtRandom(t, chance, cmd.Process.Pid, ranks)
	}
	_ = cmd.Wait() // it fails: the job never trained
	if code := cmd.ProcessState.ExitCode(); code != 1 || n != attempts {
		t.Errorf("exit code %d after %d attempts, want 1 after %d", code, n, attempts)
	}
	if last.descriptors > warm.descriptors+2 || last.threads > warm.threads+8 || last.goroutines > warm.goroutines+8 || last.children > warm.children {
		t.Errorf("grown from %+v to %+v", warm, last)
	}
	// A run keeps what decisions and the verdict read of each attempt, in KiB.
	const mostKept, noise = 4, 8 << 10
	if limit := warm.memory + mostKept*attempts + noise; last.memory > limit {
		t.Errorf("memory grew from %d to %d KiB, more than %d", warm.memory, last.memory, limit)
	}
	// Nor may what it writes: a long run is read again at each start.
	const mostJournal, mostReport = 4 << 10, 400_000
	for name, most := range map[string]int64{"journal.jsonl": mostJournal * int64(attempts), "report.html": mostReport} {
		info, err := os.Stat(filepath.Join(dir, "run", name))
		testenv.Check(t, err)
		t.Logf("%s: %d bytes, %d for each attempt", name, info.Size(), info.Size()/int64(attempts))
		if info.Size() > most {
			t.Errorf("%s has %d bytes after %d attempts, want at most %d", name, info.Size(), attempts, most)
		}
	}
	if left := processesIn(dir); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// least has the least of each figure.
func least(all []usage) usage {
	u := all[0]
	for _, other := range all {
		u = usage{min(u.descriptors, other.descriptors), min(u.threads, other.threads), min(u.goroutines, other.goroutines), min(u.memory, other.memory), min(u.children, other.children)}
	}
	return u
}

func awaitRanks(t *testing.T, dir string, attempt int) (pids []int) {
	t.Helper()
	for rank := range 2 {
		path := filepath.Join(dir, fmt.Sprintf("rank%d.%d", rank, attempt))
		await(t, path, func() bool { _, err := os.Stat(path); return err == nil })
		text, err := os.ReadFile(path)
		testenv.Check(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		testenv.Check(t, err)
		pids = append(pids, pid)
	}
	return pids
}

func killAtRandom(t *testing.T, chance *rand.Rand, gpurun int, ranks []int) {
	t.Helper()
	signals := []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS}
	signal := signals[chance.IntN(len(signals))]
	switch chance.IntN(8) {
	case 0: // one rank, whose peer has to be stopped
		_ = syscall.Kill(ranks[chance.IntN(2)], signal)
		return
	case 1: // with its group, so that the worker is gone too
		_ = syscall.Kill(-ranks[0], signal)
	case 2: // the guard first
		below, _ := system.ChildProcesses(gpurun)
		for _, child := range below {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child))
			if strings.HasPrefix(string(name), "grd-") {
				_ = syscall.Kill(child, syscall.SIGKILL)
			}
		}
		time.Sleep(time.Duration(chance.IntN(50)) * time.Millisecond)
	}
	for _, pid := range ranks { // no error: it may be gone already
		_ = syscall.Kill(pid, signal)
	}
}

// measure reads gpurun's goroutines through SIGQUIT, and the rest from /proc.
func measure(t *testing.T, dir string, pid int) (u usage) {
	t.Helper()
	stacks := filepath.Join(dir, "run", "stacks.txt")
	os.Remove(stacks)
	testenv.Check(t, syscall.Kill(pid, syscall.SIGQUIT))
	await(t, stacks, func() bool {
		text, _ := os.ReadFile(stacks)
		n, err := fmt.Sscanf(string(text), "%d goroutines", &u.goroutines)
		return n == 1 && err == nil
	})
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	children, _ := system.ChildProcesses(pid)
	u.descriptors, u.threads, u.children = len(fds), len(threads), len(children)
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if n, err := fmt.Sscanf(line, "VmRSS: %d kB", &u.memory); n == 1 && err == nil {
			break
		}
	}
	return u
}

// processesIn lists the processes whose working directory is the test's. It finds them despite a cleared
// environment or another session.
func processesIn(dir string) (left []string) {
	entries, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, entry := range entries {
		if at, err := os.Readlink(entry); err == nil && at == dir {
			words, _ := os.ReadFile(filepath.Join(filepath.Dir(entry), "cmdline"))
			if len(words) > 0 {
				left = append(left, strings.ReplaceAll(string(words), "\x00", " "))
			}
		}
	}
	return left
}
