package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
)

// A run's folder on NVMe is its own, is there while its attempt runs, and is gone
// after it. What a killed gpurun left is removed by the next one; what another one
// uses, or did not make, is left alone.
func TestSwapFolders(t *testing.T) {
	root := t.TempDir()
	used, err := openSwap(ranks.SwapDir(root, "/runs/a/attempt-1"))
	if err != nil {
		t.Fatal(err)
	}
	left, err := openSwap(ranks.SwapDir(root, "/runs/b/attempt-1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left.dir, "optimizer.tensor.swp"), []byte("states"), 0o644); err != nil {
		t.Fatal(err)
	}
	left.lock.Close() // as the kernel does when its holder is killed
	foreign := filepath.Join(root, "gpurun-notes")
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := SweepSwaps(root); err != nil {
		t.Fatal(err)
	}
	var names []string
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got, want := strings.Join(names, " "), "gpurun-a-attempt-1 gpurun-notes"; got != want {
		t.Errorf("after the sweep: %s, want %s", got, want)
	}
	if speed, err := used.speed(); err != nil || speed <= 0 {
		t.Errorf("speed %v, %v", speed, err)
	}
	if err := used.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(used.dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
	if err := SweepSwaps(filepath.Join(root, "missing")); err != nil {
		t.Error(err)
	}
}

// A folder that had to be made for it is gone with the last attempt.
func TestAnNVMePathThatWasMadeIsRemoved(t *testing.T) {
	root := filepath.Join(t.TempDir(), "made")
	if freeAt(root) <= 0 {
		t.Error("no space is known for a folder that can be made")
	}
	s, err := openSwap(filepath.Join(root, "gpurun-r-attempt-0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("what was made is still there: %v", err)
	}
}

// A folder that cannot be made is the user's to mend, and says which setting names it.
func TestAnNVMePathThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n := New(Options{NVMePath: file}, nil, nil)
	l := launcher.Launch{Dir: "/runs/r/attempt-1", Plan: strategy.Plan{strategy.OffloadOptimizer: "nvme"}}
	if _, err := n.openSwap(l); errext.Code(cannotStart(err), 0) != strategy.CodeUsage || !strings.Contains(errext.Hint(err), "recovery.nvme_path") {
		t.Errorf("%v, hint %q", err, errext.Hint(err))
	}
	if err := notOnNVMe(unix.ENOSPC); errext.Code(err, 0) != strategy.CodeRetry {
		t.Errorf("a full disk: %v", err)
	}
	l.Plan = strategy.Plan{strategy.OffloadOptimizer: "cpu"}
	if s, err := n.openSwap(l); s != nil || err != nil {
		t.Errorf("nothing on NVMe: %v, %v", s, err)
	}
}
