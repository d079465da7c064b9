package ranks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// helloTimeout bounds the wait for a guard's first message: this binary starts slowly on a busy machine.
	helloTimeout = 30 * time.Second
	// releaseTimeout bounds the wait for a guard to report the last ends, and then to exit.
	releaseTimeout = time.Second
	// maxLosses bounds the guards that a group replaces: after so many, something kills them on purpose.
	maxLosses = 10
)

// ErrNoGuard is the error of Start if a guard ends before its first message: main does not call MaybeGuard,
// or the machine is short of processes or memory.
var ErrNoGuard = errors.New("the guard process ended before its first message")

// guardHandle is the supervisor's side of one guard process.
type guardHandle struct {
	link  *guardLink
	id    identity
	pidfd *os.File
	// gone is closed when a guard that is this process's own child has been reaped. It is nil for an inner
	// guard.
	gone <-chan struct{}
}

// Guards are the guard processes of a group that will be started. They initialise while the caller prepares the
// job: Start or Close must be called in the end.
type Guards struct {
	launched     chan struct{} // closed when what follows is set
	outer, inner *guardHandle
	release      func() // of the reaper
	err          error  // why there are none
	used         bool
}

// LaunchGuards starts an outer guard, which starts an inner one. It does not wait for them, and leaves errors to
// Start.
func LaunchGuards() *Guards {
	g := &Guards{launched: make(chan struct{})}
	go func() { // Start and Close wait for it
		defer close(g.launched)
		if g.release, g.err = Reap(); g.err != nil {
			return
		}
		if err := g.launch(); err != nil {
			g.release()
			g.err = fmt.Errorf("start guard: %w", err)
		}
	}()
	return g
}

func (g *Guards) launch() error {
	ours, theirs, err := pair()
	if err != nil {
		return err
	}
	defer theirs.Close() // else this side would not see its end
	if g.outer, err = launchGuard(theirs); err != nil {
		ours.conn.Close()
		return err
	}
	g.inner = &guardHandle{link: ours}
	return nil
}

// Unused returns these guards if no group was started with them, else new ones.
func (g *Guards) Unused() *Guards {
	if g == nil || g.used {
		return LaunchGuards()
	}
	return g
}

// await waits for the inner guard's first message. Guards that have died, perhaps while the caller waited for
// something else, are replaced once.
func (g *Guards) await(ctx context.Context) error {
	g.used = true
	err := g.hello(ctx)
	if errors.Is(err, ErrNoGuard) {
		again := LaunchGuards()
		err = again.hello(ctx)
		g.outer, g.inner, g.release = again.outer, again.inner, again.release
	}
	return err
}

func (g *Guards) hello(ctx context.Context) error {
	<-g.launched
	if g.err != nil {
		return g.err
	}
	if err := g.inner.hello(ctx); err != nil {
		g.cleanUp()
		return fmt.Errorf("start guard: %w", err)
	}
	return nil
}

func (g *Guards) cleanUp() {
	g.inner.cleanUp()
	g.outer.cleanUp()
	g.release()
}

// Close ends guards with which no group was started.
func (g *Guards) Close() {
	if !g.used && g.hello(context.Background()) == nil { // only then are both known
		g.cleanUp()
	}
}

// startGuard starts a single guard, and waits for its first message.
func startGuard(ctx context.Context) (*guardHandle, error) {
	k, err := launchGuard()
	if err == nil {
		if err = k.hello(ctx); err == nil {
			return k, nil
		}
		k.cleanUp()
	}
	return nil, fmt.Errorf("start guard: %w", err)
}

