package node

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/launcher"
)

// checkpoints are those that a job writes while it runs.
type checkpoints struct {
	notice   NoticeOptions
	complete func(path string) bool
}

// Checkpoints are those that the job writes, for the launcher; nil where it can resume from none. Complete
// reports whether one is still there and complete.
func (o NoticeOptions) Checkpoints(complete func(path string) bool) launcher.Checkpoints {
	if o.Checkpoint == nil {
		return nil
	}
	return checkpoints{o, complete}
}

// Saved waits for a complete checkpoint of which something was written at or after since, and nothing for
// a while: the job may have begun another one meanwhile.
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

// Complete reports whether a checkpoint is still there and complete.
func (c checkpoints) Complete(path string) bool { return c.complete(path) }

// Deadline is the time by which the run must be over, zero where it is not known.
func (c checkpoints) Deadline(ctx context.Context) time.Time {
	return c.notice.Ends(ctx)
}
