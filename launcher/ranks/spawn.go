// Package ranks runs one node's ranks: it starts, signals, reaps and sweeps them as a group; carries their output
// (output.go, logfile.go); and watches the GPUs (gpu.go) and the machine (host.go).
//
// # Topology
//
//	gpurun                the supervisor: decides, signals, sweeps    child subreaper
//	└── grd-<pid>         the outer guard: waits                      child subreaper, own session
//	    └── grd-<pid>     the inner guard: forks and reaps for gpurun child subreaper, own session
//	        ├── rank 0    each in a session of its own
//	        └── rank 1
//
// A parent-death signal reaches one process and not its children, so that it cannot end a rank's
// data loader. A living ancestor can: every orphan below a child subreaper becomes its child,
// whatever session or environment it has. The guards are such ancestors. They are this same binary
// under another name, in their own sessions; the inner one starts the ranks that gpurun sends it
// over a socket, descriptors included, and reports their ends.
//
// Whichever of the three dies, another takes over:
//
//   - gpurun is killed: the guards see it by a pidfd at once, and end all their
//     descendants, within some 10 ms.
//   - A guard is killed: the other one is above the ranks as before. After the inner one's
//     death the ranks are the outer one's children, which reports their ends from then on.
//     Nothing is lost if gpurun dies at the same time.
//   - Both guards are killed: the ranks become gpurun's own children and do not
//     notice; gpurun waits for them itself and starts another guard. That one is no ancestor of
//     the ranks. It looks every 250 ms for processes that they and gpurun's other orphans have
//     started, and ends those if gpurun dies. The next group has full guards again.
//
// A rank that has ended stays a zombie until Stop is done. Its pid, which is also its group's and
// its session's number, cannot pass to a stranger while signals are sent to it. Single processes are
// signalled through pidfds, after their start time has been compared.
//
// Stop finds the group's processes by descent and by session. The marker in the environment counts
// only after both guards have died, and only for an orphan of the same user, started after the
// attempt, in gpurun's control group and Slurm job. Processes that a rank had others start, such as a
// batch job or a window of a terminal multiplexer that ran before, are not touched.
//
// # Limits
//
//   - gpurun and both its guards killed at the same time leave the ranks running. A pkill or
//     killall gpurun does not do that, with or without -f, nor does pidof gpurun;
//     kill -9 $(pidof /path/of/gpurun) does, since it selects by the binary.
//   - After both guards were killed, and until the next group: processes that left a rank's session,
//     cleared their environment and lost their parent less than 250 ms before gpurun is killed too.
//   - A process that a daemon started for a rank bears no sign of the rank.
//   - gpurun killed while its guard waits for a program's file, on a dead network file system: the
//     ranks that were started end when the wait does.
//   - Processes of another user cannot be signalled, and are reported as left over.
//
// # Faults
//
//	fault                                      torchrun                       gpurun                                  test
//	rank ends by a code or a signal            1 for all                      its code, 128+n and the signal          TestExitCodesAndSignals
//	rank ignores SIGTERM                       SIGKILL after 30 s             SIGKILL after the grace                 TestStopLeavesNothing/deaf
//	rank has loader workers                    lost if the rank is dead       SIGTERM with the rank's group           TestStopLeavesNothing/parent
//	leader dead, worker in its group           worker lives on                SIGTERM, SIGKILL to the group           TestStopLeavesNothing/abandons
//	child in its own session                   lives on                       swept                                   TestStopLeavesNothing/setsid
//	double fork, own session, no environment   lives on                       swept                                   TestStopLeavesNothing/daemon
//	rank exits 0 and leaves a daemon           lives on                       swept                                   TestStopLeavesNothing/farewell
//	all ranks exit 0, an uploader continues    orphaned                       waited for, then swept                  TestLingerWaitsForWhatRanksLeft
//	rank blocked on its output                 SIGKILL after 30 s at worst    as any other                            TestStopLeavesNothing/floods
//	chain of processes, each forks the next    lives on                       swept                                   TestStopEndsAChainOfProcesses
//	rank suspended                             SIGKILL after 30 s             wakes and gets its grace                TestStopWakesSuspendedRanks
//	rank uninterruptible in the kernel         hangs for good                 reported after a bound                  TestUnkillableRankIsReported
//	main thread ended, the others continue     counts as running              counts as running, is stopped           TestStopLeavesNothing/headless
//	supervisor killed                          ranks live on                  all gone                                TestKilledSupervisorLeavesNothing
//	supervisor killed as the ranks end         –                              their ends are written                  TestEndsAreWrittenIfAnyProcessIsKilled
//	a guard killed                             –                              job continues under the other one       TestKilledGuardCostsNothing
//	a guard and supervisor killed at once      –                              all gone                                TestSupervisorAndOneGuardKilledTogether
//	both guards killed                         –                              job continues, a guard is started       TestKilledGuardsCostNothing
//	both guards, then supervisor killed        –                              all gone                                TestSuccessorEndsAllToo
//	guard killed while ranks start             –                              error, nothing left                     TestGuardKilledWhileRanksStart
//	guards suspended                           –                              woken when a rank ends                  TestSuspendedGuardsAreWoken
//	guards suspended, then a stop              –                              ranks stopped, their ends reported      TestSuspendedGuard
//	scheduler signals every process            agent and ranks die            the guard stays                         TestGuardSurvivesAllSignalsButKill
//	SIGUSR1 from the scheduler                 ends the job                   reaches ranks that have a handler       TestNoticesReachOnlyThoseThatListen
//	one of several ranks cannot start          agent fails                    error names it, the others are gone     TestStartIsAllOrNone
//	stranger with the same marker              –                              left alone                              TestMarkerAloneIsNotEnough
//	window in a multiplexer that ran before    –                              left alone                              TestMarkerAloneIsNotEnough
//	orphan of a command that gpurun ran        –                              left alone                              TestOrphansOfOtherCommandsAreSpared
//	orphans of others come to PID 1            zombies                        reaped, os/exec's children are not      TestAsTheFirstProcessOfAContainer
//
// torchrun's column is that of PyTorch 2.x (torch/distributed/elastic/multiprocessing/api.py,
// agent/server/local_elastic_agent.py).
package ranks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/system"
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
	return pid, "prlimit RLIMIT_DATA", unix.Prlimit(pid, unix.RLIMIT_DATA,
		&unix.Rlimit{Cur: uint64(m.Data), Max: uint64(m.Data)}, nil)
}