// launchGuard starts a guard that is this process's child. If a socket is given, it is an outer guard, and
// starts another guard with that socket.
func launchGuard(inner ...*os.File) (*guardHandle, error) {
	if _, ok := os.LookupEnv(guardVariable); ok && strings.HasPrefix(os.Args[0], guardName) {
		return nil, errors.New("this process is one itself: main must call ranks.MaybeGuard first")
	}
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	self, err := readProcess(os.Getpid())
	if err != nil {
		ours.conn.Close()
		return nil, err
	}
	cmd := guardCommand(self.identity, len(inner) > 0)
	cmd.ExtraFiles = append([]*os.File{theirs}, inner...)
	if err := cmd.Start(); err != nil {
		ours.conn.Close()
		return nil, err
	}
	gone := make(chan struct{})
	k := &guardHandle{link: ours, gone: gone}
	err = k.identify(cmd.Process.Pid) // the pid is valid: not reaped yet
	go func() {                       // cleanUp waits for it
		defer close(gone)
		_ = cmd.Wait() // its status does not matter
	}()
	if err != nil {
		_ = cmd.Process.Kill()
		<-gone
		ours.conn.Close()
		return nil, err
	}
	return k, nil
}

// guardCommand returns the command of a guard for the supervisor owner.
func guardCommand(owner identity, outer bool) *exec.Cmd {
	value := fmt.Sprintf("%d %d", owner.PID, owner.Start)
	if outer {
		value += " outer"
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, guardVariable+"=") })
	return &exec.Cmd{
		Path:        "/proc/self/exe", // works even if the binary has been replaced meanwhile
		Args:        []string{guardName + strconv.Itoa(owner.PID)},
		Env:         append(env, guardVariable+"="+value),
		Stderr:      os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
}

// identify opens a pidfd of the guard's process.
func (k *guardHandle) identify(pid int) error {
	p, err := readProcess(pid)
	if err != nil {
		return err
	}
	fd, err := openProcess(p.identity)
	if err != nil {
		return err
	}
	k.id = p.identity
	k.pidfd, err = pidfdFile(fd)
	return err
}

func (k *guardHandle) hello(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = k.link.conn.SetReadDeadline(time.Unix(1, 0)) })
	m, _, err := k.link.receive()
	switch {
	case !stop():
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNoGuard, err)
	case m.Kind != hello:
		return fmt.Errorf("message %d in place of hello", m.Kind)
	case k.pidfd == nil:
		return k.identify(m.PID)
	}
	return nil
}

// kill ends the guard, unless it is dead already.
func (k *guardHandle) kill() {
	if k.pidfd != nil {
		_ = signalProcess(k.pidfd, syscall.SIGKILL)
	}
}

// cleanUp makes sure that a guard is dead before it closes the socket, since a living guard treats a closed
// socket as the supervisor's death.
func (k *guardHandle) cleanUp() {
	k.kill()
	if k.pidfd != nil {
		_ = awaitExit(k.pidfd) // it cannot fail before the file is closed
		k.pidfd.Close()
	}
	if k.gone != nil {
		<-k.gone
	}
	k.link.conn.Close()
}

// leastAddressSpace is that of gpurun and its guards: Go and the threads of C reserve much more than they
// use.
const leastAddressSpace = 2 << 30

// ErrProc and ErrAddressSpace are wrapped by the errors of Usable.
var (
	ErrProc         = errors.New("/proc does not show this process")
	ErrAddressSpace = errors.New("the address space is limited (ulimit -v, RLIMIT_AS)")
)

// CheckProcesses returns why ranks cannot be supervised on this machine; nil if they can. If /proc belongs to another
// namespace, the ranks' pids name other processes there: gpurun would miss the ranks' ends, and signal the
// wrong processes.
func CheckProcesses() error {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProc, err)
	}
	if self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("%w: it is of another namespace, where this process is %s and not %d", ErrProc,
			strings.TrimSpace(self), os.Getpid())
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &limit); err == nil && limit.Cur < leastAddressSpace {
		return fmt.Errorf("%w to %d MiB, and gpurun reserves up to %d MiB", ErrAddressSpace, limit.Cur>>20,
			leastAddressSpace>>20)
	}
	return nil
}
