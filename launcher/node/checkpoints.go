package node

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/launcher"
)

// checkpoints finds the checkpoints that a job writes while it runs.
type checkpoints struct {
	notice   NoticeOptions
	complete func(path string) bool
}

// Checkpoints returns the finder of the job's checkpoints for the launcher; nil if the job cannot resume.
// complete reports whether a checkpoint still exists and is complete.
func (o NoticeOptions) Checkpoints(complete func(path string) bool) launcher.Checkpoints {
	if o.Checkpoint == nil {
		return nil
	}
	return checkpoints{o, complete}
}

// Saved waits for a complete checkpoint that was written at or after since, at least in part, and that
// nothing has written to for a while. The job may have begun another one meanwhile.
func (c checkpoints) Saved(ctx context.Context, since time.Time) (path string, found bool) {
	look := time.NewTicker(checkpointLook)
	defer look.Stop()
	for seen := (freshCheckpoint{}); ; {
		select {
		case <-ctx.Done():
			return "", false
		case now := <-look.C:
			if seen.complete(c.notice.Checkpoint, since, now) {
				return seen.path, true
			}
		}
	}
}

// Complete reports whether a checkpoint still exists and is complete.
func (c checkpoints) Complete(path string) bool { return c.complete(path) }

// Deadline is the time by which the run must be over, zero if not known.
func (c checkpoints) Deadline(ctx context.Context) time.Time {
	return c.notice.Ends(ctx)
}
