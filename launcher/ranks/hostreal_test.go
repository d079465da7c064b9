package ranks

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// role selects what a child of the test, which is this same program, does.
const role = "GPURUN_HOST_TEST_ROLE"

// watch runs in a small control group: it opens the counters, lets a glutton be
// killed and prints the rise.
func watch() {
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil { // once it is in the group
		fmt.Println("error:", err)
		os.Exit(1)
	}
	counters := ThisMachine().OpenCounters()
	glutton := exec.Command("/proc/self/exe")
	glutton.Env = append(os.Environ(), role+"=glutton")
	err := glutton.Run()
	fmt.Println("glutton:", err)
	if memory, err := ThisMachine().Memory(); err == nil {
		fmt.Println("limit:", memory.Limit)
	}
	for _, f := range counters.Rise() {
		if strategy.As[*strategy.Kills](f) != nil {
			fmt.Println("kills:", strategy.As[*strategy.Kills](f).Count, strategy.As[*strategy.Kills](f).Limit, strategy.As[*strategy.Kills](f).Peak, strategy.As[*strategy.Kills](f).Group)
		}
	}
}

// devour takes twice what the group allows.
func devour() {
	for range 128 {
		b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			os.Exit(3)
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
}

const allowed = 64 << 20

// childGroup makes a group of 64 MiB below ours, or skips where that is not to be
// had.
func childGroup(t *testing.T) string {
	t.Helper()
	levels := ThisMachine().groups()
	if len(levels) == 0 {
		t.Skip("no control group accounts for memory here")
	}
	own := levels[0]
	if os.Geteuid() != 0 {
		t.Skip("making a control group takes root")
	}
	dir := filepath.Join(parentGroup(own), fmt.Sprintf("gpurun-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("the control group above cannot be written: %v", err)
	}
	t.Cleanup(func() {
		if err := removeGroup(dir); err != nil {
			t.Errorf("remove the control group: %v", err)
		}
	})
	for _, swap := range []string{"memory.swappiness", "memory.swap.max"} {
		if _, err := os.Stat(filepath.Join(dir, swap)); err == nil {
			write(t, filepath.Join(dir, swap), "0")
		}
	}
	limit := filepath.Join(dir, own.files.limit)
	if _, err := os.Stat(limit); err != nil {
		t.Skipf("the memory controller is not handed to child groups: %v", err)
	}
	write(t, limit, strconv.Itoa(allowed))
	return dir
}

// parentGroup is the nearest level whose children can have limits: our own under
// version 1, one without processes that hands the controller on under version 2.
func parentGroup(own cgroup) string {
	if !own.files.nested {
		return own.name()
	}
	for dir := own.name(); ; dir = filepath.Dir(dir) {
		handed, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err != nil {
			return own.name()
		}
		if slices.Contains(strings.Fields(string(handed)), "memory") {
			return dir
		}
	}
}

// removeGroup waits for the kernel to let go of the group's last process.
func removeGroup(dir string) error {
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := syscall.Rmdir(dir)
		if err != syscall.EBUSY || time.Now().After(deadline) {
			return err
		}
		time.Sleep(5 * time.Millisecond) // the kernel announces no emptied v1 group
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Skipf("the control group cannot be set up: %v", err)
	}
}

// The kernel really kills, and the rise is reported with the group's limit.
func TestRiseReal(t *testing.T) {
	dir := childGroup(t)
	self, err := os.Executable()
	testenv.Check(t, err)
	watcher := exec.CommandContext(t.Context(), self)
	watcher.Env = append(os.Environ(), role+"=watcher")
	watcher.Stderr = os.Stderr
	stdin, err := watcher.StdinPipe()
	testenv.Check(t, err)
	stdout, err := watcher.StdoutPipe()
	testenv.Check(t, err)
	testenv.Check(t, watcher.Start())
	joined := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(watcher.Process.Pid)), 0o644)
	if joined == nil {
		_, err = stdin.Write([]byte{'\n'})
	}
	stdin.Close()
	said := map[string]string{}
	for lines := bufio.NewScanner(io.TeeReader(stdout, t.Output())); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ": ")
		if _, again := said[name]; !again { // the innermost level comes first
			said[name] = rest
		}
	}
	waited := watcher.Wait()
	if joined != nil {
		t.Skipf("a process cannot be moved to the control group: %v", joined)
	}
	if err != nil || waited != nil {
		t.Fatalf("the watcher: %v, %v", err, waited)
	}
	if said["glutton"] != "signal: killed" {
		t.Errorf("the glutton ended with %q", said["glutton"])
	}
	if said["limit"] != strconv.Itoa(allowed) {
		t.Errorf("the limit is %q", said["limit"])
	}
	var count, limit, peak int64
	var group string
	if _, err := fmt.Sscan(said["kills"], &count, &limit, &peak, &group); err != nil {
		t.Fatalf("the rise %q: %v", said["kills"], err)
	}
	if count != 1 || limit != allowed || group != dir {
		t.Errorf("%d kills in %s with limit %d, want 1 in %s with %d", count, group, limit, dir, allowed)
	}
	// Usage may exceed the limit for a moment, and the peak with it: by one page,
	// where it was seen.
	if peak < allowed*9/10 || peak > allowed*11/10 {
		t.Errorf("the peak is %d, want about %d", peak, allowed)
	}
}

