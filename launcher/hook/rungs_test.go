package hook

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// The remedies that are turned inside a process, with real PyTorch on the CPU: each
// case of the files in testdata/remedies is a test here. They run in one process, for
// PyTorch takes seconds to load. Of the largest tables each run has a fixed sample; GPURUN_REMEDIES=all has them whole.
func TestRemedies(t *testing.T) {
	cmd := exec.Command(testenv.Torch(t), "-B", "testdata/rungs/run.py", strings.Join(caseFiles(t), ","))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v; stderr:\n%s", err, stderr.String())
	}
	cases := 0
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var told struct{ Case, Outcome, Words string }
		if json.Unmarshal(lines.Bytes(), &told) != nil || told.Case == "" {
			continue // a library's own words
		}
		cases++
		t.Run(told.Case, func(t *testing.T) {
			switch told.Outcome {
			case "pass":
			case "skip":
				t.Skip(told.Words)
			default:
				t.Errorf("%s: %s", told.Outcome, told.Words)
			}
		})
	}
	if cases == 0 {
		t.Errorf("no case was run; stdout:\n%s\nstderr:\n%s", out, stderr.String())
	}
	t.Log(stderr.String()) // processor time of each case
}

// caseFiles names the files that hold cases; the others are what those use.
func caseFiles(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/rungs/*.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		switch name := strings.TrimSuffix(filepath.Base(file), ".py"); name {
		case "models", "harness", "run":
		default:
			names = append(names, name)
		}
	}
	return names
}
