package cluster

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpurun/gpurun/test/testenv"
)

// When a job ends is what Slurm reports now, and what the environment has where it does
// not answer.
func TestWhenAJobEnds(t *testing.T) {
	zone := time.Local
	end := time.Date(2026, 11, 21, 19, 30, 0, 0, zone)
	for name, test := range map[string]struct {
		answer string // empty: there is no Slurm to ask
		place  Placement
		end    time.Time
		again  bool
	}{
		"a limit": {"JobId=7 JobName=x Requeue=1 Restarts=0 TimeLimit=01:30:00 StartTime=2026-11-21T18:00:00 EndTime=2026-11-21T19:30:00 Deadline=N/A",
			Placement{Kind: SlurmStep, Job: "7"}, end, true},
		"a limit that was moved": {"JobId=7 Requeue=0 TimeLimit=01:30:00 StartTime=2026-11-21T18:00:00 EndTime=2026-11-21T19:30:00",
			Placement{Kind: SlurmBatch, Job: "7", End: end.Add(-time.Hour)}, end, false},
		"none": {"JobId=7 Requeue=1 TimeLimit=365-00:00:00 StartTime=2026-11-21T18:00:00 EndTime=2027-11-21T18:00:00",
			Placement{Kind: SlurmStep, Job: "7"}, time.Time{}, true},
		"none, in words":     {"JobId=7 Requeue=1 TimeLimit=UNLIMITED StartTime=2026-11-21T18:00:00 EndTime=Unknown", Placement{Kind: SlurmStep, Job: "7"}, time.Time{}, true},
		"Slurm is not there": {"", Placement{Kind: SlurmStep, Job: "7", End: end}, end, false},
		"nor says it much":   {"slurm_load_jobs error: Invalid job id specified", Placement{Kind: SlurmStep, Job: "7", End: end, RestartCount: 1}, end, true},
		"no Slurm":           {"JobId=7 Requeue=1 EndTime=2026-11-21T19:30:00", Placement{Kind: Kubernetes}, time.Time{}, false},
	} {
		t.Setenv("PATH", t.TempDir())
		if test.answer != "" {
			answerWith(t, test.answer)
		}
		got, again := test.place.Ends(t.Context())
		if !got.Equal(test.end) || again != test.again {
			t.Errorf("%s: %s, %v; want %s, %v", name, got, again, test.end, test.again)
		}
	}
}

// A job that still runs and has the time of its preemption is preempted: the answers are of
// Slurm 22.05 at SIGTERM. One that is cancelled, or requeued at the end of its grace, is not.
func TestPreempted(t *testing.T) {
	const times = " TimeLimit=UNLIMITED StartTime=2026-11-23T08:04:10 EndTime=2026-11-23T08:04:55 "
	for answer, want := range map[string]bool{
		"JobId=7 JobState=RUNNING Reason=None" + times + "PreemptEligibleTime=2026-11-23T08:04:10 PreemptTime=2026-11-23T08:04:15":   true,
		"JobId=7 JobState=SIGNALING Reason=None" + times + "PreemptEligibleTime=2026-11-23T08:04:10 PreemptTime=2026-11-23T08:04:15": true,
		"JobId=7 JobState=RUNNING Reason=None" + times + "PreemptEligibleTime=2026-11-23T08:04:10 PreemptTime=None":                  false,
		"JobId=7 JobState=COMPLETING Restarts=1" + times:                                                                             false,
		"JobId=7 JobState=CANCELLED" + times + "PreemptTime=2026-11-23T08:04:15":                                                     false,
		"slurm_load_jobs error: Invalid job id specified":                                                                            false,
	} {
		answerWith(t, answer)
		for _, p := range []Placement{{Kind: SlurmStep, Job: "7"}, {Kind: Kubernetes, Job: "7"}} {
			if got := p.Preempted(t.Context()); got != (want && p.Slurm()) {
				t.Errorf("%s on %s: %v", answer, p.Kind, got)
			}
		}
		if end, _ := (Placement{Kind: SlurmStep, Job: "7"}).Ends(t.Context()); want == end.IsZero() {
			t.Errorf("%s: the end is %s", answer, end)
		}
	}
}

// answerWith has a stand-in of scontrol say something of job 7; the real one is asked in the
// command's own test with a Slurm.
func answerWith(t *testing.T, answer string) {
	t.Helper()
	bin := t.TempDir()
	script := "#!/bin/sh\n[ \"$*\" = '--oneliner show job 7' ] && echo '" + answer + "'\n"
	testenv.Check(t, os.WriteFile(filepath.Join(bin, "scontrol"), []byte(script), 0o755))
	t.Setenv("PATH", bin)
}

// The environment says when the job ends since Slurm 23.02; a job without a limit is
// told a year.
func TestTheEndInTheEnvironment(t *testing.T) {
	for end, want := range map[string]time.Time{"1763751600": time.Unix(1763751600, 0), "1795287600": {}, "": {}, "soon": {}} {
		p, err := Detect([]string{"SLURM_JOB_ID=7", "SLURMD_NODENAME=n1", "SLURM_JOB_START_TIME=1763748000", "SLURM_JOB_END_TIME=" + end})
		if err != nil || !p.End.Equal(want) {
			t.Errorf("%q: %s, %v", end, p.End, err)
		}
	}
}

// The identity of a job is the same in each of its steps, and after a requeue.
func TestAJobsIdentity(t *testing.T) {
	for want, places := range map[string][]Placement{
		"slurm 7_3":    {{Kind: SlurmStep, Job: "7_3", Step: "0"}, {Kind: SlurmStep, Job: "7_3", Step: "1", RestartCount: 2}, {Kind: SlurmBatch, Job: "7_3"}},
		"cloud task-1": {{Kind: Cloud, Job: "task-1"}},
		"":             {{Kind: Host}, {Kind: Kubernetes}},
	} {
		for _, p := range places {
			if got := p.Identity(); got != want {
				t.Errorf("%+v: %q, want %q", p, got, want)
			}
		}
	}
}
