package ranks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// childRole is the variable that makes the test binary play a rank.
const childRole = "OUTPUT_TEST_RANK"

// playRank is what a rank does in these tests.
func playRank(role string) int {
	name, arg, _ := strings.Cut(role, ":")
	switch name {
	case "bytes": // all byte values on stdout, and something on stderr
		for i := range 256 {
			os.Stdout.Write([]byte{byte(i)})
		}
		os.Stderr.WriteString("no newline at the end")
	case "lines": // lines in pieces, so that those of several ranks meet
		for i := range 400 {
			line := fmt.Sprintf("rank %s line %d %s\n", arg, i, strings.Repeat(arg, 40))
			os.Stdout.WriteString(line[:i%len(line)])
			os.Stdout.WriteString(line[i%len(line):])
		}
	case "terminal":
		width, height, err := term.GetSize(1)
		fmt.Printf("%v %v %dx%d %v\n", term.IsTerminal(1), term.IsTerminal(2), width, height, err)
	case "console": // not a rank: a launcher whose stdout is closed
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		o, err := OpenOutput(OutputOptions{Ranks: []int{0}, Dir: arg, Stdout: os.Stdout, Stderr: os.Stderr})
		if err != nil {
			return 1
		}
		out, _ := o.Files(0)
		out.WriteString("nobody reads this\n")
		if o.Wait(context.Background()) != nil {
			return 1
		}
	case "leave": // a process that outlives the rank and holds its stdout
		left := exec.Command("sleep", "600")
		left.Stdout = os.Stdout
		if err := left.Start(); err != nil {
			return 1
		}
		fmt.Println(left.Process.Pid)
	}
	return 0
}

// startRank starts the test binary as a rank.
func startRank(t *testing.T, o *Output, rank int, role string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, "GORACE=atexit_sleep_ms=0")
	stdout, stderr := o.Files(rank)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	testenv.Check(t, cmd.Start())
	return cmd
}

// screen is a console in memory that can be asked for what it shows.
type screen struct {
	mu   sync.Mutex
	cond sync.Cond
	text bytes.Buffer
}

func newScreen() *screen {
	s := &screen{}
	s.cond.L = &s.mu
	return s
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cond.Broadcast()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until the screen shows exactly a text.
func (s *screen) await(t *testing.T, want string) {
	t.Helper()
	late := time.AfterFunc(2*time.Minute, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.text.WriteString("<waited too long>")
		s.cond.Broadcast()
	})
	defer late.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.text.String() != want {
		if strings.HasSuffix(s.text.String(), "<waited too long>") {
			t.Fatalf("console shows %q, want %q", s.text.String(), want)
		}
		s.cond.Wait()
	}
}

// open opens an Output for ranks 0 to n-1, with defaults for what a test leaves out.
func open(t *testing.T, n int, o OutputOptions) *Output {
	t.Helper()
	for k := range n {
		o.Ranks = append(o.Ranks, k)
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	out, err := OpenOutput(o)
	testenv.Check(t, err)
	t.Cleanup(func() { out.Wait(context.Background()) })
	return out
}

func wait(t *testing.T, o *Output) {
	t.Helper()
	testenv.Check(t, o.Wait(context.Background()))
}

func writeOutput(t *testing.T, f *os.File, text string) {
	t.Helper()
	if _, err := f.WriteString(text); err != nil {
		t.Error(err)
	}
}

func logOf(t *testing.T, o *Output, rank int, stream string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(o.opts.Dir, fmt.Sprintf("rank%d", rank), stream+".log"))
	testenv.Check(t, err)
	return string(text)
}

func TestOneRankPassesEveryByte(t *testing.T) {
	stdout, stderr := newScreen(), newScreen()
	o := open(t, 1, OutputOptions{Stdout: stdout, Stderr: stderr})
	cmd := startRank(t, o, 0, "bytes")
	o.Started()
	testenv.Check(t, cmd.Wait())
	wait(t, o)
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	for _, got := range []string{stdout.String(), logOf(t, o, 0, "stdout")} {
		if got != string(all) {
			t.Errorf("stdout is %q", got)
		}
	}
	for _, got := range []string{stderr.String(), logOf(t, o, 0, "stderr")} {
		if got != "no newline at the end" {
			t.Errorf("stderr is %q", got)
		}
	}
}

