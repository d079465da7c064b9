package ranks

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

const (
	// besideBound bounds the wait for the end of killed processes.
	besideBound = 2 * time.Second
	// besideHeld is how long to wait for more output of a command that is gone, if a process that could not
	// be killed holds its output open.
	besideHeld = 200 * time.Millisecond
)

// A SideCommand is a program that gpurun runs besides the ranks. It inherits gpurun's environment.
type SideCommand struct {
	Argv   []string
	Dir    string
	Stdin  []byte
	Stderr io.Writer // receives the program's stderr; its stdout is dropped
}

// RunBeside runs a command until it ends or ctx is done, and ends everything that it started, as Stop does. The
// command has separate guards, so that nothing of it remains if gpurun is killed. The error is that of Start,
// the cause of ctx, or the command's failure.
func RunBeside(ctx context.Context, c SideCommand) (err error) {
	stdin, feed, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("open a pipe: %w", err)
	}
	errs, stderr, err := os.Pipe()
	if err != nil {
		stdin.Close()
		feed.Close()
		return fmt.Errorf("open a pipe: %w", err)
	}
	rank := Rank{Argv: c.Argv, Env: os.Environ(), Dir: c.Dir, Stdin: stdin, Stderr: stderr}
	g, err := Start(ctx, []Rank{rank}, StartOptions{Marker: "beside-" + rand.Text(), KillTimeout: besideBound})
	stdin.Close()
	stderr.Close()
	fed, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(fed)
		_, _ = feed.Write(c.Stdin) // no error: a command need not read its stdin
		feed.Close()
	}()
	go func() {
		defer close(read)
		_, _ = io.Copy(c.Stderr, errs)
	}()
	switch {
	case err == nil:
		err = g.outcome(ctx)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	held := time.NewTimer(besideHeld)
	defer held.Stop()
	select {
	case <-read:
	case <-held.C:
	}
	feed.Close() // a process that could not be killed may still have the other ends open
	errs.Close()
	<-fed
	<-read
	return err
}

// outcome waits for the only rank, stops the group, and returns the rank's failure.
func (g *Group) outcome(ctx context.Context) error {
	var fact strategy.Fact
	select {
	case fact = <-g.Exits():
	case <-ctx.Done():
	}
	report := g.Stop(0)
	switch exit := fact.Exit(); {
	case exit == nil && len(report.Leftover) > 0: // it is in a system call that no signal interrupts
		return fmt.Errorf("%w, and it cannot be ended", context.Cause(ctx))
	case exit == nil:
		return context.Cause(ctx)
	case exit.Signal != 0:
		return fmt.Errorf("signal: %v", syscall.Signal(exit.Signal))
	case exit.Code != 0:
		return fmt.Errorf("exit status %d", exit.Code)
	}
	return nil
}
