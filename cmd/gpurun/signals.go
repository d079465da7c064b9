package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher"
)

// secondPress is how soon a second Ctrl-C means that ranks are killed at once.
const secondPress = 2 * time.Second

// listen turns signals into a cancelled context. A repeated SIGTERM changes
// nothing, since Slurm sends two; a second Ctrl-C cuts the grace short. SIGHUP
// stops the run unless it is ignored, as under nohup. SIGPIPE is caught so that
// a closed console does not end gpurun.
func listen(ctx context.Context, n *node) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 8)
	caught := []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE}
	if !signal.Ignored(syscall.SIGHUP) {
		caught = append(caught, syscall.SIGHUP)
	}
	signal.Notify(signals, caught...)
	var owner sync.WaitGroup
	owner.Go(func() {
		var pressed time.Time
		for s := range signals {
			number := s.(syscall.Signal)
			if number == syscall.SIGPIPE {
				continue
			}
			if number == syscall.SIGINT && !pressed.IsZero() && time.Since(pressed) < secondPress {
				n.Hurry()
			}
			if number == syscall.SIGINT {
				pressed = time.Now()
			}
			cancel(&launcher.Signal{Number: number})
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		owner.Wait()
		cancel(nil)
	}
}
