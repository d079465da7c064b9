package test

import (
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// benchRuns are two runs of make bench with other ratios, of which the first keeps its own.
const benchRuns = `
import sys
sys.path.insert(0, "../.ci")
import bench
bench.KEPT, written = sys.argv[1:]
for keep, speed, memory, noise in ((True, 10.0, 5.0, 2.0), (False, 7.0, 6.0, 1.9)):
    bench.RATIOS = {"speed": [speed - 0.5, speed, speed + 0.5], "memory": [memory], "noise": [noise - 0.5, noise, noise + 0.5]}
    bench.RATIOS["wide"] = [1.0, 2.0, 3.0] if keep else [1.5]
    bench.RATIOS["wider"] = [2.0] if keep else [1.0, 1.5, 2.5]
    if not keep:
        bench.RATIOS["new"] = [1.0]
    bench.report(written, keep)
`

// TestBenchNamesWhatGotWorse: by more than the spread, and nothing else; only a run that is asked to keeps its ratios.
func TestBenchNamesWhatGotWorse(t *testing.T) {
	kept, written := filepath.Join(t.TempDir(), "kept.json"), filepath.Join(t.TempDir(), "bench.json")
	out, err := osexec.Command("python3", "-B", "-c", benchRuns, kept, written).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "worse: ") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	const want = "worse: speed: 10.00 (9.50 to 10.50) kept, 7.00 (6.50 to 7.50) now"
	if len(found) != 1 || found[0] != want {
		t.Errorf("%q, want %q", found, want)
	}
	for path, speed := range map[string]float64{kept: 10, written: 7} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		ratios := map[string]struct{ Ratio, Low, High float64 }{}
		if err := json.Unmarshal(text, &ratios); err != nil {
			t.Fatal(err)
		}
		if ratios["speed"].Ratio != speed {
			t.Errorf("%s has %v", filepath.Base(path), ratios)
		}
	}
}
