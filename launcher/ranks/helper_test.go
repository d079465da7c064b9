package ranks

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/test/testenv"
)

// A helper is this test binary, started with a helper's name as its first
// argument. A helper says the pid of each process that it starts, and its
// own, as a line "pid N" on its stdout once everything is in place.

const helperPrefix = "helper:"

// helpers are the faults. A helper that returns exits 0.
var helpers map[string]func(args []string)

func init() { // not a literal: the supervisor looks helpers up
	helpers = map[string]func(args []string){
		"sleep":    func([]string) { say(os.Getpid()); forever() },
		"deaf":     deaf,
		"heeds":    heeds,
		"obeys":    obeys,
		"exit":     func(args []string) { syscall.Exit(number(args[0])) },
		"signal":   endBySignal,
		"parent":   func([]string) { say(startHelper(nil, false, "sleep"), os.Getpid()); forever() },
		"abandons": func(args []string) { say(startHelper(os.Environ(), false, "deaf")); syscall.Exit(number(args[0])) },
		"setsid":   func([]string) { say(startHelper(os.Environ(), true, "deaf"), os.Getpid()); forever() },
		// Double fork, own session, no environment: nothing is left to know it by.
		"daemon":      func([]string) { say(startHelper(nil, true, "middle"), os.Getpid()); forever() },
		"middle":      func([]string) { say(startHelper(nil, true, "deaf")) },
		"farewell":    func([]string) { say(startHelper(nil, true, "middle")) },
		"hopper":      hopper,
		"floods":      floods,
		"eats":        eats,
		"holds":       func([]string) { eats([]string{"64"}); forever() },
		"hoards":      func([]string) { say(startHelper(nil, false, "holds"), os.Getpid()); forever() },
		"killGuards":  killGuards,
		"leaveOrphan": leaveOrphan,
		"files":       files,
		"headless":    headless,
		"notices":     notices,

		"supervisor": supervisor,
		"init":       initProcess,
		"unlimited":  withoutLimits,
	}
}

func init() {
	if len(os.Args) > 1 && os.Args[1] == helperPrefix+"headless" {
		runtime.LockOSThread() // only an init can hold the main thread
	}
}

func maybeHelper() {
	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], helperPrefix) {
		return
	}
	helpers[strings.TrimPrefix(os.Args[1], helperPrefix)](os.Args[2:])
	syscall.Exit(0) // os.Exit takes a second with the race detector
}

// deaf ignores SIGTERM, as a rank that is stuck in a collective seems to.
func deaf([]string) {
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	say(os.Getpid())
	forever()
}

// heeds ends in its own way on a signal.
func heeds([]string) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGTERM)
	say(os.Getpid())
	<-told
	syscall.Exit(7)
}

// obeys ends with 0 on a signal.
func obeys([]string) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGTERM)
	say(os.Getpid())
	<-told
}

// notices says its pid again for each SIGUSR1.
func notices([]string) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGUSR1)
	for say(os.Getpid()); ; say(os.Getpid()) {
		<-told
	}
}

func endBySignal(args []string) {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		panic(err)
	}
	// Go catches most signals; a shell leaves them alone. What is caught has its
	// default action again behind exec, also where nohup has had it ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.Signal(number(args[0])))
	panic(unix.Exec("/bin/sh", []string{"sh", "-c", "kill -" + args[0] + " $$; sleep 60"}, os.Environ()))
}

// hopper is a chain of processes, each of which starts the next, in a session of
// its own, and ends: whoever kills the one that he saw comes too late. Go starts
// too slowly to be a challenge.
func hopper(args []string) {
	panic(unix.Exec("/bin/sh", []string{"sh", args[0], args[0], "0"}, []string{"PATH=" + os.Getenv("PATH")}))
}

func floods([]string) {
	say(os.Getpid())
	for {
		os.Stderr.WriteString(strings.Repeat("x", 1<<16) + "\n")
	}
}

var hoard []byte // held to the end

func eats(args []string) {
	hoard = make([]byte, number(args[0])<<20)
	for i := 0; i < len(hoard); i += os.Getpagesize() {
		hoard[i] = 1
	}
	say(os.Getpid(), len(hoard))
}

