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
	if job, err := askSlurm(ctx, p.Job); err == nil {
		return job.end, job.requeue
	}
	return end, again
}

// Preempted reports whether Slurm takes the nodes away now for another job, and this one is
// to end within its grace time: SIGTERM is not the end of the job then. Where Slurm does not
// answer it is false.
func (p Place) Preempted(ctx context.Context) bool {
	if !p.Slurm() {
		return false
	}
	job, err := askSlurm(ctx, p.Job)
	return err == nil && job.preempted
}

// A slurmAnswer is what Slurm says of a job: when it ends, zero for never, and whether it may
// be requeued or is being preempted.
type slurmAnswer struct {
	end                time.Time
	requeue, preempted bool
}

func askSlurm(ctx context.Context, job string) (slurmAnswer, error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "scontrol", "--oneliner", "show", "job", job)
	cmd.Stdout, cmd.WaitDelay = &said, time.Second
	if err := cmd.Run(); err != nil {
		return slurmAnswer{}, fmt.Errorf("ask Slurm about job %s: %w", job, err)
	}
	return readJob(said.String())
}

// readJob reads scontrol's one line of a job: "JobId=7 … Requeue=1 … EndTime=… …". At
// preemption a job has PreemptTime, and still runs; one that is cancelled or requeued does
// not run any more when it gets SIGTERM.
func readJob(line string) (slurmAnswer, error) {
	fields := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		if name, value, ok := strings.Cut(word, "="); ok && fields[name] == "" {
			fields[name] = value
		}
	}
	if fields["JobId"] == "" {
		return slurmAnswer{}, fmt.Errorf("ask Slurm about a job: %q is no answer", line)
	}
	_, none := time.ParseInLocation(slurmTime, fields["PreemptTime"], time.Local)
	runs := fields["JobState"] == "RUNNING" || fields["JobState"] == "SIGNALING"
	answer := slurmAnswer{requeue: fields["Requeue"] == "1", preempted: none == nil && runs}
	start, started := time.ParseInLocation(slurmTime, fields["StartTime"], time.Local)
	end, known := time.ParseInLocation(slurmTime, fields["EndTime"], time.Local)
	if started == nil && known == nil && (answer.preempted || fields["TimeLimit"] != "UNLIMITED") && end.Sub(start) < unlimited {
		answer.end = end
	}
	return answer, nil
}