func TestLinesOfSeveralRanksStayWhole(t *testing.T) {
	const ranks = 6
	stdout := newScreen()
	o := open(t, ranks, OutputOptions{Stdout: stdout})
	var cmds []*exec.Cmd
	for k := range ranks {
		cmds = append(cmds, startRank(t, o, k, fmt.Sprintf("lines:%d", k)))
	}
	o.Started()
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	wait(t, o)
	next := [ranks]int{}
	for line := range strings.Lines(stdout.String()) {
		var k int
		if _, err := fmt.Sscanf(line, "rank %d", &k); err != nil {
			t.Fatalf("a torn line: %q", line)
		}
		digit := fmt.Sprint(k)
		if want := fmt.Sprintf("rank %d line %d %s\n", k, next[k], strings.Repeat(digit, 40)); line != want {
			t.Fatalf("got line %q, want %q", line, want)
		}
		next[k]++
	}
	for k, n := range next {
		if n != 400 || strings.Count(logOf(t, o, k, "stdout"), "\n") != 400 {
			t.Errorf("rank %d shows %d lines", k, n)
		}
	}
}

func TestAnUnfinishedLineIsShownAndKeptApart(t *testing.T) {
	screen := newScreen()
	o := open(t, 2, OutputOptions{Stdout: screen, Stderr: screen})
	out0, err0 := o.Files(0)
	out1, _ := o.Files(1)
	writeOutput(t, out0, "loading ")
	screen.await(t, "loading ")
	writeOutput(t, err0, "(slowly) ") // The same rank's other stream: as without gpurun.
	screen.await(t, "loading (slowly) ")
	writeOutput(t, out1, "hello\n")
	screen.await(t, "loading (slowly) \nhello\n")
	writeOutput(t, out0, "done\n")
	screen.await(t, "loading (slowly) \nhello\ndone\n")
	wait(t, o)
	if got := logOf(t, o, 0, "stdout"); got != "loading done\n" {
		t.Errorf("the log of rank 0 is %q", got)
	}
}

func TestProgressBarsOfSeveralRanksAreDrawnOverEachOther(t *testing.T) {
	screen := newScreen()
	o := open(t, 2, OutputOptions{Stderr: screen})
	_, err0 := o.Files(0)
	_, err1 := o.Files(1)
	writeOutput(t, err0, "\r10%|#")
	screen.await(t, "\r10%|#")
	writeOutput(t, err1, "\r12%|#")
	screen.await(t, "\r10%|#\r12%|#")
	writeOutput(t, err0, "\r20%|##\r30%|###\r")
	screen.await(t, "\r10%|#\r12%|#\r20%|##\r30%|###")
	writeOutput(t, err1, "warning\n")
	screen.await(t, "\r10%|#\r12%|#\r20%|##\r30%|###\nwarning\n")
	wait(t, o)
}

