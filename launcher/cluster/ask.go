package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// slurmTime is scontrol's format of times, in the zone of its process.
const slurmTime = "2006-01-02T15:04:05"

// unlimited is the time that Slurm gives a job without a limit.
const unlimited = 365 * 24 * time.Hour

// Ends returns the end of the job's time, zero where it is not known, and whether the scheduler
// starts the job again afterwards. It runs scontrol where that is installed: the environment has
// the end only since Slurm 23.02, as of the job's start, and never whether the job is requeued.
func (p Placement) Ends(ctx context.Context) (end time.Time, again bool) {
	end, again = p.End, p.RestartCount > 0
	if !p.Slurm() {
		return end, again
	}
	if job, err := querySlurm(ctx, p.Job); err == nil {
		return job.end, job.requeue
	}
	return end, again
}

// Preempted reports whether Slurm takes the nodes away now for another job, so that SIGTERM does
// not mean the end of the job. It is false where Slurm does not state.
func (p Placement) Preempted(ctx context.Context) bool {
	if !p.Slurm() {
		return false
	}
	job, err := querySlurm(ctx, p.Job)
	return err == nil && job.preempted
}

// A slurmJobState is the state of a job as scontrol shows it.
type slurmJobState struct {
	end                time.Time // zero for never
	requeue, preempted bool
}

func querySlurm(ctx context.Context, job string) (slurmJobState, error) {
	line, err := scontrol(ctx, "--oneliner", "show", "job", job)
	if err != nil {
		return slurmJobState{}, fmt.Errorf("query Slurm about job %s: %w", job, err)
	}
	return readJob(line)
}

// readJob parses scontrol's line about a job: "JobId=7 … Requeue=1 … EndTime=… …". A job that is
// being preempted has PreemptTime and still runs; one that is cancelled or requeued does not run
// any more when it gets SIGTERM.
func readJob(line string) (slurmJobState, error) {
	fields := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		if name, value, ok := strings.Cut(word, "="); ok && fields[name] == "" {
			fields[name] = value
		}
	}
	if fields["JobId"] == "" {
		return slurmJobState{}, fmt.Errorf("query Slurm about a job: %q is not an answer", line)
	}
	_, none := time.ParseInLocation(slurmTime, fields["PreemptTime"], time.Local)
	runs := fields["JobState"] == "RUNNING" || fields["JobState"] == "SIGNALING"
	state := slurmJobState{requeue: fields["Requeue"] == "1", preempted: none == nil && runs}
	start, started := time.ParseInLocation(slurmTime, fields["StartTime"], time.Local)
	end, known := time.ParseInLocation(slurmTime, fields["EndTime"], time.Local)
	if started == nil && known == nil && (state.preempted || fields["TimeLimit"] != "UNLIMITED") && end.Sub(start) < unlimited {
		state.end = end
	}
	return state, nil
}

// scontrol runs scontrol, and returns what it prints.
func scontrol(ctx context.Context, args ...string) (string, error) {
	var output, errors strings.Builder
	cmd := exec.CommandContext(ctx, "scontrol", args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &output, &errors, time.Second
	if err := cmd.Run(); err != nil {
		if said := strings.TrimSpace(errors.String()); said != "" {
			return "", fmt.Errorf("%w: %s", err, said)
		}
		return "", err
	}
	return output.String(), nil
}
