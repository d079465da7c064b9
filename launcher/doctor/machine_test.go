package doctor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/test/testenv"
)

// tmpfs mounts a file system of that many bytes, which takes root.
func tmpfs(t *testing.T, options string, flags uintptr) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		t.Skipf("mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil { // busy: something was left open
			t.Error(err)
		}
	})
	return dir
}

// limitedBy are the files of a container with limits.
func limitedBy(files map[string]string) map[string]string {
	all := map[string]string{
		"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": "9 1 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
		"sys/fs/cgroup/memory.events": "oom_kill 0\n",
	}
	for name, text := range files {
		all["sys/fs/cgroup/"+name] = text
	}
	return all
}

func TestMemory(t *testing.T) {
	wants(t, memory(t.Context(), onPaper(t, nil)), OK, "57.2 GiB available of 64.0 GiB", "")
	limited := onPaper(t, limitedBy(map[string]string{"memory.max": "2147483648", "memory.current": "1500000000"}))
	wants(t, memory(t.Context(), limited), Problem, "at most 2.0 GiB (cgroup /sys/fs/cgroup), for 1 rank", "Slurm: --mem")
	limited = onPaper(t, limitedBy(map[string]string{"memory.max": "2147483648", "memory.current": "500000000"}))
	wants(t, memory(t.Context(), limited), Warning, "for 1 rank", "Slurm: --mem")
	large := onPaper(t, nil)
	large.cards = func() cards { return cards{view: ranks.DeviceView{Count: 1, Devices: []ranks.Device{card(9, 0)}}} }
	wants(t, memory(t.Context(), large), Warning, "less than a GPU has (80.0 GiB)", "Slurm: --mem")
	large.cards = func() cards { return cards{view: ranks.DeviceView{Count: 64}} }
	wants(t, memory(t.Context(), large), Problem, "for 64 ranks", "Slurm: --mem")
	large.host = ranks.MachineAt(fstest.MapFS{})
	wants(t, memory(t.Context(), large), Problem, "meminfo", "mount /proc")
}

func TestSharedMemory(t *testing.T) {
	p := onPaper(t, nil)
	p.shm = filepath.Join(p.dir, "none", "shm")
	wants(t, sharedMemory(t.Context(), p), Problem, "cannot be used", "--shm-size")
	p.shm = p.dir // a disk
	wants(t, sharedMemory(t.Context(), p), Warning, "on a disk", "mount a tmpfs")
	p.shm = tmpfs(t, "size=64m", 0)
	wants(t, sharedMemory(t.Context(), p), Problem, "64 MiB free of 64 MiB: NCCL and data loaders end with a bus error", "--shm-size")
	p.shm = tmpfs(t, "size=512m", 0)
	wants(t, sharedMemory(t.Context(), p), Warning, "512 MiB free of 512 MiB", "--shm-size")
	p.shm = tmpfs(t, "size=2g", 0)
	wants(t, sharedMemory(t.Context(), p), OK, "2.0 GiB free", "")
	p.shm = tmpfs(t, "size=2g", unix.MS_RDONLY)
	wants(t, sharedMemory(t.Context(), p), Problem, "cannot be used", "--shm-size")
}

// No test sets the machine's clock.
func TestClock(t *testing.T) {
	wants(t, clockOf(unix.TIME_OK, unix.Timex{Maxerror: 12345}), OK, "synchronised, within 12ms", "")
	wants(t, clockOf(unix.TIME_ERROR, unix.Timex{}), Warning, "not synchronised", "timedatectl")
	wants(t, clockOf(unix.TIME_OK, unix.Timex{Status: unix.STA_UNSYNC}), Warning, "not synchronised", "timedatectl")
	if r := clock(t.Context(), nil); r.State == Problem || r.Found == "" {
		t.Errorf("this machine's: %+v", r)
	}
}