func TestRoutesOfTorchrun(t *testing.T) {
	tests := []struct {
		name           string
		options        OutputOptions
		stdout, stderr string
	}{
		{"all", OutputOptions{}, "o0\no1\n", "e0\ne1\n"},
		{"-r 1", OutputOptions{Redirect: map[int]StreamSet{AllRanks: Stdout}}, "", "e0\ne1\n"},
		{"-r 0:3,1:2", OutputOptions{Redirect: map[int]StreamSet{0: Both, 1: Stderr}}, "o1\n", ""},
		{"-t 3", OutputOptions{Tee: map[int]StreamSet{AllRanks: Both}}, "[default0]:o0\n[default1]:o1\n", "[default0]:e0\n[default1]:e1\n"},
		{"-t 1:2", OutputOptions{Tee: map[int]StreamSet{1: Stderr}}, "o0\no1\n", "[default1]:e1\ne0\n"},
		{"-r 3 -t 1", OutputOptions{Redirect: map[int]StreamSet{AllRanks: Both}, Tee: map[int]StreamSet{AllRanks: Stdout}}, "[default0]:o0\n[default1]:o1\n", ""},
		{"--local-ranks-filter 1", OutputOptions{Filter: []int{1}}, "o1\n", "e1\n"},
		{"no rank", OutputOptions{Filter: []int{}}, "", ""},
		{
			"template", OutputOptions{
				Role: "trainer", Group: 2, Restarts: 1, Tee: map[int]StreamSet{AllRanks: Stdout},
				Template: "$$${role_name}/$rank/${group_rank}/$restart_count/$other ",
			}, "$trainer/4/2/1/$other o0\n$trainer/5/2/1/$other o1\n", "e0\ne1\n",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			stdout, stderr := newScreen(), newScreen()
			test.options.Ranks = []int{4, 5}
			test.options.Stdout, test.options.Stderr = stdout, stderr
			o := open(t, 0, test.options)
			for local, rank := range test.options.Ranks {
				out, err := o.Files(rank)
				writeOutput(t, out, fmt.Sprintf("o%d\n", local))
				writeOutput(t, err, fmt.Sprintf("e%d\n", local))
			}
			wait(t, o)
			for rank, local := range map[int]int{4: 0, 5: 1} {
				if got := logOf(t, o, rank, "stdout"); got != fmt.Sprintf("o%d\n", local) {
					t.Errorf("rank %d has logged %q", rank, got)
				}
			}
			if got := sorted(stdout.String()); got != test.stdout {
				t.Errorf("stdout %q, want %q", got, test.stdout)
			}
			if got := sorted(stderr.String()); got != test.stderr {
				t.Errorf("stderr %q, want %q", got, test.stderr)
			}
		})
	}
}

// sorted puts lines of ranks that ran side by side in one order.
func sorted(text string) string {
	a, b, ok := strings.Cut(strings.TrimSuffix(text, "\n"), "\n")
	if ok && a > b {
		return b + "\n" + a + "\n"
	}
	return text
}

// gate is a console that takes nothing until it is opened.
type gate struct {
	screen *screen
	opened chan struct{}
}

func (g gate) Write(p []byte) (int, error) {
	<-g.opened
	return g.screen.Write(p)
}

// shrink makes a console's queue small, so that a test fills it soon.
func shrink(o *Output) {
	for _, c := range o.consoles {
		c.queue.mu.Lock()
		c.queue.limit = 128 << 10
		c.queue.mu.Unlock()
	}
}

// flood writes lines of 1 KiB.
func flood(t *testing.T, f *os.File, lines int) {
	t.Helper()
	line := strings.Repeat("x", 1023) + "\n"
	for range lines {
		writeOutput(t, f, line)
	}
}

func TestBlockedConsoleDelaysNoRank(t *testing.T) {
	t.Parallel()
	for _, ranks := range []int{1, 2} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			t.Parallel()
			g := gate{newScreen(), make(chan struct{})}
			o := open(t, ranks, OutputOptions{Stdout: g})
			shrink(o)
			for k := range ranks {
				out, _ := o.Files(k)
				flood(t, out, 1000)
			}
			wait(t, o)
			for k := range ranks {
				if got := len(logOf(t, o, k, "stdout")); got != 1000<<10 {
					t.Errorf("%d bytes are in the log of rank %d, want %d", got, k, 1000<<10)
				}
			}
			close(g.opened)
			<-o.consoles[0].queue.done
			if want := "\ngpurun: more output is not shown, see " + o.opts.Dir + "\n"; !strings.HasSuffix(g.screen.String(), want) {
				t.Errorf("the console does not end with %q", want)
			}
		})
	}
}

// awaitTaken waits until the writer has taken what a queue holds.
func awaitTaken(q *queue) {
	for {
		q.mu.Lock()
		room, n := q.room, len(q.buf)
		q.mu.Unlock()
		if n == 0 {
			return
		}
		<-room
	}
}

