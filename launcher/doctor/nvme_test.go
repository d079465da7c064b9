package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

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
		if err := os.WriteFile(filepath.Join(p.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.env = p.env.With(map[string]string{"CPATH": p.dir, "LIBRARY_PATH": p.dir})
	wants(t, resultOf(t, p, "libaio"), OK, "can be linked with", "")
}
