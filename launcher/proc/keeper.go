package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// helloPatience bounds the wait for a guard's first word: the time that a
	// busy machine takes to start this binary.
	helloPatience = 30 * time.Second
	// releasePatience bounds the wait for a guard to say that its last ranks have
	// ended, and then to go.
	releasePatience = time.Second
	// maxLosses is how many guards a group replaces. Something kills them on
	// purpose then.
	maxLosses = 10
)

// keeper is the supervisor's side of one guard process.
type keeper struct {
	cmd  *exec.Cmd
	link *link
	id   identity
}

// startKeeper starts a guard, and waits for its first word.
func startKeeper(ctx context.Context) (*keeper, error) {
	if _, ok := os.LookupEnv(guardVariable); ok && strings.HasPrefix(os.Args[0], guardName) {
		return nil, errors.New("start guard: this process is one itself: main must call proc.MaybeGuard first")
	}
	ours, theirs, err := pair()
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	defer theirs.Close()
	self := strconv.Itoa(os.Getpid())
	cmd := &exec.Cmd{
		Path:        "/proc/self/exe", // also where the binary has been replaced meanwhile
		Args:        []string{guardName + self},
		Env:         append(os.Environ(), guardVariable+"="+self),
		Stderr:      os.Stderr,
		ExtraFiles:  []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		ours.conn.Close()
		return nil, fmt.Errorf("start guard: %w", err)
	}
	theirs.Close() // or its end would not show
	k := &keeper{cmd: cmd, link: ours}
	p, err := readProcess(cmd.Process.Pid)
	if err == nil {
		k.id = p.identity
		err = k.hello(ctx)
	}
	if err != nil {
		k.bury()
		return nil, fmt.Errorf("start guard: %w", err)
	}
	return k, nil
}

func (k *keeper) hello(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, helloPatience)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = k.link.conn.SetReadDeadline(time.Unix(1, 0)) })
	m, _, err := k.link.receive()
	switch {
	case !stop():
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("no word from it (main must call proc.MaybeGuard first): %w", err)
	case m.Kind != hello:
		return fmt.Errorf("message %d where it should say hello", m.Kind)
	}
	return nil
}

// bury makes sure that a guard is dead, reaps it, and closes the socket: in this
// order, since a living guard takes a closed socket for the supervisor's death.
func (k *keeper) bury() {
	_ = k.cmd.Process.Kill() // os.ErrProcessDone is as good
	_ = k.cmd.Wait()         // its status does not matter
	k.link.conn.Close()
}
