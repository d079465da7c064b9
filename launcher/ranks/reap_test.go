package ranks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/test/testenv"
)

// reapBesideExec lets orphans of strangers come to this process while it runs
// commands of its own, and reports what goes wrong.
func reapBesideExec() error {
	release, err := Reap()
	if err != nil {
		return err
	}
	defer release()
	for i := range 6 {
		_, orphan, err := newOrphan(true)
		if err != nil {
			return err
		}
		var exit *exec.ExitError
		if err := helperCommand(os.Environ(), true, "exit", "9").Run(); !errors.As(err, &exit) || exit.ExitCode() != 9 {
			return fmt.Errorf("command %d of its own: %w", i, err)
		}
		if err := orphan(); err != nil {
			return err
		}
	}
	return nil
}

// newOrphan brings a process here whose parent has ended, from a session of its own
// or not. The function that it returns ends the process, and waits until it is
// reaped.
func newOrphan(apart bool) (int, func() error, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer r.Close()
	cmd := helperCommand(os.Environ(), apart, "leaveOrphan")
	cmd.Stdin = r
	out, err := cmd.Output()
	if err != nil {
		return 0, nil, fmt.Errorf("parent of an orphan: %w", err)
	}
	pid := number(strings.TrimSpace(strings.TrimPrefix(string(out), "pid ")))
	p, err := readProcess(pid)
	if err != nil {
		return 0, nil, err
	}
	if p.parent != os.Getpid() {
		return 0, nil, fmt.Errorf("orphan %d has come to %d", pid, p.parent)
	}
	return pid, func() error {
		w.Close()
		for range 120_000 { // two minutes, for one that never is
			if _, err := readProcess(pid); err != nil {
				return nil
			}
			unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil)
		}
		return fmt.Errorf("orphan %d was not reaped", pid)
	}, nil
}

func TestReapTakesOrphansAndNoChildOfExec(t *testing.T) {
	if err := reapBesideExec(); err != nil {
		t.Error(err)
	}
}

// initProcess is the first process of a PID namespace: a container's gpurun.
func initProcess([]string) {
	if err := asInit(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		syscall.Exit(1)
	}
}

func asInit() error {
	if pid := os.Getpid(); pid != 1 {
		return fmt.Errorf("pid %d instead of 1", pid)
	}
	// The mount point itself, since the root folder is none in a chroot.
	if err := unix.Mount("", "/proc", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	var ranks []Rank
	for i, name := range []string{"daemon", "farewell", "abandons", "heeds"} {
		ranks = append(ranks, Rank{Rank: i, Argv: helperCommand(nil, false, name, "0").Args, Env: os.Environ(), Stdout: w, Stderr: os.Stderr})
	}
	g, err := Start(context.Background(), ranks, StartOptions{Marker: "init"})
	if err != nil {
		return err
	}
	w.Close()
	for range 5 { // what the four say, in all
		var pid int
		if _, err := fmt.Fscanf(r, "pid %d\n", &pid); err != nil {
			return fmt.Errorf("read what the helpers say: %w", err)
		}
	}
	ended := []int{(<-g.Exits()).Rank, (<-g.Exits()).Rank}
	if ended[0]+ended[1] != 3 {
		return fmt.Errorf("ranks %v have ended by themselves", ended)
	}
	if err := reapBesideExec(); err != nil {
		return err
	}
	g.Kill()
	g.Stop(0)
	t, err := snapshot()
	if err != nil {
		return err
	}
	if len(t.procs) != 1 {
		return fmt.Errorf("left: %+v", t.procs)
	}
	return nil
}

func TestAsTheFirstProcessOfAContainer(t *testing.T) {
	cmd := helperCommand(os.Environ(), false, "init")
	var word strings.Builder
	cmd.Stdout, cmd.Stderr = &word, &word
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	err := cmd.Start()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EINVAL) {
		t.Skipf("this machine gives no PID namespace: %v", err)
	}
	testenv.Check(t, err)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, word.String())
	}
}
