package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

// await asks again and again, for at most half a minute.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

// home is a folder with the files of a job in it.
func home(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// unshared is unshare's command line, or skips the test where namespaces cannot
// be had.
func unshared(t *testing.T, flags ...string) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		flags = append([]string{"--user", "--map-root-user"}, flags...)
	}
	if out, err := osexec.Command("unshare", append(flags, "true")...).CombinedOutput(); err != nil {
		t.Skipf("no namespaces here: %v %s", err, out)
	}
	return append([]string{"unshare"}, flags...)
}

// As the first process of a container, gpurun heeds signals, whose default action
// the kernel leaves out there, and reaps what is orphaned.
func TestAsTheFirstProcess(t *testing.T) {
	words := unshared(t, "--pid", "--fork", "--mount-proc", "--kill-child")
	dir := home(t, map[string]string{"train.sh": `#!/bin/sh
sh -c 'sleep 0.1 & exit 0'
trap 'for p in /proc/[0-9]*; do grep -s "State:.*zombie" $p/status; done >zombies; exit 0' TERM
echo $PPID >ready.new; mv ready.new ready
while :; do sleep 0.1; done
`})
	words = append(words, build(t), "--run-dir", "run", "--no-python", "--nproc-per-node", "1", "./train.sh")
	cmd := osexec.Command(words[0], words[1:]...)
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the rank", func() bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil })
	time.Sleep(200 * time.Millisecond) // the orphan ends meanwhile
	first := onlyChild(t, cmd.Process.Pid)
	if err := syscall.Kill(first, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d\n%s", code, said.String())
	}
	if zombies, err := os.ReadFile(filepath.Join(dir, "zombies")); err != nil || len(zombies) > 0 {
		t.Errorf("zombies %q, %v", zombies, err)
	}
}

func onlyChild(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatalf("children of %d: %q", pid, text)
	}
	return child
}

// A disk that fills up while ranks run costs their logs and not the training,
// where there is room again in the end; else the run directory cannot be written,
// which ends the run with 74 and with no rank left.
func TestFullDisk(t *testing.T) {
	words := unshared(t, "--mount")
	dir := home(t, map[string]string{
		"fill.sh": `#!/bin/sh
echo $$ >rank.pid
dd if=/dev/zero of=small/filler bs=4k 2>/dev/null
i=0; while [ $i -lt 300 ]; do echo "a line that finds no room: $i"; i=$((i + 1)); done
echo went-on >went-on
[ "$1" = keep ] || rm small/filler
`,
		"start.sh": `mkdir -p small && mount -t tmpfs -o size=1m tmpfs small || exit 99
exec "$0" --run-dir small/run --no-python --nproc-per-node 1 ./fill.sh "$1"
`})
	binary := build(t)
	for name, want := range map[string]int{"keep": 74, "remove": 0} {
		words := append(words, "sh", "-c", `. ./start.sh`, binary, name)
		cmd := osexec.Command(words[0], words[1:]...)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code == 99 {
			t.Skipf("no tmpfs here: %s", out)
		} else if code != want {
			t.Errorf("%s: exit code %d, want %d\n%s", name, code, want, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "went-on")); err != nil {
			t.Errorf("%s: the rank did not go on: %v", name, err)
		}
		if want == 74 && !bytes.Contains(out, []byte("no space left on device")) {
			t.Errorf("%s: said %s", name, out)
		}
		pid, _ := os.ReadFile(filepath.Join(dir, "rank.pid"))
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
			t.Errorf("%s: rank %s is still there", name, pid)
		}
		os.Remove(filepath.Join(dir, "went-on"))
	}
}

// openTerminal opens a pseudo-terminal of 40 columns.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	resize(t, master, 40)
	return master, slave
}

func resize(t *testing.T, master *os.File, columns uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: columns}); err != nil {
		t.Fatal(err)
	}
}

// On a terminal a single rank has one too, of the same size also after it was
// changed, and reads what is typed.
func TestOnATerminal(t *testing.T) {
	master, slave := openTerminal(t)
	dir := home(t, map[string]string{"train.py": `
import os, signal, sys
def told(*_):
    with open("resized", "w") as f: f.write(str(os.get_terminal_size(1).columns))
signal.signal(signal.SIGWINCH, told)
with open("start.new", "w") as f: f.write("%d %d %d" % (sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(1).columns))
os.rename("start.new", "start")
with open("typed", "w") as f: f.write(sys.stdin.readline())
`})
	cmd := osexec.Command(build(t), "--run-dir", "run", "--nproc-per-node", "1", "train.py")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+python(t))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	content := func(name string) string { text, _ := os.ReadFile(filepath.Join(dir, name)); return string(text) }
	await(t, "the rank", func() bool { return content("start") != "" })
	if got := content("start"); got != "1 1 40" {
		t.Errorf("stdout and stderr are terminals, columns: %s", got)
	}
	resize(t, master, 77)
	await(t, "the new size", func() bool { return content("resized") == "77" })
	if _, err := master.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("gpurun: %v", err)
	}
	if got := content("typed"); got != "hello\n" {
		t.Errorf("typed %q", got)
	}
}

