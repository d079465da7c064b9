package ranks

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// at is a machine whose /proc and /sys lie in root.
func at(root fs.FS) Machine { return Machine{root} }

// fixture is a machine made of the files of an archive. Kernels of both versions
// cannot be had on one machine, nor a foreign scheduler's limits.
func fixture(t *testing.T, name string) fstest.MapFS {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	testenv.Check(t, err)
	root := fstest.MapFS{}
	for _, f := range archive.Files {
		root[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	return root
}

func TestMemory(t *testing.T) {
	const total, free = 65536000 << 10, 60000000 << 10
	for name, want := range map[string]RAM{
		// The job's level leaves 200 MiB - (100 - 10) MiB; the step's 200 - 90.
		"slurm-v1": {
			Total: total, Available: 110 << 20, Limit: 200 << 20,
			Group: "/sys/fs/cgroup/memory/slurm/uid_0/job_7/step_0",
		},
		"kubernetes-v2": {
			Total: total, Available: 1<<30 - (512-100)<<20, Limit: 1 << 30,
			Group: "/sys/fs/cgroup",
		},
		// The outer level is above its throttle, so nothing is left.
		"docker-host-path-v2": {
			Total: total, Available: 0, Limit: 256 << 20,
			Group: "/sys/fs/my cgroup",
		},
	} {
		got, err := at(fixture(t, name)).Memory()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
	for want, m := range map[int64]RAM{100: {Total: 100, Available: 7}, 40: {Total: 100, Limit: 40}, 98: {Total: 98, Limit: 400}, 0: {}} {
		if got := m.Whole(); got != want {
			t.Errorf("%+v: a job can have %d, want %d", m, got, want)
		}
	}
	bare := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 64 kB\nMemAvailable: 16 kB\n")}}
	got, err := at(bare).Memory()
	if diff := cmp.Diff(RAM{Total: 64 << 10, Available: 16 << 10}, got); diff != "" || err != nil {
		t.Errorf("without control groups: %v\n%s", err, diff)
	}
	for _, text := range []string{"", "MemFree: 5 kB\n", "MemTotal: x kB\n"} {
		if _, err := at(fstest.MapFS{"proc/meminfo": {Data: []byte(text)}}).Memory(); err == nil {
			t.Errorf("meminfo %q is no error", text)
		}
	}
	if _, err := at(fstest.MapFS{}).Memory(); err == nil {
		t.Error("a machine without /proc/meminfo is no error")
	}
}

// The limit counts that leaves the least room, at whatever level and in either version.
func TestHostProcesses(t *testing.T) {
	root := fstest.MapFS{}
	for name, text := range map[string]string{
		"proc/self/cgroup":                              "8:pids:/kubepods/pod1\n4:memory:/\n0::/\n",
		"proc/self/mountinfo":                           "36 31 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n",
		"sys/fs/cgroup/pids/kubepods/pids.max":          "5000",
		"sys/fs/cgroup/pids/kubepods/pids.current":      "4900",
		"sys/fs/cgroup/pids/kubepods/pod1/pids.max":     "1024\n",
		"sys/fs/cgroup/pids/kubepods/pod1/pids.current": "7\n",
	} {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	want := Processes{Limit: 5000, Used: 4900, Group: "/sys/fs/cgroup/pids/kubepods"}
	if got := at(root).Processes(); got != want {
		t.Errorf("version 1: %+v, want %+v", got, want)
	}
	two := fixture(t, "kubernetes-v2")
	if got := at(two).Processes(); got != (Processes{}) {
		t.Errorf("without a limit: %+v", got)
	}
	two["sys/fs/cgroup/pids.max"] = &fstest.MapFile{Data: []byte("100\n")}
	if got := at(two).Processes(); got != (Processes{Limit: 100, Group: "/sys/fs/cgroup"}) {
		t.Errorf("version 2: %+v", got)
	}
}

// rise changes files between the two readings and returns the facts.
func rise(root fstest.MapFS, files map[string]string) []strategy.Fact {
	root = maps.Clone(root)
	c := at(root).OpenCounters()
	for name, text := range files {
		if text == "" {
			delete(root, name)
			continue
		}
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return c.Rise()
}

func TestRise(t *testing.T) {
	const job = "sys/fs/cgroup/memory/slurm/uid_0/job_7"
	slurm, pod := fixture(t, "slurm-v1"), fixture(t, "kubernetes-v2")
	nested := fixture(t, "docker-host-path-v2")
	tests := []struct {
		name  string
		root  fstest.MapFS
		files map[string]string
		want  []strategy.Kills
	}{
		{"nothing happened", slurm, nil, nil},
		{"a rank under Slurm", slurm, map[string]string{
			job + "/step_0/task_0/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
		}, []strategy.Kills{{Count: 1, Group: "/" + job + "/step_0/task_0", Limit: 200 << 20, Peak: 209715200}}},
		{"another job", slurm, map[string]string{
			"sys/fs/cgroup/memory/memory.oom_control": "oom_kill 41\n",
		}, []strategy.Kills{{Count: 1, Group: "/sys/fs/cgroup/memory"}}},
		{"version 1 does not nest", slurm, map[string]string{
			job + "/step_0/task_0/memory.oom_control": "oom_kill 4\n",
			job + "/step_0/memory.oom_control":        "oom_kill 1\n",
		}, []strategy.Kills{
			{Count: 2, Group: "/" + job + "/step_0/task_0", Limit: 200 << 20, Peak: 209715200},
			{Count: 1, Group: "/" + job + "/step_0", Limit: 200 << 20, Peak: 209715200},
		}},
		{"a pod", pod, map[string]string{
			"sys/fs/cgroup/memory.events": "oom 2\noom_kill 2\noom_group_kill 0\n",
		}, []strategy.Kills{{Count: 1, Group: "/sys/fs/cgroup", Limit: 1 << 30, Peak: 1073741000}}},
		{"a group killed at once", pod, map[string]string{
			"sys/fs/cgroup/memory.events": "oom 2\noom_kill 9\noom_group_kill 1\n",
		}, []strategy.Kills{{Count: 8, Group: "/sys/fs/cgroup", Limit: 1 << 30, Peak: 1073741000}}},
		{"version 2 nests", nested, map[string]string{
			"sys/fs/my cgroup/init/memory.events": "oom_kill 1\n",
			"sys/fs/my cgroup/memory.events":      "oom_kill 1\n",
		}, []strategy.Kills{{Count: 1, Group: "/sys/fs/my cgroup/init", Limit: 2 << 30}}},
		{"ours and a neighbour's", nested, map[string]string{
			"sys/fs/my cgroup/init/memory.events": "oom_kill 1\n",
			"sys/fs/my cgroup/memory.events":      "oom_kill 3\n",
		}, []strategy.Kills{
			{Count: 1, Group: "/sys/fs/my cgroup/init", Limit: 2 << 30},
			{Count: 2, Group: "/sys/fs/my cgroup"},
		}},
		{"the group is gone", nested, map[string]string{
			"sys/fs/my cgroup/init/memory.events": "",
		}, nil},
	}
	for _, test := range tests {
		var got []strategy.Kills
		for _, f := range rise(test.root, test.files) {
			if strategy.As[*strategy.Kills](f) == nil || f.Rank != -1 || f.Source != "cgroup" || f.Time.IsZero() {
				t.Errorf("%s: %+v", test.name, f)
				continue
			}
			got = append(got, *strategy.As[*strategy.Kills](f))
		}
		if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: -want +got\n%s", test.name, diff)
		}
	}
}

// Where nothing counts kills, that is reported.
func TestRiseGap(t *testing.T) {
	old := fixture(t, "slurm-v1") // a kernel before 4.13 counts none
	for name := range old {
		if strings.HasSuffix(name, "memory.oom_control") {
			old[name] = &fstest.MapFile{Data: []byte("oom_kill_disable 0\nunder_oom 0\n")}
		}
	}
	for name, root := range map[string]fstest.MapFS{"no groups": {}, "old kernel": old} {
		facts := at(root).OpenCounters().Rise()
		if len(facts) != 1 || strategy.As[strategy.Gap](facts[0]) == "" {
			t.Errorf("%s: %+v, want one gap", name, facts)
		}
	}
}

// The folder that /proc names does not exist in a container: the mount counts.
func TestGroupsWithoutOwnFolder(t *testing.T) {
	root := fixture(t, "kubernetes-v2")
	for _, self := range []string{"0::/kubepods/pod1\n", "0::/../../other\n"} {
		root["proc/self/cgroup"] = &fstest.MapFile{Data: []byte(self)}
		m, err := at(root).Memory()
		if err != nil || m.Limit != 1<<30 {
			t.Errorf("%q: %+v, %v", self, m, err)
		}
	}
}

func FuzzGroups(f *testing.F) {
	f.Add("0::/a/b\n4:memory:/c\n", "9 1 0:26 /a /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "oom_kill 3\n")
	f.Add("::", "- - -\n", "max")
	f.Fuzz(func(t *testing.T, self, mounts, numbers string) {
		root := fstest.MapFS{
			"proc/meminfo":                {Data: []byte("MemTotal: 64 kB\nMemAvailable: 16 kB\n")},
			"proc/self/cgroup":            {Data: []byte(self)},
			"proc/self/mountinfo":         {Data: []byte(mounts)},
			"sys/fs/cgroup/memory.events": {Data: []byte(numbers)},
			"sys/fs/cgroup/memory.max":    {Data: []byte(numbers)},
		}
		m, err := at(root).Memory()
		if err != nil || m.Available > m.Total || m.Available < 0 || m.Limit < 0 {
			t.Fatalf("%+v, %v", m, err)
		}
		for _, fact := range at(root).OpenCounters().Rise() {
			if strategy.As[*strategy.Kills](fact) != nil {
				t.Fatalf("%+v though nothing changed", strategy.As[*strategy.Kills](fact))
			}
		}
	})
}

// TestFileSystemOf: the deepest mount above a path counts, and of several at one point the last.
func TestFileSystemOf(t *testing.T) {
	const mounts = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=65536k
24 22 0:40 / /data rw - autofs systemd-1 rw
25 24 0:41 / /data rw,relatime - nfs4 filer:/vol rw,vers=4.2
26 22 8:2 / /my\040disk ro,relatime - xfs /dev/sdb1 ro
`
	m := at(fstest.MapFS{"proc/self/mountinfo": {Data: []byte(mounts)}})
	for path, want := range map[string]strategy.FileSystem{
		"/data/out/c.pt":    {Mount: "/data", Type: "nfs4", Source: "filer:/vol"},
		"/database/c.pt":    {Mount: "/", Type: "ext4", Source: "/dev/sda1"},
		"/dev/shm/torch_7":  {Mount: "/dev/shm", Type: "tmpfs", Source: "tmpfs"},
		"/my disk/c.pt":     {Mount: "/my disk", Type: "xfs", Source: "/dev/sdb1", ReadOnly: true},
		"/data/../etc/c.pt": {Mount: "/", Type: "ext4", Source: "/dev/sda1"},
	} {
		want.Path = path
		if got := m.FileSystemOf(path, false); got == nil || *got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
	if got := at(fstest.MapFS{}).FileSystemOf("/data", true); got != nil {
		t.Errorf("%+v of a machine without mounts", got)
	}
	if got := ThisMachine().FileSystemOf("/dev/none", true); got == nil || got.Mount == "" {
		t.Errorf("%+v of a path of this machine", got)
	}
}

func TestSwapDir(t *testing.T) {
	if got := SwapDir("", "/runs/r/attempt-1"); got != "" {
		t.Errorf("without nvme_path: %q", got)
	}
	if got, want := SwapDir("/nvme", "/runs/r/attempt-1"), "/nvme/gpurun-r-attempt-1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLackOfNVMe(t *testing.T) {
	root := filepath.Join(t.TempDir(), "made")
	if reason := LackOfNVMe(root); reason != "" {
		t.Errorf("a folder that can be made: %s", reason)
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("the question made the folder: %v", err)
	}
	if reason := LackOfNVMe("/dev/shm"); !strings.Contains(reason, "is in host memory (tmpfs)") {
		t.Errorf("/dev/shm: %q", reason)
	}
	if reason := LackOfNVMe(filepath.Join(t.TempDir(), "missing", "too")); !strings.Contains(reason, "no such file") {
		t.Errorf("a missing folder: %q", reason)
	}
	file := filepath.Join(t.TempDir(), "file")
	testenv.Check(t, os.WriteFile(file, nil, 0o644))
	if reason := LackOfNVMe(file); !strings.Contains(reason, "not a directory") {
		t.Errorf("a file: %q", reason)
	}
}

// The free space is counted in fragments, which some file systems make smaller than
// the block that they like to be written in.
func TestFreeBytes(t *testing.T) {
	dir := t.TempDir()
	var s unix.Statfs_t
	testenv.Check(t, unix.Statfs(dir, &s))
	free, err := FreeSpace(filepath.Join(dir, "made"))
	testenv.Check(t, err)
	const slack = 1 << 30 // others write meanwhile
	if want := int64(s.Bavail) * int64(s.Frsize); free < want-slack || free > want+slack {
		t.Errorf("%d bytes are free, want some %d", free, want)
	}
}