func TestASlowConsoleShowsWhatIsMissing(t *testing.T) {
	t.Parallel()
	g := gate{newScreen(), make(chan struct{})}
	o := open(t, 2, OutputOptions{Stdout: g})
	shrink(o)
	out, _ := o.Files(0)
	flood(t, out, 1000)
	close(g.opened)
	awaitTaken(o.consoles[0].queue)
	writeOutput(t, out, "the end\n")
	wait(t, o)
	note := regexp.MustCompile(`(?m)^gpurun: (\d+) bytes of rank 0 not shown, see (.*)\n`)
	text, hidden := g.screen.String(), 0
	for _, m := range note.FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil || m[2] != o.ranks[0].streams[0].log.path {
			t.Errorf("note %q: %v", m[0], err)
		}
		hidden += n
	}
	text = note.ReplaceAllString(text, "")
	if want := 1000<<10 + len("the end\n"); hidden == 0 || len(text)+hidden != want {
		t.Errorf("%d bytes shown and %d told missing, want %d together", len(text), hidden, want)
	}
	if !strings.HasSuffix(text, "the end\n") {
		t.Errorf("the console does not show what came after: …%q", text[max(0, len(text)-300):])
	}
}

func TestClosedConsoleIsReportedOnTheOther(t *testing.T) {
	read, stdout, err := os.Pipe()
	testenv.Check(t, err)
	read.Close()
	defer stdout.Close()
	stderr := newScreen()
	o := open(t, 1, OutputOptions{Stdout: stdout, Stderr: stderr})
	out, _ := o.Files(0)
	writeOutput(t, out, "nobody reads this\n")
	want := "gpurun: cannot write to stdout any more (write |1: broken pipe); the ranks' output continues in " + o.opts.Dir + "\n"
	stderr.await(t, want)
	writeOutput(t, out, "nor this\n")
	wait(t, o)
	if got := logOf(t, o, 0, "stdout"); got != "nobody reads this\nnor this\n" {
		t.Errorf("the log is %q", got)
	}
	if got := stderr.String(); got != want {
		t.Errorf("stderr shows %q", got)
	}
}

func TestAClosedStdoutDoesNotEndTheProgram(t *testing.T) {
	read, stdout, err := os.Pipe()
	testenv.Check(t, err)
	read.Close()
	defer stdout.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"=console:"+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(stderr.String(), "gpurun: cannot write to stdout any more (write /dev/stdout: broken pipe)") {
		t.Errorf("stderr is %q", &stderr)
	}
}

func TestStoppedTerminalDelaysNoRank(t *testing.T) {
	t.Parallel()
	read, console, err := openPTY(nil)
	if err != nil {
		t.Skipf("this system has no pseudo-terminals: %v", err)
	}
	defer console.Close()
	flow := func(action int) {
		t.Helper()
		if err := control(console, func(fd int) error { return unix.IoctlSetInt(fd, unix.TCXONC, action) }); err != nil {
			t.Fatal(err)
		}
	}
	flow(unix.TCOOFF) // Ctrl-S
	o := open(t, 1, OutputOptions{Stdout: console, Stderr: console})
	shrink(o)
	out, _ := o.Files(0)
	flood(t, out, 500)
	wait(t, o)
	if n := len(logOf(t, o, 0, "stdout")); n != 500<<10 {
		t.Errorf("%d bytes are in the log", n)
	}
	flow(unix.TCOON) // Ctrl-Q
	shown := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, read)
		shown <- n
	}()
	<-o.consoles[0].queue.done
	console.Close()
	if n := <-shown; n == 0 || n >= 500<<10 {
		t.Errorf("the terminal shows %d bytes", n)
	}
	read.Close()
}

