package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// slurmTime is how scontrol prints a time, in the zone of the process that prints it.
const slurmTime = "2006-01-02T15:04:05"

// unlimited is how long Slurm says that a job without a limit may run.
const unlimited = 365 * 24 * time.Hour

// Ends says until when the job may run here, zero where nobody knows, and whether the
// scheduler starts it again afterwards. Slurm is asked, where its client is installed:
// the environment has the end only since Slurm 23.02, as it was when the job started,
// and never whether the job is requeued. Where Slurm does not answer, the environment
// has to do.
func (p Place) Ends(ctx context.Context) (end time.Time, again bool) {
	end, again = p.End, p.RestartCount > 0
	if !p.Slurm() {
		return end, again
	}
	if asked, requeue, err := askSlurm(ctx, p.Job); err == nil {
		return asked, requeue
	}
	return end, again
}

// askSlurm asks for a job's end and whether it may be requeued.
func askSlurm(ctx context.Context, job string) (end time.Time, requeue bool, err error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "scontrol", "--oneliner", "show", "job", job)
	cmd.Stdout, cmd.WaitDelay = &said, time.Second
	if err := cmd.Run(); err != nil {
		return end, false, fmt.Errorf("ask Slurm about job %s: %w", job, err)
	}
	return readJob(said.String())
}

// readJob reads scontrol's one line of a job: "JobId=7 … Requeue=1 … EndTime=… …".
func readJob(line string) (end time.Time, requeue bool, err error) {
	fields := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		if name, value, ok := strings.Cut(word, "="); ok && fields[name] == "" {
			fields[name] = value
		}
	}
	if fields["JobId"] == "" {
		return end, false, fmt.Errorf("ask Slurm about a job: %q is no answer", line)
	}
	requeue = fields["Requeue"] == "1"
	start, started := time.ParseInLocation(slurmTime, fields["StartTime"], time.Local)
	end, known := time.ParseInLocation(slurmTime, fields["EndTime"], time.Local)
	if started != nil || known != nil || fields["TimeLimit"] == "UNLIMITED" || end.Sub(start) >= unlimited {
		return time.Time{}, requeue, nil
	}
	return end, requeue, nil
}
