package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A checkpoint counts once nothing of it was written for a while, or the job has begun
// the next one.
func TestSavedCheckpoints(t *testing.T) {
	for name, test := range map[string]struct {
		writes map[string]time.Duration // when a checkpoint was last written
		want   string
		after  time.Duration
	}{
		"one":                {map[string]time.Duration{"ckpt-1": 10 * time.Second}, "ckpt-1", 13 * time.Second},
		"one after the next": {map[string]time.Duration{"ckpt-1": 10 * time.Second, "ckpt-2": 11500 * time.Millisecond}, "ckpt-1", 12 * time.Second},
		"none":               {nil, "", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				newest := func(since time.Time) string {
					last, path := time.Time{}, ""
					for name, after := range test.writes {
						at := begin.Add(after)
						if !at.Before(since) && !at.After(time.Now()) && at.After(last) {
							last, path = at, name
						}
					}
					return path
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				saved := NoticeOptions{Checkpoint: newest}.Checkpoints(func(string) bool { return true })
				path, found := saved.Saved(ctx, begin)
				if took := time.Since(begin); path != test.want || found != (test.want != "") || took != test.after {
					t.Errorf("%q, %v after %s", path, found, took)
				}
			})
		})
	}
}

func TestDeadlineOfASpeedUp(t *testing.T) {
	now := time.Now()
	o := NoticeOptions{
		Checkpoint: func(time.Time) string { return "" }, Deadline: now.Add(2 * time.Hour),
		Scheduler: func(context.Context) (time.Time, bool) { return now.Add(time.Hour), true },
	}
	if end := o.Checkpoints(nil).Deadline(t.Context()); !end.Equal(now.Add(time.Hour)) {
		t.Errorf("the scheduler's end is %s", end)
	}
	o.Scheduler = nil
	if end := o.Checkpoints(nil).Deadline(t.Context()); !end.Equal(o.Deadline) {
		t.Errorf("the user's is %s", end)
	}
	if (NoticeOptions{}).Checkpoints(nil) != nil {
		t.Error("a job whose checkpoints nobody knows has some")
	}
}
