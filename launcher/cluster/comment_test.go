package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeScontrol answers `scontrol show job` with a line, and writes other calls to a file.
func fakeScontrol(t *testing.T, shown, rest string) (calls func() string) {
	t.Helper()
	bin := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = update ] || { printf '%s\\n' '" + shown + "'; exit; }\nprintf '%s|' \"$@\" >>" + bin + "/calls\n" + rest
	if err := os.WriteFile(filepath.Join(bin, "scontrol"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
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
