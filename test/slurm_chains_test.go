package test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// sweepTrainer is the train.py of the array in examples.
const sweepTrainer = `import os, sys, time
out, step = sys.argv[sys.argv.index("--out") + 1], 0
os.makedirs(out, exist_ok=True)
while step < 3 or os.path.exists("more"):
    step += 1
    time.sleep(0.1)
    print("step", step, flush=True)
    if step == 2:
        open(out + "/rank0", "w").close()
`

// TestSlurmSeriesDocumented runs the documented scripts that make several jobs, an array and a chain of
// nights. Preempted jobs continue and train, and a scancel is final.
func TestSlurmSeriesDocumented(t *testing.T) {
	lab(t)
	s := openSlurm(t)
	examples := contents(t, filepath.Join("..", "examples", "slurm"))
	for _, how := range []string{"preempted", "cancelled"} {
		series := map[string]*slurmJob{}
		for name, script := range map[string]string{
			"array":   strings.Replace(examples["array.sbatch"], "--array=1-6", "--array=1-2", 1),
			"nightly": examples["nightly.sbatch"],
		} {
			j := s.nodesJob(t, name+" "+how)
			j.write(t, "train.py", sweepTrainer)
			j.documented(t, script)
			series[name] = j
		}
		for name, j := range series {
			for _, mark := range map[string][]string{"array": {"out/1/rank0", "out/2/rank0"}, "nightly": {"rank0"}}[name] {
				await(t, "steps of "+j.name, func() bool { _, err := os.Stat(filepath.Join(j.here, mark)); return err == nil })
			}
		}
		if how == "preempted" {
			s.x(t, `sbatch --partition=urgent --nodes=3 --exclusive -o /dev/null --wrap "sleep 1"`)
		}
		for name, j := range series {
			switch {
			case how == "cancelled":
				j.x(t, "scancel "+j.id)
				await(t, "the end of "+j.name, func() bool { return j.ended(t) })
				if states := fields(j.series(t), "JobState"); slices.ContainsFunc(states, func(state string) bool { return state != "CANCELLED" }) {
					t.Errorf("%s: %q", j.name, states)
				}
			default:
				// The elements were requeued; the second night has queued the third.
				await(t, "what follows on "+j.name, func() bool {
					all := j.series(t)
					return strings.Contains(all, "Restarts=1") || strings.Count(all, "JobId=") >= 3 && name != "array"
				})
				rest(t, j.here)
				await(t, "the end of "+j.name, func() bool { return j.ended(t) })
			}
			outcome, runs := strategy.Trained, map[string]int{"array": 2, "nightly": 1}[name]
			if how == "cancelled" {
				outcome = strategy.Stopped
			}
			if got := j.verdicts(t, outcome); len(got) != runs {
				t.Errorf("%s: %d runs are %s, want %d\n%s", j.name, len(got), outcome, runs, j.series(t))
			}
		}
	}
}

// series returns Slurm's report on a job, on its array's elements and on the jobs that it queued.
func (j *slurmJob) series(t *testing.T) string {
	t.Helper()
	var own []string
	for line := range strings.Lines(j.x(t, "scontrol --oneliner show job")) {
		if strings.Contains(line, "StdOut="+j.there+"/out") || strings.Contains(line, "ArrayJobId="+j.id+" ") || strings.HasPrefix(line, "JobId="+j.id+" ") {
			own = append(own, line)
		}
	}
	return strings.Join(own, "")
}

// ended reports whether none of them runs or waits.
func (j *slurmJob) ended(t *testing.T) bool {
	t.Helper()
	return !slices.ContainsFunc(fields(j.series(t), "JobState"), func(state string) bool {
		return slices.Contains([]string{"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED"}, state)
	})
}

// verdicts returns the verdicts of the job's runs with an outcome.
func (j *slurmJob) verdicts(t *testing.T, outcome strategy.Outcome) (paths []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(j.here, ".gpurun", "*", "*", "verdict.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), `"outcome": "`+string(outcome)+`"`) {
			paths = append(paths, path)
		}
	}
	return paths
}