// headless continues after its main thread has ended: it shows as a zombie.
func headless([]string) {
	go func() {
		for {
			if p, err := readProcess(os.Getpid()); err == nil && p.state == 'Z' {
				say(os.Getpid())
				forever()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, _, errno := unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // init has locked main to the main thread; the processor is free for others
	panic(errno)
}

// killGuards kills the guard, which is its parent.
func killGuards([]string) {
	if parent, err := readProcess(os.Getppid()); err == nil && strings.HasPrefix(parent.name, guardName) {
		_ = unix.Kill(parent.PID, unix.SIGKILL)
	}
	say(os.Getpid())
	forever()
}

// leaveOrphan leaves an orphan, which ends when no process holds the other end of stdin.
func leaveOrphan([]string) {
	cmd := exec.Command("/bin/cat")
	cmd.Stdin = os.Stdin
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	say(cmd.Process.Pid)
}

// files prints which descriptors it was given, and the state of signals.
func files([]string) {
	panic(unix.Exec("/bin/sh", []string{"sh", "-c", `ls /proc/self/fd | tr '\n' ' '; grep -E 'SigBlk|SigIgn' /proc/self/status | tr '\n\t' '  '; printf '%s' "$BYTES"`}, os.Environ()))
}

// supervisor starts the helpers that its arguments name, and waits to be killed.
// It says "guard N" for each guard that it has. The variable ENDS is Options.Ends, and a
// SIGUSR1 has it stop the ranks.
func supervisor(args []string) {
	var ranks []Rank
	for i, helper := range args {
		words := strings.Fields(helper)
		argv := helperCommand(nil, false, words[0], words[1:]...).Args
		ranks = append(ranks, Rank{Rank: i, Argv: argv, Env: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr})
	}
	warn := successors(func(pid int) { fmt.Printf("guard %d\n", pid) })
	o := StartOptions{Marker: "kept", Warn: warn}
	if path := os.Getenv("ENDS"); path != "" {
		var err error
		if o.Ends, err = os.Create(path); err != nil {
			panic(err)
		}
		LockEnds(o.Ends)
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGUSR1)
	g, err := Start(context.Background(), ranks, o)
	if err != nil {
		panic(err)
	}
	fmt.Printf("guard %d\n", g.guardID().PID)
	<-told
	g.StopPeers(unix.SIGTERM, nil)
	forever()
}

// successors returns an Options.Warn that passes on the pid of each guard which takes over.
func successors(pass func(pid int)) func(string) {
	return func(text string) {
		if _, pid, found := strings.Cut(text, "was replaced by process "); found {
			pass(number(pid))
		}
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func say(numbers ...int) {
	var text strings.Builder
	for _, n := range numbers {
		fmt.Fprintf(&text, "pid %d\n", n)
	}
	os.Stdout.WriteString(text.String())
}

// forever never returns. A bare select would be a deadlock to the runtime.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// helperCommand makes the command that starts a helper, in a separate session if apart.
func helperCommand(env []string, apart bool, name string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	if env == nil {
		env = []string{}
	}
	return &exec.Cmd{
		Path:        self,
		Args:        append([]string{self, helperPrefix + name}, args...),
		Env:         env,
		Stderr:      os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: apart},
	}
}

// startHelper starts a helper, and returns the pid that it says. It waits for one that
// only stands in the middle.
func startHelper(env []string, apart bool, name string) int {
	cmd := helperCommand(env, apart, name)
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	w.Close()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		panic(err)
	}
	if name == "middle" {
		if err := cmd.Wait(); err != nil {
			panic(err)
		}
	}
	return number(strings.TrimSpace(strings.TrimPrefix(line, "pid ")))
}

// harness collects what helpers say, and sees to it that none outlives the test.
type harness struct {
	t     *testing.T
	r     *bufio.Reader
	w     *os.File
	known []identity
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	r, w, err := os.Pipe()
	testenv.Check(t, err)
	h := &harness{t: t, r: bufio.NewReader(r), w: w}
	t.Cleanup(func() {
		for _, id := range h.known {
			if fd, err := openProcess(id); err == nil {
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
				unix.Close(fd)
			}
		}
		w.Close()
		r.Close()
	})
	return h
}

// rank returns a rank that is a helper of the harness.
func (h *harness) rank(rank int, name string, args ...string) Rank {
	cmd := helperCommand(nil, false, name, args...)
	return Rank{Rank: rank, LocalRank: rank, Argv: cmd.Args, Env: os.Environ(), Stdout: h.w, Stderr: os.Stderr}
}

// word returns the next number that is printed under the given name.
func (h *harness) word(name string) int {
	h.t.Helper()
	for {
		line, err := h.r.ReadString('\n')
		if err != nil {
			h.t.Fatalf("read what the helpers say: %v", err)
		}
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return number(strings.TrimSpace(value))
		}
	}
}

// readProcesses reads n pids, and returns them as processes known from now on.
func (h *harness) readProcesses(n int) []identity {
	h.t.Helper()
	var ids []identity
	for range n {
		pid := h.word("pid")
		p, err := readProcess(pid)
		if err != nil {
			h.t.Fatalf("process %d: %v", pid, err)
		}
		ids = append(ids, p.identity)
	}
	h.known = append(h.known, ids...)
	return ids
}

// gone fails the test for every process that still runs.
func (h *harness) gone(ids ...identity) {
	h.t.Helper()
	for _, id := range ids {
		if p, err := readProcess(id.PID); err == nil && p.identity == id && p.alive() {
			h.t.Errorf("process %d (%s, state %c) is still there", id.PID, p.name, p.state)
		}
	}
}

// awaitGone waits until all have ended, and says how long it took. That comes by an event,
// and not when a guard gives up.
func (h *harness) awaitGone(ids ...identity) time.Duration {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guardBound*3/4)
	defer cancel()
	var fds []int
	for _, id := range ids {
		if fd, err := openProcess(id); err == nil {
			fds = append(fds, fd)
		}
	}
	since := time.Now()
	awaitExits(ctx, fds)
	took := time.Since(since)
	h.gone(ids...)
	return took
}

// start starts a group that is stopped at the end of the test at the latest, and
// checks then that it leaves no descriptor and no child behind.
func (h *harness) start(o StartOptions, ranks ...Rank) *Group {
	h.t.Helper()
	before := descriptorCount(h.t)
	g, err := Start(h.t.Context(), ranks, o)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		g.Kill()
		g.Stop(0)
		if after := descriptorCount(h.t); after > before {
			h.t.Errorf("%d descriptors before the group, %d after it", before, after)
		}
		if pid := g.members[0].id; pidIsChild(h.t, pid.PID) {
			h.t.Errorf("process %d was not reaped", pid.PID)
		}
	})
	return g
}