// In the background of a terminal, a rank does not take what is typed for the
// shell, and gpurun's words do not stop it where the terminal forbids them.
func TestInTheBackgroundOfATerminal(t *testing.T) {
	_, slave := openTerminal(t)
	dir := home(t, map[string]string{
		"train.py": "import sys\nwith open('typed', 'w') as f: f.write(repr(sys.stdin.read()))\n",
		"shell.py": `
import os, signal, subprocess, sys, time
os.system("stty tostop")
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: (os.setpgid(0, 0), signal.signal(signal.SIGTTOU, signal.SIG_DFL)))
end = time.time() + 30
while time.time() < end and job.poll() is None:
    time.sleep(0.05)
if job.poll() is None:
    job.kill()
    sys.exit(9)
sys.exit(job.returncode)
`})
	cmd := osexec.Command(python(t), "shell.py", build(t), "--run-dir", "run", "--nproc-per-node", "1", "train.py")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+python(t))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Run(); err != nil {
		t.Errorf("gpurun: %v", err)
	}
	if typed, err := os.ReadFile(filepath.Join(dir, "typed")); err != nil || string(typed) != "''" {
		t.Errorf("the rank read %s, %v", typed, err)
	}
}

// noticed collects the notices of a run directory's journal.
func noticed(t *testing.T, dir string) []string {
	t.Helper()
	events, err := journal.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, e := range events {
		if n, ok := e.(launcher.Noticed); ok {
			texts = append(texts, n.Text)
		}
	}
	return texts
}

// A rank that ends well while others go on is told of, and the job is let go on.
func TestARankThatEndsEarlyIsToldOf(t *testing.T) {
	dir := home(t, map[string]string{"train.sh": "#!/bin/sh\n[ $RANK = 1 ] || until [ -e go-on ]; do sleep 0.02; done\n"})
	t.Chdir(dir)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	j, _, err := readJob(t.Context(), []string{"--no-python", "--nproc-per-node", "2", "./train.sh"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := prepare(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	ctx, desk := listen(t.Context())
	defer signal.Reset()
	defer desk.close()
	store, _, err := journal.Open(filepath.Join(dir, "run"), nil)
	if err != nil {
		t.Fatal(err)
	}
	ledger := openLedger(store)
	n := &node{p: p, run: "run", token: t.Name(), console: streams{in: null, out: null, err: null}, ledger: ledger, desk: desk, grace: time.Second, early: 20 * time.Millisecond}
	done := make(chan error, 1)
	go func() {
		v, err := start(ctx, p, launcher.State{Next: launcher.Next{Plan: p.Plan()}}, newWorld(p, time.Now(), desk, ledger.note), n)
		if err == nil && v.Outcome != strategy.Trained {
			err = errors.New(v.Reason)
		}
		done <- err
	}()
	want := "warning: rank 1 ended with exit code 0 20ms ago, and 1 of 2 go on; if they wait for it in a collective, the job hangs"
	await(t, "the notice", func() bool { n := noticed(t, filepath.Join(dir, "run")); return len(n) == 1 && n[0] == want })
	if err := os.WriteFile("go-on", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	ledger.close()
}

// devices play package gpu.
type devices struct {
	facts    []strategy.Fact
	baseline []gpu.Device
}

func (d *devices) Settle(_ context.Context, baseline []gpu.Device, _ time.Duration) []strategy.Fact {
	d.baseline = baseline
	return d.facts
}

// Memory that somebody else holds is told with its amount and holders, and goes
// to the next attempt as evidence.
func TestATenantIsToldOf(t *testing.T) {
	held := strategy.Fact{Rank: -1, Source: "nvml", Tenant: &strategy.Tenant{Device: "cuda:1", Bytes: 12 << 30, PIDs: []int{1 << 30}}}
	d := &devices{facts: []strategy.Fact{held}}
	var notes []string
	w := &world{devices: d, baseline: []gpu.Device{{Used: 7}}, note: func(text string) { notes = append(notes, text) }}
	got := [][]strategy.Fact{w.before(t.Context())}
	if d.baseline[0].Used != 0 || w.baseline[0].Used != 7 {
		t.Errorf("before attempt 0, all that is held counts: %+v, %+v", d.baseline, w.baseline)
	}
	got = append(got, w.Settle(t.Context(), time.Second))
	if diff := cmp.Diff([][]strategy.Fact{{held}, {held}}, got); diff != "" || d.baseline[0].Used != 7 {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	want := "warning: 12.0 GiB of cuda:1 are in use, and not by this run (process 1073741824)"
	if diff := cmp.Diff([]string{want, want}, notes); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
}

func TestWithErrorCode(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		code int
		want string
	}{
		"an object":      {`{"message":{"message":"KeyError: 1","extraInfo":{"timestamp":"17"}},"more":1}`, -9, `{"message":{"errorCode":-9,"extraInfo":{"timestamp":"17"},"message":"KeyError: 1"},"more":1}`},
		"the older form": {`{"message":"KeyError: 1","timestamp":17}`, 1, `{"message":"KeyError: 1","timestamp":17}`},
		"no code":        {`{"message":{"message":"x"}}`, 0, `{"message":{"message":"x"}}`},
		"null":           {`{"message":null}`, 1, `{"message":null}`},
		"no JSON":        {`{"mess`, 1, `{"mess`},
	} {
		got := withErrorCode([]byte(test.text), test.code)
		if string(got) != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if json.Valid([]byte(test.text)) && !json.Valid(got) {
			t.Errorf("%s: no JSON any more", name)
		}
	}
}

// Short of processes is a reason to come back later, a missing program is not.
func TestStartError(t *testing.T) {
	for err, want := range map[error]int{
		&os.PathError{Op: "exec", Path: "x", Err: unix.ENOENT}:       strategy.CodeUsage,
		fmt.Errorf("start rank 3: %w", unix.EAGAIN):                  strategy.CodeRetry,
		fmt.Errorf("ask: %w", &launcher.Signal{Number: unix.SIGINT}): 0,
	} {
		var c *coded
		got := 0
		if errors.As(startError(err), &c) {
			got = c.code
		}
		if got != want {
			t.Errorf("%v: code %d, want %d", err, got, want)
		}
	}
}
