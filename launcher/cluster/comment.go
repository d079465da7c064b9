package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// commentMark is the begin of gpurun's own comments on jobs.
const commentMark = "gpurun: "

// Comment sets the comment of the Slurm job that gpurun runs in, by scontrol. It keeps a comment that the user
// set: then, and elsewhere than in Slurm, it does nothing.
func (p Placement) Comment(ctx context.Context, text string) error {
	if !p.Slurm() {
		return nil
	}
	line, err := scontrol(ctx, "--oneliner", "show", "job", p.Job)
	if err != nil {
		return fmt.Errorf("read the comment of job %s: %w", p.Job, err)
	}
	if hasOwnComment(line) {
		return nil
	}
	if _, err := scontrol(ctx, "update", "JobId="+p.Job, "Comment="+commentMark+text); err != nil {
		return fmt.Errorf("set the comment of job %s: %w", p.Job, err)
	}
	return nil
}

// hasOwnComment reports whether scontrol's line about a job has a comment by the user. A field of a job that
// has spaces may look like a comment: then it counts as one.
func hasOwnComment(line string) bool {
	for part := range strings.SplitSeq(" "+line, " Comment=") {
		if strings.HasPrefix(part, " ") || strings.HasPrefix(part, commentMark) {
			continue
		}
		if word, _, _ := strings.Cut(part, " "); word != "" && word != "(null)" {
			return true
		}
	}
	return false
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
