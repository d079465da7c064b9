package probe

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/testseed"
	"github.com/gpurun/gpurun/test/testenv"
)

// An error in any function of the hook leaves a healthy job its results, and one that runs out of memory those of the
// rescued step or its own error. make stress has all functions.
func TestErrorOfTheHookIsNotTheJobs(t *testing.T) {
	every := "80"
	if text := os.Getenv("GPURUN_WALL"); text != "" {
		every = text
	}
	cmd := exec.Command(testenv.Torch(t), "-B", testdata(t, "wall.py"), ".", every, strconv.FormatUint(testseed.Of(t), 10))
	cmd.Env = append(os.Environ(), "GPURUN_TEST_RULES="+string(rulesText()))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v; stderr:\n%s", err, stderr.String())
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(out)) {
		var got struct {
			Job, Function, Wrong string
			Code                 int
			Problems             []string
			Counts               map[string]int
		}
		switch err := json.Unmarshal([]byte(line), &got); {
		case err != nil:
			t.Errorf("%v in %s", err, line)
		case got.Counts != nil:
			counts = got.Counts
		case got.Function != "":
			t.Errorf("an error in %s, in the job %q: %s: %s", got.Function, got.Job, got.Wrong, line)
		case len(got.Problems) > 0 || (got.Code != 0) != (got.Job == "ends"):
			t.Errorf("the job alone, with the hook: %s", line)
		}
	}
	if counts["runs"] < 20 || counts["noted"] < counts["runs"]/2 {
		t.Errorf("few errors were put in, or noted: %v", counts)
	}
	t.Logf("%v", counts)
}
