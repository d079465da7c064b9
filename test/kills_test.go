package test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/test/testenv"
)

// endings are scripts of jobs, by how they end.
var endings = map[string]string{
	"one process":           "",
	"leaves a child behind": "[ -f go ] || sleep 20 &",
	"lives on a little":     "sleep 0.1",
}

// TestKillsAroundTheEnd kills gpurun at random times around the end of a job's rank, and starts it again. A
// rank that had ended by then, according to the kernel, never trains again. A rank that had not is never
// reported as trained. GPURUN_KILLS is the number of kills, GPURUN_SEED the seed for their times.
func TestKillsAroundTheEnd(t *testing.T) {
	t.Parallel()
	kills, seed := uint64(3), testenv.Of(t)
	if text := os.Getenv("GPURUN_KILLS"); text != "" {
		var err error
		if kills, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	program := build(t)
	var mu sync.Mutex
	wrong, seen := 0, 0
	t.Run("kills", func(t *testing.T) {
		names := []string{"leaves a child behind", "one process", "lives on a little"}
		for i := range kills {
			chance := rand.New(rand.NewPCG(seed, i))
			t.Run(strconv.FormatUint(i, 10), func(t *testing.T) {
				t.Parallel()
				name := names[i%uint64(len(names))]
				after := time.Duration(chance.IntN(int(2 * aroundTheEnd)))
				if name == "lives on a little" {
					after += 100 * time.Millisecond
				}
				ended, _, fault := killedAtTheEnd(t, program, endings[name], after)
				mu.Lock()
				defer mu.Unlock()
				if ended {
					seen++
				}
				if fault != "" {
					wrong++
					t.Errorf("%s, killed %s after its start: %s", name, after, fault)
				}
			})
		}
	})
	t.Logf("%d kills, %d after the rank had ended, wrong ends: %d", kills, seen, wrong)
}

// aroundTheEnd is how long a job works after its release, and the range of the kill's time.
const aroundTheEnd = 15 * time.Millisecond

const unseen time.Duration = -1

// killedAtTheEnd runs a job, kills gpurun some time after the job's release, and starts it again. If after is
// unseen, gpurun is suspended before the release, and killed once the rank has ended. It reports whether the
// rank had ended by then, whether the journal has that, and errors of the second start.
func killedAtTheEnd(t *testing.T, program, ending string, after time.Duration) (ended, journaled bool, fault string) {
	t.Helper()
	dir := home(t, map[string]string{"train.sh": fmt.Sprintf("#!/bin/sh\necho began $$ >>runs\nread word <go\nsleep %f\n%s\necho done >>runs\n", aroundTheEnd.Seconds(), ending)})
	gate := filepath.Join(dir, "go")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	runs := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "runs")) // not there before the first
		return string(text)
	}
	var said bytes.Buffer
	start := func() *osexec.Cmd {
		cmd := osexec.Command(program, "--run-dir", "run", "--no-python", "--nproc-per-node", "1", "./train.sh")
		cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "XDG_STATE_HOME="+dir), &said
		return cmd
	}
	first := start()
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	await(t, "the rank's pid", func() bool { n, _ := fmt.Sscanf(runs(), "began %d\n", &pid); return n == 1 })
	rank, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(rank)
	wait := 0
	if after == unseen {
		wait = int(time.Minute / time.Millisecond)
		if err := first.Process.Signal(unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil { // when the rank reads
		t.Fatal(err)
	}
	time.Sleep(after) // the random moment of the kill
	n, err := 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) { // the Go runtime interrupts its threads
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(rank), Events: unix.POLLIN}}, wait)
	}
	_ = first.Process.Kill()
	if ended = n > 0; err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	journal, err := os.ReadFile(filepath.Join(dir, "run", "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	journaled = bytes.Contains(journal, []byte(`"kind":"exited"`))
	if err := errors.Join(os.Remove(gate), os.WriteFile(gate, []byte("go\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	again := start()
	if err := again.Run(); err != nil {
		return ended, journaled, err.Error() + "\n" + said.String()
	}
	switch began, done := strings.Count(runs(), "began"), strings.Count(runs(), "done"); {
	case ended && (began > 1 || done != 1):
		return ended, journaled, "it trained again\n" + said.String()
	case done == 0:
		return ended, journaled, "it was cut off, and is called trained\n" + said.String()
	}
	return ended, journaled, ""
}

// Processes that the ranks left behind have 22 s to finish. A gpurun that is killed meanwhile has already
// journaled the ranks' ends.
func TestEndsAreJournaledBeforeChildrenAreAwaited(t *testing.T) {
	if _, journaled, fault := killedAtTheEnd(t, build(t), endings["leaves a child behind"], 2*time.Second); !journaled || fault != "" {
		t.Errorf("journaled: %v; %s", journaled, fault)
	}
}

// If gpurun is killed before it saw its ranks' ends, the guard saw them.
func TestEndsThatOnlyTheGuardSawAreKept(t *testing.T) {
	for name, ending := range endings {
		if ended, journaled, fault := killedAtTheEnd(t, build(t), ending, unseen); !ended || journaled || fault != "" {
			t.Errorf("%s: ended %v, journaled %v; %s", name, ended, journaled, fault)
		}
	}
}
