package ranks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/gpurun/gpurun/launcher/system"
	"golang.org/x/sys/unix"
)

// spawnRank starts a process in its own session with its limits. It returns the pid and a pidfd, or the
// call that failed.
//
// The process gets no parent-death signal: it would die with the guard, and a guard's death must not
// cost the job.
func spawnRank(m message, fds []int) (pid, pidfd int, call string, err error) {
	if len(fds) != 3 {
		return 0, -1, "recvmsg", unix.EBADF
	}
	pidfd = -1
	attr := &syscall.ProcAttr{
		Dir:   string(m.Dir),
		Env:   convert[string](m.Env),
		Files: []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	}
	pid, call, err = forkLimited(m, attr)
	if pid == 0 {
		return 0, -1, call, err
	}
	if err == nil && pidfd < 0 {
		pidfd, err = unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
		call = "pidfd_open"
	}
	if err != nil {
		_ = unix.Kill(-pid, unix.SIGKILL) // the pid is valid: not reaped yet
		_, _ = unix.Wait4(pid, nil, 0, nil)
		if pidfd >= 0 {
			unix.Close(pidfd)
		}
		return 0, -1, call, err
	}
	return pid, pidfd, "", nil
}

// guardHeadroom is the data in bytes that a guard may need while it starts a rank: Go's runtime takes 64 MiB
// at a time for its heap.
const guardHeadroom = 128 << 20

// forkLimited starts a process under RLIMIT_DATA = m.Data. The child inherits the limit from this process. A
// limit set after the start would be too late: a shell starts its first command within a millisecond.
func forkLimited(m message, attr *syscall.ProcAttr) (pid int, call string, err error) {
	path, argv := string(m.Path), convert[string](m.Argv)
	// Not os.StartProcess, which may start another child to test the kernel.
	if m.Data == 0 {
		pid, err = syscall.ForkExec(path, argv, attr)
		return pid, "exec", err
	}
	restore := lowerDataLimit(m.Data)
	pid, err = syscall.ForkExec(path, argv, attr)
	restore()
	if err != nil {
		return 0, "exec", err
	}
	return pid, "prlimit RLIMIT_DATA", unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: uint64(m.Data), Max: uint64(m.Data)}, nil)
}

// lowerDataLimit lowers this process's soft RLIMIT_DATA to limit bytes until restore is called. It changes
// nothing if this process itself may need more.
func lowerDataLimit(limit int64) (restore func()) {
	restore = func() {}
	var own unix.Rlimit
	status, err := system.ReadStatus(os.Getpid())
	if err != nil || limit <= system.ProcBytes(status["VmData"])+guardHeadroom || unix.Getrlimit(unix.RLIMIT_DATA, &own) != nil {
		return restore
	}
	if unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: min(uint64(limit), own.Max), Max: own.Max}) == nil {
		restore = func() { _ = unix.Setrlimit(unix.RLIMIT_DATA, &own) }
	}
	return restore
}

// spawnMessage makes the message that starts a rank.
func spawnMessage(r Rank, o StartOptions, workdir string) (message, error) {
	if len(r.Argv) == 0 {
		return message{}, errors.New("empty command")
	}
	dir := r.Dir
	if dir == "" {
		dir = workdir
	}
	if info, err := os.Stat(dir); err != nil {
		return message{}, fmt.Errorf("working directory: %w", err)
	} else if !info.IsDir() {
		return message{}, &os.PathError{Op: "working directory", Path: dir, Err: syscall.ENOTDIR}
	}
	env := slices.Clone(r.Env)
	if o.Marker != "" {
		env = slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, MarkerVariable+"=") })
		env = append(env, MarkerVariable+"="+o.Marker)
	}
	path, err := lookPath(r.Argv[0], env, dir)
	if err != nil {
		return message{}, err
	}
	return message{Kind: spawn, Path: octets(path), Argv: convert[octets](r.Argv), Env: convert[octets](env), Dir: octets(dir), Data: o.DataLimit}, nil
}

// lookPath finds a program by the rank's PATH, from the rank's directory. os/exec would use gpurun's PATH.
func lookPath(name string, env []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var path string
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	for _, folder := range filepath.SplitList(path) {
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(dir, folder)
		}
		candidate := filepath.Join(folder, name)
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() && unix.Access(candidate, unix.X_OK) == nil {
			return candidate, nil
		}
	}
	return "", &os.PathError{Op: "find in the rank's PATH", Path: name, Err: syscall.ENOENT}
}

// stdio returns the three descriptors of a rank's standard files; null replaces missing ones.
func (r Rank) stdio(null *os.File) [3]*os.File {
	files := [3]*os.File{r.Stdin, r.Stdout, r.Stderr}
	for i, f := range files {
		if f == nil {
			files[i] = null
		}
	}
	return files
}