func TestMemoryReal(t *testing.T) {
	m, err := ThisMachine().Memory()
	testenv.Check(t, err)
	var info unix.Sysinfo_t
	testenv.Check(t, unix.Sysinfo(&info))
	if total := int64(info.Totalram) * int64(info.Unit); m.Total != total {
		t.Errorf("total %d, the kernel says %d", m.Total, total)
	}
	if m.Available <= 0 || m.Available > m.Total {
		t.Errorf("%d of %d are available", m.Available, m.Total)
	}
	if m.Limit > 0 && m.Group == "" {
		t.Errorf("limit %d without a group", m.Limit)
	}
}

// This machine's own levels are found, and their counters read.
func TestGroupsReal(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup"); err != nil {
		t.Skipf("no control groups here: %v", err)
	}
	levels := ThisMachine().groups()
	if len(levels) == 0 {
		t.Skip("no control group accounts for memory here")
	}
	for _, g := range levels {
		if _, ok := g.working(); !ok {
			t.Errorf("%s: its usage cannot be read", g.name())
		}
		if n, ok := g.kills(); !ok || n < 0 {
			t.Errorf("%s: %d kills, %v", g.name(), n, ok)
		}
	}
}

func TestDiskReal(t *testing.T) {
	dir := t.TempDir()
	now, err := DiskAt(dir)
	testenv.Check(t, err)
	if now.Total <= 0 || now.Free < 0 || now.Free > now.Total {
		t.Errorf("%+v", now)
	}
	later, err := DiskAt(filepath.Join(dir, "not", "yet", "there"))
	if err != nil || later.Total != now.Total {
		t.Errorf("a folder to be made: %+v, %v, want as %+v", later, err, now)
	}
	free, err := FreeSpace(dir)
	if err != nil || free <= 0 {
		t.Errorf("%d bytes free, %v", free, err)
	}
	file := filepath.Join(dir, "file")
	testenv.Check(t, os.WriteFile(file, nil, 0o644))
	if _, err := FreeSpace(filepath.Join(file, "below")); err == nil {
		t.Error("a path below a file has a disk")
	}
}

func TestShmReal(t *testing.T) {
	if _, err := os.Stat("/dev/shm"); err != nil {
		t.Skipf("no shared memory here: %v", err)
	}
	shm, err := DiskAt("/dev/shm")
	if err != nil || shm.Total <= 0 || !shm.RAM {
		t.Errorf("%+v, %v, want a file system in RAM", shm, err)
	}
}