// lowerDataLimit lowers this process's soft RLIMIT_DATA to limit bytes until restore is called. It changes
// nothing if this process itself may need more.
func lowerDataLimit(limit int64) (restore func()) {
	restore = func() {}
	var own unix.Rlimit
	status, err := system.ReadStatus(os.Getpid())
	if err != nil || limit <= system.ProcBytes(status["VmData"])+guardHeadroom ||
		unix.Getrlimit(unix.RLIMIT_DATA, &own) != nil {
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
	return message{Kind: spawn, Path: octets(path), Argv: convert[octets](r.Argv), Env: convert[octets](env),
		Dir: octets(dir), Data: o.DataLimit}, nil
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
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() &&
			unix.Access(candidate, unix.X_OK) == nil {
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

// A Rank is one process to start.
type Rank struct {
	Rank      int // global
	LocalRank int
	// Argv is the command and its arguments. A command without a slash is looked up in the PATH of Env.
	Argv []string
	// Env is the whole environment, as KEY=value.
	Env []string
	// Dir is the working directory; empty means gpurun's own.
	Dir string
	// Stdin, Stdout and Stderr are the rank's own ends; nil means /dev/null. The caller keeps them, and must
	// close its copies after Start, or a reader never sees the end of a pipe.
	Stdin, Stdout, Stderr *os.File
}

// StartOptions are the same for all ranks of a group.
type StartOptions struct {
	// Marker is the value of GPURUN_RUN_ID in each rank's environment, new for each group. Without it,
	// orphans cannot be found after all guards have died.
	Marker string
	// DataLimit is RLIMIT_DATA in bytes of each rank, and of what it starts: private writable memory that a
	// process may map. 0 means none. An allocation beyond it fails with ENOMEM.
	DataLimit int64
	// Ends is the file for the ranks' ends, which are written if all ended with 0 by themselves, even if
	// gpurun is killed meanwhile; see LockEnds. The caller keeps it. Nil for none.
	Ends *os.File
	// Warn reports problems that are no error of the job, such as the loss of a guard. May be nil.
	Warn func(text string)
	// KillTimeout bounds how long Stop waits for processes that SIGKILL does not end at once. 0 means 30 s.
	KillTimeout time.Duration
}

// A StopReport reports how a group was stopped.
type StopReport struct {
	// Killed are the global ranks that were still running after the grace, in ascending order.
	Killed []int
	// Swept counts the other processes that were killed.
	Swept int
	// Leftover are processes that remain: they are uninterruptible, or belong to another user.
	Leftover []Leftover
}
