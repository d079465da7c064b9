package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/test/testenv"
)

// await polls for at most three minutes: see until.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

// home returns a folder with the files of a job.
func home(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		testenv.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	return dir
}

// unshared returns unshare's command line, or skips the test if namespaces are not available.
func unshared(t *testing.T, flags ...string) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		flags = append([]string{"--user", "--map-root-user"}, flags...)
	}
	if out, err := exec.Command("unshare", append(flags, "true")...).CombinedOutput(); err != nil {
		t.Skipf("no namespaces here: %v %s", err, out)
	}
	return append([]string{"unshare"}, flags...)
}

// As the first process of a container, gpurun handles signals, for which the kernel has no default action
// there, and reaps orphans.
func TestAsTheFirstProcess(t *testing.T) {
	words := unshared(t, "--pid", "--fork", "--mount-proc", "--kill-child")
	dir := home(t, map[string]string{"train.sh": `#!/bin/sh
sh -c 'sleep 0.1 & echo $! >orphan'
while [ -e /proc/$(cat orphan) ]; do sleep 0.02; done
trap 'for p in /proc/[0-9]*; do grep -s "State:.*zombie" $p/status; done >zombies; exit 0' TERM
echo $PPID >ready.new; mv ready.new ready
while :; do sleep 0.1; done
`})
	words = append(words, build(t), "--run-dir", "run", "--no-python", "--nproc-per-node", "1", "./train.sh")
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stderr = &said
	testenv.Check(t, cmd.Start())
	await(t, "the end of the orphan", func() bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil })
	first := onlyChild(t, cmd.Process.Pid)
	testenv.Check(t, syscall.Kill(first, syscall.SIGTERM))
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
	testenv.Check(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatalf("children of %d: %q", pid, text)
	}
	return child
}

// If a disk fills up while ranks run, only their logs are lost, and the training continues, if there is space
// again in the end. Else the run directory cannot be written, which ends the run with 74 and with no rank
// left.
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
		cmd := exec.Command(words[0], words[1:]...)
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

// If a disk is full when the job has trained, gpurun reports that with exit code 74. The next start ends with
// 0 without training again.
func TestFullDiskAtTheEnd(t *testing.T) {
	words := unshared(t, "--mount")
	dir := home(t, map[string]string{
		"fill.sh": `#!/bin/sh
echo run >>count
dd if=/dev/zero of=small/filler bs=4k 2>/dev/null
exit 0
`,
		"start.sh": `mkdir -p small && mount -t tmpfs -o size=1m tmpfs small || exit 99
"$0" --run-dir small/run --no-python --nproc-per-node 1 ./fill.sh
echo "first: $?"
rm small/filler
"$0" --run-dir small/run --no-python --nproc-per-node 1 ./fill.sh
echo "second: $?"
cat small/run/verdict.json
`})
	words = append(words, "sh", "-c", ". ./start.sh", build(t))
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = dir
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() == 99 {
		t.Skipf("no tmpfs here: %s", out)
	}
	for _, want := range []string{"attempt 0: trained; this could not be recorded: ", "no space left on device", "first: 74", "second: 0", `"outcome": "trained"`} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if count, err := os.ReadFile(filepath.Join(dir, "count")); err != nil || string(count) != "run\n" {
		t.Errorf("the job ran %q, %v", count, err)
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
	testenv.Check(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	testenv.Check(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	testenv.Check(t, err)
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

// On a terminal, a single rank gets one too. It always has the same size, and the rank reads typed input.
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
	cmd := exec.Command(build(t), "--run-dir", "run", "--nproc-per-node", "1", "train.py")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+testenv.Python(t))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	testenv.Check(t, cmd.Start())
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

// In the background of a terminal, a rank does not read input for the shell, and gpurun's output does not
// stop it even if the terminal forbids background output.
func TestInTheBackgroundOfATerminal(t *testing.T) {
	_, slave := openTerminal(t)
	dir := home(t, map[string]string{
		"train.py": "import sys\nwith open('typed', 'w') as f: f.write(repr(sys.stdin.read()))\n",
		"shell.py": `
import os, signal, subprocess, sys, time
os.system("stty tostop")
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: (os.setpgid(0, 0), signal.signal(signal.SIGTTOU, signal.SIG_DFL)))
end = time.time() + 180
while time.time() < end and job.poll() is None:
    time.sleep(0.05)
if job.poll() is None:
    job.kill()
    sys.exit(9)
sys.exit(job.returncode)
`})
	cmd := exec.Command(testenv.Python(t), "shell.py", build(t), "--run-dir", "run", "--nproc-per-node", "1", "train.py")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+testenv.Python(t))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Run(); err != nil {
		t.Errorf("gpurun: %v", err)
	}
	if typed, err := os.ReadFile(filepath.Join(dir, "typed")); err != nil || string(typed) != "''" {
		t.Errorf("the rank read %s, %v", typed, err)
	}
}
