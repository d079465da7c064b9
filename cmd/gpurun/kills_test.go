package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/testseed"
)

// endings are jobs whose ends gpurun is killed at: each writes "began" and "done" into runs.
var endings = map[string]string{
	"one process":           "echo done >>runs",
	"leaves a child behind": "sleep 20 &\necho done >>runs",
	"lives on a little":     "echo done >>runs; sleep 0.1",
}

// TestKillsAroundTheEnd kills gpurun at random times around a job's end and starts it
// again. A job whose ranks were seen to end never trains again, and one that was cut off
// before is never called trained. GPURUN_KILLS is the number of kills, GPURUN_SEED where
// their times come from.
func TestKillsAroundTheEnd(t *testing.T) {
	kills, seed := uint64(6), testseed.Of(t)
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
				after := time.Duration(chance.IntN(500)) * time.Millisecond
				if chance.IntN(2) == 0 {
					after /= 10
				}
				name := names[i%uint64(len(names))]
				ended, fault := killedAtTheEnd(t, program, endings[name], after)
				mu.Lock()
				defer mu.Unlock()
				if ended {
					seen++
				}
				if fault != "" {
					wrong++
					t.Errorf("%s, killed %s after its last word: %s", name, after, fault)
				}
			})
		}
	})
	t.Logf("%d kills, %d after the ends were journaled, wrong ends: %d", kills, seen, wrong)
}

// killedAtTheEnd runs a job, kills gpurun some time after the job is done, and starts it
// again. It reports whether the journal had the ends of the ranks by then, and what is
// wrong with the second start.
func killedAtTheEnd(t *testing.T, program, job string, after time.Duration) (ended bool, fault string) {
	t.Helper()
	dir := home(t, map[string]string{"train.sh": "#!/bin/sh\necho began >>runs\n" + job + "\n"})
	runs := func(word string) int {
		text, _ := os.ReadFile(filepath.Join(dir, "runs")) // not there before the first
		return strings.Count(string(text), word)
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
	await(t, "the job's end", func() bool { return runs("done") > 0 })
	time.Sleep(after) // the moment of the kill is what is random
	_ = first.Process.Kill()
	_ = first.Wait()
	journal, err := os.ReadFile(filepath.Join(dir, "run", "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	ended = bytes.Contains(journal, []byte(`"kind":"exited"`))
	done := runs("done")
	again := start()
	if err := again.Run(); err != nil {
		return ended, err.Error() + "\n" + said.String()
	}
	switch {
	case ended && (runs("began") > 1 || done != 1):
		return ended, "it trained again\n" + said.String()
	case !ended && runs("done") < 2:
		return ended, "it was cut off, and is called trained\n" + said.String()
	}
	return ended, ""
}

// What the ranks left behind has 22 s to finish: a gpurun that is killed meanwhile has
// written down that they ended.
func TestEndsAreJournaledBeforeChildrenAreAwaited(t *testing.T) {
	if ended, fault := killedAtTheEnd(t, build(t), endings["leaves a child behind"], 2*time.Second); !ended || fault != "" {
		t.Errorf("journaled: %v; %s", ended, fault)
	}
}
