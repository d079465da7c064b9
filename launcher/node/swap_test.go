package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// A run's folder on NVMe is its own, is there while its attempt runs, and is gone
// after it. What a killed gpurun left is removed by the next one; what another one
// uses, or did not make, is left alone.
func TestSwapFolders(t *testing.T) {
	root := t.TempDir()
	used, err := openSwap(ranks.SwapDir(root, "/runs/a/attempt-1"))
	testenv.Check(t, err)
	left, err := openSwap(ranks.SwapDir(root, "/runs/b/attempt-1"))
	testenv.Check(t, err)
	testenv.Check(t, os.WriteFile(filepath.Join(left.dir, "optimizer.tensor.swp"), []byte("states"), 0o644))
	left.lock.Close() // as the kernel does when its holder is killed
	foreign := filepath.Join(root, "gpurun-notes")
	testenv.Check(t, os.Mkdir(foreign, 0o755))
	testenv.Check(t, SweepSwaps(root))
	var names []string
	entries, err := os.ReadDir(root)
	testenv.Check(t, err)
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
	testenv.Check(t, err)
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
	testenv.Check(t, os.WriteFile(file, nil, 0o644))
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

// The copy for gpurun's parent has no secrets.
func TestParentGetsNoSecrets(t *testing.T) {
	dir, to, rank := t.TempDir(), filepath.Join(t.TempDir(), "error.json"), 0
	folder := filepath.Join(dir, "attempt-0", "rank0")
	testenv.Check(t, os.MkdirAll(folder, 0o700))
	const raised = `{"message": {"message": "HTTPError: 401, Authorization: Bearer s3cr3t", "extraInfo": {"py_callstack": "login(token=hubs3cret99)\npassword: pw1", "timestamp": "17"}}}`
	testenv.Check(t, os.WriteFile(filepath.Join(folder, "error.json"), []byte(raised), 0o600))
	v := launcher.Verdict{Outcome: strategy.Failed, Attempts: []launcher.AttemptSummary{{Rank: &rank}}}
	m := mask.New([]string{"train.py", "--hub_token", "hubs3cret99"}, nil)
	if err := TellParent(commandline.Environ{errorFileVariable: to}, dir, v, strategy.Evidence{}, m); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(to)
	if err != nil || !json.Valid(text) || regexp.MustCompile(`s3cr3t|hubs3cret99|pw1`).Match(text) || !strings.Contains(string(text), "HTTPError: 401") {
		t.Errorf("%s, %v", text, err)
	}
}