func TestEndlessOutputDoesNotDelayWait(t *testing.T) {
	o := open(t, 1, OutputOptions{})
	out, _ := o.Files(0)
	fd, err := unix.FcntlInt(out.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	testenv.Check(t, err)
	left := os.NewFile(uintptr(fd), "left")
	ended := make(chan error)
	go func() {
		chunk := make([]byte, readSize)
		for {
			if _, err := left.Write(chunk); err != nil {
				ended <- errors.Join(err, left.Close())
				return
			}
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := o.Wait(ctx); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the writer ends with %v", err)
	}
}

func TestSameFile(t *testing.T) {
	read, write, err := os.Pipe()
	testenv.Check(t, err)
	defer read.Close()
	defer write.Close()
	fd, err := unix.FcntlInt(write.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	testenv.Check(t, err)
	again := os.NewFile(uintptr(fd), "again")
	defer again.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	testenv.Check(t, err)
	defer null.Close()
	screen := newScreen()
	for i, test := range []struct {
		a, b io.Writer
		same bool
	}{
		{write, write, true},
		{write, again, true}, // 2>&1
		{write, null, false},
		{write, screen, false},
		{screen, screen, true},
		{screen, newScreen(), false},
		{write, nil, false},
	} {
		if got := sameFile(test.a, test.b); got != test.same {
			t.Errorf("pair %d: %v", i, got)
		}
	}
}

func TestANonBlockingConsoleLosesNothing(t *testing.T) {
	read, stdout, err := openPipe()
	testenv.Check(t, err)
	conn, err := stdout.SyscallConn()
	testenv.Check(t, err)
	// Somebody else who has the same terminal makes it non-blocking.
	if err := conn.Control(func(fd uintptr) { err = syscall.SetNonblock(int(fd), true) }); err != nil {
		t.Fatal(err)
	}
	o := open(t, 1, OutputOptions{Stdout: stdout})
	out, _ := o.Files(0)
	text := strings.Repeat("0123456789abcde\n", 32<<10)
	got := make(chan string)
	go func() {
		all, _ := io.ReadAll(read)
		got <- string(all)
	}()
	writeOutput(t, out, text)
	wait(t, o)
	stdout.Close()
	if shown := <-got; shown != text {
		t.Errorf("the console got %d bytes, want %d", len(shown), len(text))
	}
	read.Close()
}

func TestFullDiskIsReportedOnceAndTrainingContinues(t *testing.T) {
	dir := t.TempDir()
	full, err := syscall.Open("/dev/full", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("this system has no /dev/full: %v", err)
	}
	stdout, stderr := newScreen(), newScreen()
	o := open(t, 1, OutputOptions{Dir: dir, Stdout: stdout, Stderr: stderr, Step: regexp.MustCompile(`step (\d+)`)})
	log := o.ranks[0].streams[0].log // nothing was written yet
	log.file.Close()
	log.file = disk{os.NewFile(uintptr(full), filepath.Join(dir, "rank0", "stdout.log"))}
	out, _ := o.Files(0)
	writeOutput(t, out, "step 1\n")
	stderr.await(t, "gpurun: cannot write a log, training continues: write "+filepath.Join(dir, "rank0", "stdout.log")+": no space left on device\n")
	writeOutput(t, out, "step 2\n")
	stdout.await(t, "step 1\nstep 2\n")
	if err := o.Wait(context.Background()); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Wait returns %v", err)
	}
	if n := strings.Count(stderr.String(), "\n"); n != 1 {
		t.Errorf("stderr has %d lines: %q", n, stderr)
	}
	if a := o.Activity(); a.Steps != 2 {
		t.Errorf("%d steps seen", a.Steps)
	}
}

func TestLeftOverProcessDoesNotDelayWait(t *testing.T) {
	stdout := newScreen()
	o := open(t, 1, OutputOptions{Stdout: stdout})
	cmd := startRank(t, o, 0, "leave")
	o.Started()
	testenv.Check(t, cmd.Wait())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := o.Wait(ctx); err != nil {
		t.Error(err)
	}
	var left int
	if _, err := fmt.Sscan(stdout.String(), &left); err != nil {
		t.Fatalf("what was in the pipe is lost: %q", stdout)
	}
	process, err := os.FindProcess(left)
	testenv.Check(t, err)
	if err := process.Kill(); err != nil {
		t.Errorf("the process that was left over is gone: %v", err)
	}
}

func TestOpenThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	testenv.Check(t, os.WriteFile(filepath.Join(dir, "rank1"), nil, 0o644))
	_, err := OpenOutput(OutputOptions{Ranks: []int{0, 1}, Dir: dir})
	if !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("Open returns %v", err)
	}
	if _, err := OpenOutput(OutputOptions{Step: regexp.MustCompile(`step \d+`)}); err == nil {
		t.Error("a step pattern without a group is accepted")
	}
	goleak.VerifyNone(t)
}