// guardID names the active guard; zero where there is none.
func (g *Group) guardID() identity {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.guard == nil {
		return identity{}
	}
	return g.guard.id
}

func descriptorCount(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	testenv.Check(t, err)
	return len(entries)
}

func pidIsChild(t *testing.T, pid int) bool {
	t.Helper()
	pids, err := children(os.Getpid())
	testenv.Check(t, err)
	return slices.Contains(pids, pid)
}

const muteVariable = "PROC_TEST_MUTE"

// maybeMute simulates a program that does not call MaybeGuard first.
func maybeMute() {
	if !strings.HasPrefix(os.Args[0], guardName) {
		return
	}
	switch os.Getenv(muteVariable) {
	case "ends":
		syscall.Exit(0)
	case "hangs":
		forever()
	case "starts":
		_, err := Start(context.Background(), []Rank{{Argv: []string{"/bin/true"}}}, StartOptions{})
		fmt.Fprint(os.Stderr, err)
		syscall.Exit(0)
	}
}

// TestMain lets the test binary be the child that a test starts: a guard, a rank, a helper of a rank, a process
// that is killed for its memory, or a gpurun that is killed while it writes a log.
func TestMain(m *testing.M) {
	// With the race detector a process that exits sleeps for a second first.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	maybeMute()
	MaybeGuard()
	maybeHelper()
	if role := os.Getenv(childRole); role != "" {
		os.Exit(playRank(role))
	}
	switch os.Getenv(role) {
	case "watcher":
		watch()
		return
	case "glutton":
		devour()
		return
	}
	if path := os.Getenv(writesVariable); path != "" {
		writeLogs(path)
	}
	goleak.VerifyTestMain(m)
}

// writesVariable is the path of a log that a child writes until it is killed.
const writesVariable = "GPURUN_TEST_WRITES"

func writeLogs(path string) {
	for {
		w, err := CreateLog(path, 16*LeastLog)
		if err != nil {
			panic(err)
		}
		for i := range 6000 {
			if _, err := fmt.Fprintf(w, "line %06d\n", i); err != nil {
				panic(err)
			}
		}
		if err := w.Close(); err != nil {
			panic(err)
		}
	}
}
