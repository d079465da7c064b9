package doctor

import (
	"errors"
	"os/exec"
	"testing"
)

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