func TestFilesOnlyUntilStarted(t *testing.T) {
	o := open(t, 1, OutputOptions{})
	if out, err := o.Files(1); out != nil || err != nil {
		t.Error("there are files for a rank of another node")
	}
	if out, err := o.Files(0); out == nil || err == nil {
		t.Error("there are no files for rank 0")
	}
	o.Started()
	if out, err := o.Files(0); out != nil || err != nil {
		t.Error("there are files after Started")
	}
}

func TestPseudoTerminal(t *testing.T) {
	read, console, err := openPTY(nil)
	if err != nil {
		t.Skipf("this system has no pseudo-terminals: %v", err)
	}
	defer read.Close()
	defer console.Close()
	size := setSize(t, console, 132, 43)
	var shown bytes.Buffer
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		io.CopyN(&shown, read, int64(len("true true 132x43 <nil>\n")))
	}()
	var gaps []strategy.Fact
	o := open(t, 1, OutputOptions{Stdout: console, Stderr: console, TTY: true, OnFact: func(f strategy.Fact) { gaps = append(gaps, f) }})
	cmd := startRank(t, o, 0, "terminal")
	testenv.Check(t, cmd.Wait())
	setSize(t, console, 80, 24)
	testenv.Check(t, o.Resize())
	if width, height := sizeOf(t, o.ranks[0].streams[1].pipe); width != 80 || height != 24 {
		t.Errorf("after Resize the rank's terminal is %dx%d", width, height)
	}
	wait(t, o)
	<-seen
	if got := shown.String(); got != "true true 132x43 <nil>\n" {
		t.Errorf("the terminal shows %q, want its size %s", got, size)
	}
	if got := logOf(t, o, 0, "stdout"); got != shown.String() {
		t.Errorf("the log is %q", got)
	}
	if diff := cmp.Diff([]strategy.Fact(nil), gaps); diff != "" {
		t.Error(diff)
	}
}

const outOfMemory = `Traceback (most recent call last):
  File "/job/train.py", line 31, in <module>
    loss.backward()
  File "/usr/lib/python3/dist-packages/torch/_tensor.py", line 581, in backward
    torch.autograd.backward(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.94 GiB memory in use. Of the allocated memory 76.10 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.
`

// A rank that ran out of memory often hangs instead of ending, so its words have
// to be known while it lives.
func TestAnOutOfMemoryErrorIsAFactWhileTheRankLives(t *testing.T) {
	facts := make(chan strategy.Fact, 8)
	o := open(t, 2, OutputOptions{OnFact: func(f strategy.Fact) { facts <- f }})
	_, stderr := o.Files(1)
	before := time.Now()
	writeOutput(t, stderr, outOfMemory)
	fact := <-facts
	if fact.Rank != 1 || fact.Source != "stderr" || fact.Time.Before(before) || fact.Finding() == nil {
		t.Fatalf("fact %+v", fact)
	}
	if s := fact.Finding(); s.Code != cause.CUDAOOM || !s.Raised || s.Device != "cuda:1" {
		t.Errorf("finding %+v", s)
	}
	if lines := fact.Finding().Traceback; len(lines) == 0 || !strings.Contains(lines[len(lines)-1], "Tried to allocate 2.00 GiB") {
		t.Errorf("the traceback is %q", lines)
	}
	wait(t, o)
}

func TestMemoryIsBounded(t *testing.T) {
	const ranks = 16
	g := gate{newScreen(), make(chan struct{})}
	o := open(t, ranks, OutputOptions{Stdout: g, MaxBytes: 256 << 10})
	shrink(o)
	rubbish := make([]byte, 64<<10)
	rand.NewChaCha8([32]byte{}).Read(rubbish)
	var all sync.WaitGroup
	for k := range ranks {
		out, _ := o.Files(k)
		all.Go(func() {
			writeOutput(t, out, string(rubbish))
			flood(t, out, 2<<10)
		})
	}
	all.Wait()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	// A rank has two read buffers, and for stdout a log queue.
	if most := uint64(ranks*(2*readSize+2*logQueue) + 8<<20); m.HeapAlloc > most {
		t.Errorf("%d MiB in use, want at most %d", m.HeapAlloc>>20, most>>20)
	}
	close(g.opened)
	wait(t, o)
}
