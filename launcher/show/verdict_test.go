package show

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// A verdict is the one that was recorded; where there is none that counts, 75 says so.
func TestTellVerdict(t *testing.T) {
	t.Chdir(shelf(t))
	lockRun(t, writeRun(t, ".gpurun/gpt/live", runBegan("gpt", 40), started(0, "8")))
	requeued := writeRun(t, ".gpurun/gpt/requeued", runBegan("gpt", 10), started(0, "8"), finished(strategy.Retry, 75), runBegan("gpt", 20), started(1, "8"))
	put(t, filepath.Join(requeued, "verdict.json"), `{"outcome": "failed", "code": 1, "reason": "of the start before", "attempts": []}`)
	old := morning
	if err := os.Chtimes(filepath.Join(requeued, "verdict.json"), old, old.Add(-1)); err != nil {
		t.Fatal(err)
	}
	whole := writeRun(t, ".gpurun/gpt/whole", runBegan("gpt", 15), started(0, "8"), finished(strategy.Failed, 1))
	put(t, filepath.Join(whole, "verdict.json"), `{"outcome": "failed", "code": 1, "reason": "in the file", "attempts": [{"n": 0, "exit_code": 3}]}`)
	drafted := writeRun(t, ".gpurun/gpt/drafted", runBegan("gpt", 20), started(0, "8"))
	put(t, filepath.Join(drafted, "verdict.json"), `{"outcome": "stopped", "code": 143, "reason": "stopped by SIGTERM", "attempts": []}`)
	for name, test := range map[string]struct {
		outcome strategy.Outcome
		code    int
		says    string
	}{
		"20260504-0800-aaaa": {strategy.Trained, 0, "summary: trained after"},
		"whole":              {strategy.Failed, 1, "error: in the file"},
		"20260504-0820-dddd": {strategy.Exhausted, 12, "summary: "}, // decided, not yet written
		"20260504-0810-cccc": {strategy.Retry, 75, "error: retry"},
		"20260504-0830-bbbb": {strategy.Retry, 75, "gpurun: gpurun ended without a verdict, in attempt 0"},
		"drafted":            {strategy.Stopped, 143, "attempt 0: interrupted\ngpurun: error: stopped by SIGTERM"},
		"requeued":           {strategy.Retry, 75, "in attempt 1"},
		"live":               {strategy.Retry, 75, "gpurun: the run still runs (host node7"},
	} {
		var said, document strings.Builder
		v, err := ShowVerdict(&said, name, false)
		if err != nil || v.Outcome != test.outcome || v.Code != test.code || !strings.Contains(said.String(), test.says) {
			t.Errorf("%s: %s %d, %v\n%s\nwant %s %d %q", name, v.Outcome, v.Code, err, said.String(), test.outcome, test.code, test.says)
		}
		var read launcher.Verdict
		if _, err := ShowVerdict(&document, name, true); err != nil || json.Unmarshal([]byte(document.String()), &read) != nil || read.Code != test.code {
			t.Errorf("%s: %v\n%s", name, err, document.String())
		}
	}
	for _, name := range []string{"torn", "nowhere"} {
		if v, err := ShowVerdict(io.Discard, name, false); err == nil {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// A killed run of a Slurm job names the job to requeue.
func TestVerdictOfAKilledRunOfSlurmNamesItsRequeue(t *testing.T) {
	t.Chdir(t.TempDir())
	start := launcher.Began{Name: "gpt", Scheduler: "slurm 77", At: morning}
	writeRun(t, ".gpurun/gpt/killed", start, started(0, "8"))
	var out strings.Builder
	if _, err := ShowVerdict(&out, "killed", false); err != nil || !strings.Contains(out.String(), "gpurun: hint: scontrol requeue 77 continues the run; within a job, so does gpurun resume ") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// What another node keeps of a run is no run.
func TestNodesAreNoRuns(t *testing.T) {
	t.Chdir(t.TempDir())
	writeRun(t, "logs/night", runBegan("gpt", 0), started(0, "8"), finished(strategy.Trained, 0))
	writeRun(t, "logs/night/node-1", runBegan("gpt", 1))
	writeRun(t, "logs/night/attempt-0/node-1/rank2")
	for _, dir := range []string{"logs", "logs/night"} {
		if all, err := ListRuns(dir); err != nil || names(all) != "night" {
			t.Errorf("%s: %s, %v", dir, names(all), err)
		}
	}
	if r, err := FindRun(".", "logs/night/node-1"); err != nil || r.Name != "night" {
		t.Errorf("%+v, %v", r, err)
	}
	l, err := LookAtRun(filepath.Join(mustAbs(t, "logs/night"))).Logs(AnyRank, 2)
	if err != nil || !strings.HasSuffix(l.Stdout, "/attempt-0/node-1/rank2/stdout.log") {
		t.Errorf("%+v, %v", l, err)
	}
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
