package proc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// besideBound is how long the kernel has to end what was killed.
	besideBound = 2 * time.Second
	// besideHeld is how long to wait for the output of a command that is gone, where
	// something that it started holds it open.
	besideHeld = 200 * time.Millisecond
)

// Beside runs a command that is none of the ranks, until it ends or ctx is done, and ends
// all that it started: what descends from it, is in its session, or has lost its parents and
// bears the marker of this call. The command must not have been started.
func Beside(ctx context.Context, cmd *exec.Cmd) error {
	mark := "beside-" + rand.Text()
	cmd.Env = append(cmd.Environ(), MarkerVariable+"="+mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = besideHeld
	if err := cmd.Start(); err != nil {
		return err
	}
	first, err := readProcess(cmd.Process.Pid) // it is there until it is waited for
	if err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
		endBeside(first.identity, mark)
	case <-ctx.Done():
		endBeside(first.identity, mark)
		err = context.Cause(ctx)
		select {
		case <-ended:
		case <-time.After(besideBound): // the kernel has it in a call that no signal interrupts
			return fmt.Errorf("%w, and it cannot be ended", err)
		}
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // it has ended well
	}
	return err
}

// endBeside kills what is left of a command.
func endBeside(first identity, mark string) {
	m := newMarker(mark, first.Start, os.Getpid())
	find := func(t table) []process {
		set := map[int]bool{}
		if t.is(first) {
			t.add(set, first.PID)
		}
		t.addBelonging(set, map[int]bool{first.PID: true}, first.Start, m)
		return t.alive(set, map[int]bool{os.Getpid(): true})
	}
	ctx, cancel := context.WithTimeout(context.Background(), besideBound)
	defer cancel()
	sweeper{find: find, direct: func() []process { return nil }}.sweep(ctx)
}
