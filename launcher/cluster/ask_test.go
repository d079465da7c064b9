package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
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

// fakeScontrol answers `scontrol show job` with a line, and writes other calls to a file.
func fakeScontrol(t *testing.T, shown, rest string) (calls func() string) {
	t.Helper()
	bin := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = update ] || { printf '%s\\n' '" + shown + "'; exit; }\nprintf '%s|' \"$@\" >>" + bin + "/calls\n" + rest
	testenv.Check(t, os.WriteFile(filepath.Join(bin, "scontrol"), []byte(script), 0o755))
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	return func() string {
		text, _ := os.ReadFile(filepath.Join(bin, "calls"))
		return string(text)
	}
}

// TestCommentKeepsTheUsersOwn: only an empty comment and gpurun's own are replaced.
func TestCommentKeepsTheUsersOwn(t *testing.T) {
	job := Placement{Kind: SlurmStep, Job: "7_2"}
	const begin = "JobId=9 ArrayJobId=7 ArrayTaskId=2 JobName=train AdminComment=watch this "
	const end = "StdErr=/home/ada/out Command=/home/ada/job.sh"
	const set = "update|JobId=7_2|Comment=gpurun: rescued 8x4, 2 attempts, 31 GPU-s lost|"
	for name, test := range map[string]struct{ shown, want string }{
		"none":                 {begin + end, set},
		"empty":                {begin + "Comment= " + end, set},
		"null":                 {begin + "Comment=(null) " + end, set},
		"gpurun's":             {begin + "Comment=gpurun: rescued 16x2, 1 attempt, 3 GPU-s lost " + end, set},
		"the user's":           {begin + "Comment=paper, table 3 " + end, ""},
		"the user's, at last":  {begin + "Comment=x", ""},
		"the user's of gpurun": {begin + "Comment=gpurun is used here " + end, ""},
	} {
		calls := fakeScontrol(t, test.shown, "")
		if err := job.Comment(t.Context(), "rescued 8x4, 2 attempts, 31 GPU-s lost"); err != nil || calls() != test.want {
			t.Errorf("%s: %v, %q, want %q", name, err, calls(), test.want)
		}
	}
	calls := fakeScontrol(t, begin+end, "")
	if err := (Placement{Kind: Host}).Comment(t.Context(), "x"); err != nil || calls() != "" {
		t.Errorf("outside Slurm: %v, %q", err, calls())
	}
}

// TestCommentEndsWithItsContext: a controller that does not answer holds nothing.
func TestCommentEndsWithItsContext(t *testing.T) {
	fakeScontrol(t, "JobId=7", "exec sleep 1000")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	err := Placement{Kind: SlurmStep, Job: "7"}.Comment(ctx, "x")
	if err == nil || time.Since(begin) > 30*time.Second {
		t.Errorf("%v after %s", err, time.Since(begin))
	}
	fakeScontrol(t, "JobId=7", "echo 'slurm_update error: Access/permission denied' >&2; exit 1")
	if err := (Placement{Kind: SlurmStep, Job: "7"}).Comment(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("refused: %v", err)
	}
}