func TestRoom(t *testing.T) {
	dir := t.TempDir()
	wants(t, room(filepath.Join(dir, "to", "be", "made"), 0, "free some"), OK, dir+": ", "")
	wants(t, room(dir, 1<<60, "free some"), Warning, "that may be needed", "free some")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	file := filepath.Join(dir, "file")
	testenv.Check(t, os.WriteFile(file, nil, 0o600))
	wants(t, room(filepath.Join(file, "x"), 0, "free some"), Problem, "cannot be written: not a directory", "make it writable")
	wants(t, room(tmpfs(t, "size=100m", 0), 0, "free some"), Problem, "100 MiB free", "free some")
	wants(t, room(tmpfs(t, "size=2g", unix.MS_RDONLY), 0, "free some"), Problem, "cannot be written: read-only file system", "make it writable")
	full := tmpfs(t, "size=1m", 0)
	testenv.Check(t, os.WriteFile(filepath.Join(full, "data"), make([]byte, 1<<20), 0o600))
	wants(t, room(full, 0, "free some"), Problem, "is full: no space left on device", "free some")
}

// A folder that only others may write, as a user who is not root.
func TestRoomInAFolderOfAnotherUser(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root writes everywhere")
	}
	dir := t.TempDir()
	testenv.Check(t, os.Chmod(dir, 0o500))
	wants(t, room(dir, 0, "free some"), Problem, "permission denied", "make it writable")
}

// A mistake in a configuration, with which each run fails, is a problem also without a train.toml.
func TestConfigurations(t *testing.T) {
	before := job.SiteConfig
	job.SiteConfig = ""
	t.Cleanup(func() { job.SiteConfig = before })
	home := t.TempDir()
	file := filepath.Join(home, "gpurun", "config.toml")
	testenv.Check(t, os.Mkdir(filepath.Dir(file), 0o700))
	p := onPaper(t, nil)
	p.environ = []string{"XDG_CONFIG_HOME=" + home, "XDG_CONFIG_DIRS=" + t.TempDir()}
	wants(t, resultOf(t, p, "configurations"), OK, "none", "")
	for _, test := range []struct {
		text       string
		state      CheckStatus
		found, fix string
	}{
		{"[recovery]\nmax_attempts = 3\n", OK, "1 key", ""},
		{"[recovery]\nmax_attempt = 3\nx = 1\n", Problem, file + `:2:1: recovery.max_attempt: unknown key (did you mean "max_attempts"?); ` + file + ":3:1: recovery.x", "correct the file"},
		{"[recovery\n", Problem, file, "correct the file"},
	} {
		testenv.Check(t, os.WriteFile(file, []byte(test.text), 0o600))
		wants(t, resultOf(t, p, "configurations"), test.state, test.found, test.fix)
	}
}

// Real limits, on a child: gpurun's own are higher, since Go raises that of open files.
func TestLimits(t *testing.T) {
	if _, err := exec.LookPath("prlimit"); err != nil {
		t.Skip("needs prlimit (util-linux)")
	}
	only := examination{Only: []string{"locked memory", "open files", "processes"}}
	low := only
	low.NVMe = "/scratch"
	results := inChild(t, low, nil, "prlimit", "--nofile=512:4096", "--memlock=8388608:8388608", "--nproc=60:60")
	wants(t, results["open files"], Problem, "512: less than", "ulimit -n")
	wants(t, results["locked memory"], Warning, "8 MiB, and offload to NVMe locks its buffers", "ulimit -l")
	wants(t, results["processes"], Problem, "60 for the user: too few for 1 rank", "ulimit -u")
	results = inChild(t, only, nil, "prlimit", "--nofile=1024:4096", "--memlock=8388608:8388608", "--nproc=200:200")
	wants(t, results["open files"], Warning, "1024: several loader workers", "ulimit -n")
	wants(t, results["locked memory"], OK, "8 MiB, enough without InfiniBand", "")
	wants(t, results["processes"], Warning, "200 for the user: few for 1 rank", "ulimit -u")
	results = inChild(t, only, nil, "prlimit", "--nofile=8192:8192", "--nproc=9000:9000")
	wants(t, results["open files"], OK, "8192", "")
	wants(t, results["processes"], OK, "", "")
}

