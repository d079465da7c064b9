package test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// A job of real PyTorch that does not fit under its ceiling trains in one attempt, with the losses of the untouched
// job: the step that runs out of memory is done again in the process. The console, the journal and the verdict have it,
// explain makes the same decision, and the next run loses no step.
func TestStepIsDoneAgainInPlace(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	dir := copyOf(t, filepath.Join("testdata", "cpu"))
	untouched := runLine(t, dir, python, "constants.py")
	var before, peak int
	if _, err := fmt.Sscanf(lastLine(untouched, "data "), "data %d %d", &before, &peak); err != nil {
		t.Fatalf("%v in %s", err, untouched)
	}
	flags := []string{"--device-memory", fmt.Sprintf("%dMiB", before+int(.6*float64(peak-before)))}
	run := func(name string) (console string, _ launcher.AttemptSummary, journal []byte) {
		output, console := runBoth(t, dir, binary(t), append(append([]string{"--run-dir", name}, flags...), python, "constants.py")...)
		v := verdictOf(t, filepath.Join(dir, name))
		if v.Outcome != strategy.Trained || len(v.Attempts) != 1 {
			t.Fatalf("%s after %d attempts: %s", v.Outcome, len(v.Attempts), console)
		}
		if diff := cmp.Diff(losses(untouched), losses(output)); diff != "" {
			t.Errorf("losses of %s (-untouched +%s):\n%s", name, name, diff)
		}
		journal, err := os.ReadFile(filepath.Join(dir, name, "journal.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return console, v.Attempts[0], journal
	}
	console, attempt, journal := run("rescued")
	if all := attempt.InPlace; len(all) != 1 || all[0].Remedy != strategy.RemedyCheckpointing || all[0].Times < 1 || all[0].Seconds <= 0 || all[0].Elements <= 0 {
		t.Errorf("the verdict has %+v", all)
	}
	line := regexp.MustCompile(`(?m)^gpurun: rank 0: out of memory in (forward|backward) at step \d+ \(tried to allocate [^)]+\); step repeated with activation checkpointing \(\d+\.\d\d s\)$`)
	summary := regexp.MustCompile(`(?m)^gpurun:   \d+ steps? repeated in place with activation checkpointing \(\d+\.\d\d s\); large inputs now recompute activations`)
	if !line.MatchString(console) || !summary.MatchString(console) {
		t.Errorf("no line, or no summary: %s", console)
	}
	if n := bytes.Count(journal, []byte(`"kind":"in_place"`)); n < 1 {
		t.Errorf("the journal has %d events in place", n)
	}
	if said := runLine(t, dir, binary(t), "explain", "rescued"); !regexp.MustCompile(`(?m)^  in place: rank 0: out of memory`).MatchString(said) || bytes.Contains([]byte(said), []byte("then: ")) {
		t.Errorf("explain: %s", said)
	}
	_, attempt, journal = run("next")
	if len(attempt.InPlace) > 0 || !bytes.Contains(journal, []byte(`"armed":[{"rung":"checkpointing"`)) {
		t.Errorf("the next run did steps again: %+v", attempt.InPlace)
	}
}
