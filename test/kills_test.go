package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/launcher/show"
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
	testenv.Check(t, unix.Mkfifo(gate, 0o600))
	runs := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "runs")) // not there before the first
		return string(text)
	}
	var said bytes.Buffer
	start := func() *exec.Cmd {
		cmd := exec.Command(program, "--run-dir", "run", "--no-python", "--nproc-per-node", "1", "./train.sh")
		cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "XDG_STATE_HOME="+dir), &said
		return cmd
	}
	first := start()
	testenv.Check(t, first.Start())
	var pid int
	await(t, "the rank's pid", func() bool { n, _ := fmt.Sscanf(runs(), "began %d\n", &pid); return n == 1 })
	rank, err := unix.PidfdOpen(pid, 0)
	testenv.Check(t, err)
	defer unix.Close(rank)
	wait := 0
	if after == unseen {
		wait = int(time.Minute / time.Millisecond)
		testenv.Check(t, first.Process.Signal(unix.SIGSTOP))
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
	testenv.Check(t, err)
	journaled = bytes.Contains(journal, []byte(`"kind":"exited"`))
	testenv.Check(t, errors.Join(os.Remove(gate), os.WriteFile(gate, []byte("go\n"), 0o600)))
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

// A rank that SIGKILL does not end, since it waits in the kernel, ends the run with 75, and its pid is
// reported. A frozen control group of version 1 simulates a driver that does not return: both leave the
// process in state D.
func TestAnUnkillableRankEndsTheRun(t *testing.T) {
	t.Parallel()
	group := filepath.Join("/sys/fs/cgroup/freezer", "gpurun-command-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("no freezer of control groups version 1 to write to: %v", err)
	}
	t.Cleanup(func() {
		put(t, filepath.Join(group, "freezer.state"), "THAWED")
		await(t, "the control group to empty", func() bool { return os.Remove(group) == nil })
	})
	dir := home(t, map[string]string{"train.sh": `#!/bin/sh
echo $$ >pid$RANK.new; mv pid$RANK.new pid$RANK
[ $RANK = 1 ] && exec sleep 1000
until [ -e frozen ]; do sleep 0.02; done
echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB." >&2
exit 1
`})
	cmd := exec.Command(build(t), "--run-dir", "run", "--no-python", "--nproc-per-node", "2", "./train.sh")
	cmd.Dir = dir
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	testenv.Check(t, cmd.Start())
	await(t, "rank 1", func() bool { _, err := os.Stat(filepath.Join(dir, "pid1")); return err == nil })
	text, err := os.ReadFile(filepath.Join(dir, "pid1"))
	testenv.Check(t, err)
	pid := strings.TrimSpace(string(text))
	put(t, filepath.Join(group, "cgroup.procs"), pid)
	put(t, filepath.Join(group, "freezer.state"), "FROZEN")
	await(t, "rank 1 to freeze", func() bool {
		state, err := os.ReadFile(filepath.Join(group, "freezer.state"))
		return err == nil && string(state) == "FROZEN\n"
	})
	put(t, filepath.Join(dir, "frozen"), "")
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 75 {
		t.Fatalf("%v\n%s", err, out.String())
	}
	var v launcher.Verdict
	text, err = os.ReadFile(filepath.Join(dir, "run", "verdict.json"))
	testenv.Check(t, err)
	testenv.Check(t, json.Unmarshal(text, &v))
	want := fmt.Sprintf("process %s waits in", pid)
	if v.Outcome != "retry" || !strings.Contains(v.Reason, want) || !strings.Contains(out.String(), want) {
		t.Errorf("outcome %q, reason %q, without %q; printed:\n%s", v.Outcome, v.Reason, want, out.String())
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	testenv.Check(t, os.WriteFile(path, []byte(text), 0o644))
}

const noLocksTrainer = `case "$*" in *"--bs 8"*)
	echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.' >&2
	exit 1
esac
echo "step 1"
touch trains
until [ -e go ]; do sleep 0.1; done
`

// TestFileSystemWithoutLocks: where flock fails, as on NFS without locks, a job is rescued, a second gpurun is refused,
// the list shows the run, and what fitted is remembered.
func TestFileSystemWithoutLocks(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	t.Parallel()
	dir := home(t, map[string]string{"train.sh": noLocksTrainer, "nolocks.py": withoutLocks, "train.toml": `[job]
program = ["sh", "train.sh", "--bs", "8"]
[launch]
nproc_per_node = 2
[knobs]
micro_batch_size = { arg = "--bs" }
gradient_accumulation_steps = { arg = "--accumulate", default = 1 }
`})
	gpurun := func(args ...string) (*exec.Cmd, *strings.Builder) {
		cmd := exec.Command(python, append([]string{"nolocks.py", binary(t)}, args...)...)
		said := &strings.Builder{}
		cmd.Dir, cmd.Stderr = dir, said
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(dir, "state"))
		return cmd, said
	}
	first, said := gpurun("--run-dir", "run", "train.toml")
	testenv.Check(t, first.Start())
	await(t, "the rescued attempt", func() bool { _, err := os.Stat(filepath.Join(dir, "trains")); return err == nil })
	second, refused := gpurun("--run-dir", "run", "train.toml")
	_ = second.Run() // its code is checked
	if second.ProcessState.ExitCode() != 2 || !strings.Contains(refused.String(), "is in use: another gpurun runs in it") {
		t.Errorf("a second gpurun: %d\n%s", second.ProcessState.ExitCode(), refused.String())
	}
	list, _ := gpurun("runs", "--json", "run")
	var all []show.Entry
	if text, err := list.Output(); err != nil || json.Unmarshal(text, &all) != nil || len(all) != 1 || !all[0].Locked || all[0].Attempts != 2 {
		t.Errorf("the list: %v %s", err, text)
	}
	testenv.Check(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	if err := first.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	again, said := gpurun("train.toml")
	if err := again.Run(); err != nil || !strings.Contains(said.String(), "micro batch 8→4") || strings.Contains(said.String(), "out of memory on rank") {
		t.Errorf("the next run does not begin with the plan that fitted: %v\n%s", err, said.String())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "run", "lock.holder*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// Missing resources of a machine are named in the message, with the right exit code. Go itself would end with
// a stack trace and 2, and with a foreign /proc gpurun would wait forever.
func TestALimitedMachineIsNamed(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("unshare")
	root := os.Geteuid() == 0 && err == nil
	for name, test := range map[string]struct {
		before string // shell words before gpurun
		root   bool
		cgo    bool
		nobody bool // run as a user to whom limits apply
		code   int
		says   string
	}{
		"no address space":     {before: "ulimit -v 700000; exec", cgo: true, code: 2, says: "error: the address space is limited (ulimit -v, RLIMIT_AS)"},
		"little address space": {before: "ulimit -v 2000000; exec", code: 2, says: "error: the address space is limited (ulimit -v, RLIMIT_AS) to 1953 MiB"},
		"few processes":        {before: "exec prlimit --nproc=6", cgo: true, root: true, nobody: true, code: 2, says: "error: the number of processes is limited (ulimit -u, RLIMIT_NPROC)"},
		"a read-only /proc":    {before: "mount -o remount,bind,ro /proc 2>/dev/null || { mount --bind /proc /proc && mount -o remount,bind,ro /proc; }; exec", root: true, code: 3, says: "ended with exit code 3"},
		"a foreign /proc":      {before: "exec", root: true, code: 2, says: "error: /proc does not show this process: it is of another namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.cgo && !ranks.HasNVML() {
				t.Skip("built without cgo: nothing can be said before Go starts")
			}
			if test.root && !root {
				t.Skip("namespaces and other users need root, and unshare")
			}
			dir := home(t, map[string]string{"train.sh": "#!/bin/sh\nexit 3\n"})
			cmd := exec.Command("sh", "-c", test.before+` "$0" --propagate-exit-code --run-dir run --no-python ./train.sh`, build(t))
			if strings.Contains(name, "/proc") {
				cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
			}
			if name == "a foreign /proc" {
				cmd = exec.Command(sh, append([]string{"--pid", "--fork"}, cmd.Args...)...)
			}
			if test.nobody {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
				visible(t, dir, cmd.Args[len(cmd.Args)-1])
			}
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != test.code || !strings.Contains(string(out), test.says) {
				t.Errorf("%v, want %d and %q\n%s", err, test.code, test.says, out)
			}
		})
	}
}

// visible makes paths accessible to other users. It skips the test if they are in a private folder.
func visible(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		for ; path != "/"; path = filepath.Dir(path) {
			info, err := os.Stat(path)
			testenv.Check(t, err)
			if strings.HasPrefix(path, os.TempDir()+"/") {
				err = os.Chmod(path, info.Mode().Perm()|0o055)
			} else if info.Mode().Perm()&0o005 != 0o005 {
				t.Skipf("other users cannot reach %s", path)
			}
			testenv.Check(t, err)
		}
	}
}