// InfiniBand and the limits of a container are files of a fixture.
func TestLimitsOfRanks(t *testing.T) {
	p := onPaper(t, map[string]string{"sys/class/infiniband/mlx5_0/node_type": "1: CA\n"})
	wants(t, resultOf(t, p, "locked memory"), OK, "unlimited", "")
	p.limits = func() (limits, error) { return limits{locked: 64 << 10}, nil }
	wants(t, resultOf(t, p, "locked memory"), Problem, "registers more with mlx5_0 (InfiniBand)", "memlock=-1")

	wants(t, resultOf(t, onPaper(t, nil), "processes"), OK, "unlimited", "")
	for used, state := range map[string]CheckStatus{"24": OK, "900": Warning, "1010": Problem} {
		p := onPaper(t, limitedBy(map[string]string{"pids.max": "1024\n", "pids.current": used + "\n"}))
		fix := "--pids-limit"
		if state == OK {
			fix = ""
		}
		wants(t, resultOf(t, p, "processes"), state, "more of 1024 (cgroup /sys/fs/cgroup)", fix)
	}
	p.limits = func() (limits, error) { return limits{}, errors.New("no cat") }
	wants(t, resultOf(t, p, "processes"), Skipped, "no cat", "")
}

func TestParseLimits(t *testing.T) {
	const text = "Limit  Soft Limit  Hard Limit  Units\nMax processes  100  200  processes\nMax open files  1024  524288  files\nMax locked memory  unlimited  unlimited  bytes\n"
	if got, err := parseLimits(text); got != (limits{unlimited, 1024, 100}) || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := parseLimits("Max processes  x y\n"); err == nil {
		t.Error("what is no list of limits is no error")
	}
}

func TestNVMe(t *testing.T) {
	p := onPaper(t, nil)
	wants(t, resultOf(t, p, "speed"), Skipped, "no folder is named", "")
	wants(t, resultOf(t, p, "libaio"), Skipped, "no folder is named", "")
	p.nvme = filepath.Join(p.dir, "none", "nvme")
	wants(t, resultOf(t, p, "speed"), Problem, "no such file", "local NVMe drive")
	p.nvme = tmpfs(t, "size=16m", 0)
	wants(t, resultOf(t, p, "speed"), Problem, "is in host memory (tmpfs)", "local NVMe drive")
	wants(t, fastEnough("/nvme", 6.5e9, 7e9), OK, "/nvme: writes 6.5 GB/s, reads 7.0 GB/s", "")
	wants(t, fastEnough("/nvme", 2.9e9, 7e9), Warning, "offload waits for less than 3.0 GB/s", "RAID 0")
	wants(t, fastEnough("/nvme", 6e9, 1e9), Warning, "reads 1.0 GB/s", "RAID 0")
}

// A disk is really written and read, around the caches, and left as it was.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	write, read, err := measure(t.Context(), dir, 8<<20)
	if errors.Is(err, unix.EINVAL) {
		t.Skipf("%s has no O_DIRECT", dir)
	}
	if err != nil || write <= 0 || read <= 0 {
		t.Errorf("writes %s, reads %s, %v", speed(write), speed(read), err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := measure(over, dir, 1<<40); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if _, _, err := measure(t.Context(), filepath.Join(dir, "none"), 32<<20); err == nil {
		t.Error("a folder that is not there is no error")
	}
}

// What the interpreter loads, and what is there to link with, differ by machine.
func TestLibaio(t *testing.T) {
	p := withTorch(t, nil)
	p.nvme = p.dir
	p.torch = func() (torchFacts, error) { return torchFacts{}, nil }
	wants(t, resultOf(t, p, "libaio"), Problem, "cannot load it", "libaio-dev")
	p.torch = func() (torchFacts, error) { return torchFacts{Libaio: true}, nil }
	if r := resultOf(t, p, "libaio"); r.State == OK { // it is installed here
		t.Skip("libaio-dev is installed")
	} else {
		wants(t, r, Warning, "libaio.h", "libaio-dev")
	}
	for _, name := range []string{"libaio.h", "libaio.so"} {
		testenv.Check(t, os.WriteFile(filepath.Join(p.dir, name), nil, 0o600))
	}
	p.env = p.env.With(map[string]string{"CPATH": p.dir, "LIBRARY_PATH": p.dir})
	wants(t, resultOf(t, p, "libaio"), OK, "can be linked with", "")
}
