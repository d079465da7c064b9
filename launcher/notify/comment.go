package notify

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/system"
)

// commentBound bounds each try to set a comment, and how long the end of a run waits for the last one.
const commentBound = 5 * time.Second

// A Comment keeps a scheduler's comment on the job up to date, at each rescue and at the end. A nil one does
// nothing. The run never waits for the scheduler; its end does so within commentBound.
type Comment struct {
	set    func(ctx context.Context, text string) error
	note   func(text string)
	worker *system.Worker

	mu    sync.Mutex // guards what follows
	state journal.Run
	text  string
}

// NewComment returns the comment of a run, which set writes, and show with it behind.
func NewComment(
	set func(ctx context.Context, text string) error, show func(launcher.Event),
) (*Comment, func(launcher.Event)) {
	c := &Comment{set: set, worker: system.NewWorker(), state: journal.Run{Most: journal.Recent}}
	return c, func(e launcher.Event) {
		show(e)
		c.see(e)
	}
}

// Begin starts to write comments. events are those of the run before this process; note gets a warning, and
// must not block. It returns a function that ends that.
func (c *Comment) Begin(ctx context.Context, events []launcher.Event, note func(text string)) (end func()) {
	if c == nil {
		return func() {}
	}
	for _, e := range events {
		c.state.Add(e)
	}
	c.note = note
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.worker.Start(0, func() { c.write(ctx) })
	return func() {
		c.worker.Close()
		c.worker.Wait(ctx, commentBound)
		cancel()
		c.worker.Wait(context.Background(), cancelBound)
	}
}

func (c *Comment) see(e launcher.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Add(e)
	text := ""
	switch e := e.(type) {
	case launcher.Decided:
		if last := c.state.Last(); last != nil && e.Decision.Relaunch {
			text = e.GPUTime.Comment("", c.state.Attempts[0].Plan, e.Decision.Next, last.N+2)
		}
	case launcher.Finished:
		if last := c.state.Launched(); last != nil {
			text = e.Verdict.GPUTime.Comment(e.Verdict.Outcome, c.state.Attempts[0].Plan, last.Plan, last.N+1)
		}
	}
	if text != "" {
		c.text = text
		c.worker.Wake()
	}
}

// write sets the newest comment, and warns once if that fails.
func (c *Comment) write(ctx context.Context) {
	c.mu.Lock()
	text := c.text
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, commentBound)
	defer cancel()
	if err := c.set(ctx, text); err != nil && c.note != nil {
		c.note(fmt.Sprintf("warning: the comment on the job cannot be set: %v", err))
		c.note = nil
	}
}
