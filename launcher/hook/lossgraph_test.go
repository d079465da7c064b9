package hook

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// withTorches runs a test with the usual interpreter, and with those of GPURUN_TEST_TORCH, a list as PATH is.
func withTorches(t *testing.T, test func(t *testing.T, python string)) {
	t.Helper()
	needs(t)
	for _, path := range append(filepath.SplitList(os.Getenv("GPURUN_TEST_TORCH")), testenv.Python(t)) {
		t.Run(strings.Trim(strings.ReplaceAll(path, "/", "-"), "-"), func(t *testing.T) { test(t, path) })
	}
}

// The graph of a loss shows whether samples are selected within a micro batch, or compared with each other. Nothing is
// computed to read it, and no hook of the job runs.
func TestLossIsReadFromItsGraph(t *testing.T) {
	folder, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	withTorches(t, func(t *testing.T, python string) {
		r := newTrial(t)
		r.bare = true
		seen := map[string]int{}
		for line := range strings.Lines(r.train(t, python, testdata(t, "losses.py"), folder)) {
			var got struct {
				Loss, Want, Word, Why string
				Computed              []string
			}
			if json.Unmarshal([]byte(line), &got) != nil || got.Loss == "" {
				continue
			}
			seen[got.Want]++
			if got.Word != got.Want || (got.Word == "") != (got.Why == "") || len(got.Computed) > 0 {
				t.Errorf("%s: %s %q, want %s; computed %q", got.Loss, got.Word, got.Why, got.Want, got.Computed)
			}
		}
		if seen[""] < 45 || seen["no"] < 12 || seen["refused"] < 21 {
			t.Errorf("read %v", seen)
		}
	})
}
