package hook

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// A failure at a random place of a random small model, in forward or backward, leaves the losses,
// gradients, weights, buffers, attributes and random numbers of the undisturbed run, or the job's
// own error is raised. make stress has more cases.
func TestRepeatedStepsAreExact(t *testing.T) {
	cases := "30"
	if text := os.Getenv("GPURUN_REPEATS"); text != "" {
		cases = text
	}
	folder, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testenv.Torch(t), "-B", testdata(t, "inplace_property.py"), folder, strconv.FormatUint(testenv.Of(t), 10), cases)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v; stderr:\n%s", err, stderr.String())
	}
	var got struct {
		Counts   map[string]int
		Problems []string
	}
	for line := range strings.Lines(string(out)) {
		if json.Unmarshal([]byte(line), &got) != nil || got.Counts == nil {
			t.Errorf("not the job's own error or the undisturbed outcome: %s", line)
		}
	}
	if wanted, _ := strconv.Atoi(cases); got.Counts["repeated"] < wanted/4 {
		t.Errorf("few steps of %s were repeated: %v", cases, got.Counts)
	}
	if wanted, _ := strconv.Atoi(cases); got.Counts["with chosen parts"] < wanted/10 {
		t.Errorf("few steps of %s were repeated with parts that were chosen: %v", cases, got.Counts)
	}
	if len(got.Problems) > 0 {
		t.Errorf("errors of the hook: %q", got.Problems)
	}
	t.Logf("%v", got.Counts)
}
