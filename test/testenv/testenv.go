// Package testenv sets up the environment for tests of several packages.
package testenv

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

// Isolated are the tests of a package, isolated from the user's configuration. They share a folder, which is
// removed afterwards.
type Isolated struct {
	*testing.M
	Folder string
}

// Isolate sets the environment of this process for isolated tests.
func Isolate(m *testing.M) Isolated {
	dir, err := os.MkdirTemp("", "gpurun-test-")
	if err != nil {
		panic(err)
	}
	if cache, err := os.UserCacheDir(); err == nil && os.Getenv("GOCACHE") == "" {
		os.Setenv("GOCACHE", filepath.Join(cache, "go-build")) // where go keeps it: a test that builds need not compile all
	}
	os.Setenv("XDG_CONFIG_HOME", os.DevNull)
	os.Setenv("XDG_CONFIG_DIRS", os.DevNull)
	os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	os.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	if signal.Ignored(syscall.SIGHUP) { // under nohup; after exec, a caught signal has its default action again
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	return Isolated{m, dir}
}

// Run runs the tests, and then ends and removes shared resources.
func (m Isolated) Run() int {
	defer os.RemoveAll(m.Folder)
	defer stopWarm()
	return m.M.Run()
}

// T is what Check needs of a test, also of a random one.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Check ends a test at an error.
func Check(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Python returns any Python 3, for scripts that need no packages. Without one the test is skipped.
func Python(t testing.TB) string {
	t.Helper()
	p, err := exec.LookPath(cmp.Or(os.Getenv("GPURUN_TEST_PYTHON"), "python3"))
	if err != nil {
		t.Skipf("GPURUN_TEST_PYTHON names no Python, nor is there one: %v", err)
	}
	return p
}

// Torch returns an interpreter that has PyTorch. Without one the test is skipped.
func Torch(t testing.TB) string {
	t.Helper()
	p := os.Getenv("GPURUN_TEST_PYTHON")
	if p == "" {
		t.Skip("GPURUN_TEST_PYTHON names no interpreter that has PyTorch; make test finds or installs one")
	}
	return p
}

// Root returns the folder of the repository.
func Root(t testing.TB) string {
	t.Helper()
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if abs, err := filepath.Abs(dir); err != nil || abs == "/" {
			t.Fatal("no go.mod above this folder")
		}
	}
}

// Page returns the text of a file, by its path in the repository.
func Page(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// answering runs a program, and then its function answer for each line of input. If the request has "count",
// it prints the number of Python lines that were executed.
const answering = `
import gc, json, sys
names = {"__name__": "reader"}
exec(compile(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())), "program", "exec"), names)
count = 0
def trace(frame, event, arg):
    global count
    count += 1
    return trace
sys.setrecursionlimit(5000)
for line in sys.stdin.buffer:
    given, count = json.loads(line), 0
    sys.settrace(trace if given.get("count") else None)
    said = names["answer"](given)
    sys.settrace(None)
    print(count if given.get("count") else said, flush=True)
    gc.collect()
`

// answers is one interpreter for all tests of a package, since starting one takes longer than most answers.
// It ends when the tests end and close its input.
type answers struct {
	mu   sync.Mutex
	in   io.WriteCloser
	out  *bufio.Reader
	errs strings.Builder
}

var (
	startAnswers sync.Once
	running      *answers
)

// Answer returns the line that the function answer of a Python program returns for a request in JSON. All
// tests of a package must name the same program. Without a Python the test is skipped.
func Answer(t testing.TB, program string, request []byte) []byte {
	t.Helper()
	path := Python(t)
	startAnswers.Do(func() {
		a := &answers{}
		cmd := exec.Command(path, "-I", "-S", "-c", answering)
		cmd.Stderr = &a.errs
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		a.in, a.out, running = in, bufio.NewReader(out), a
		if _, err := fmt.Fprintf(a.in, "%d\n%s", len(program), program); err != nil {
			t.Fatal(err)
		}
	})
	if running == nil {
		t.Fatal("the interpreter did not start")
	}
	running.mu.Lock()
	defer running.mu.Unlock()
	if _, err := running.in.Write(append(request, '\n')); err != nil {
		t.Fatal(err)
	}
	line, err := running.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("%v\n%s", err, running.errs.String())
	}
	return line
}

// Block is a block of code on a page.
type Block struct {
	Line  int      // of its first line, from 1
	Lang  string   // "sh": commands; "console": commands after "$ ", and what they print; or a file's format
	Marks []string // of the comment above it: <!-- exits 2, numbers vary -->
	Text  string
}

// Mark returns the rest of the mark that begins with a word.
func (b Block) Mark(word string) (rest string, found bool) {
	for _, m := range b.Marks {
		if rest, found = strings.CutPrefix(m, word); found {
			return strings.Trim(rest, " :"), true
		}
	}
	return "", false
}

// Blocks returns the blocks of code of a page. Each has to be fenced and to name its language.
func Blocks(page string) (all []Block, err error) {
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "    ") && (i == 0 || lines[i-1] == "") {
			return nil, fmt.Errorf("line %d: a block of code without a fence: %s", i+1, lines[i])
		}
		lang, fence := strings.CutPrefix(lines[i], "```")
		if !fence {
			continue
		}
		if lang == "" {
			return nil, fmt.Errorf("line %d: a block of code without a language", i+1)
		}
		b := Block{Line: i + 2, Lang: lang}
		if i > 0 {
			if m := regexp.MustCompile(`^<!-- (.*) -->$`).FindStringSubmatch(lines[i-1]); m != nil {
				b.Marks = strings.Split(m[1], ", ")
			}
		}
		for i++; i < len(lines) && lines[i] != "```"; i++ {
			b.Text += lines[i] + "\n"
		}
		all = append(all, b)
	}
	return all, nil
}

// Shown compares what a page shows of an output with the output. "…" stands for any text, a line of "…" for any
// lines. With vary, a number stands for any number, and 23s for 1m6s.
func Shown(shown, printed string, vary bool) error {
	want := regexp.QuoteMeta(strings.TrimSpace(shown))
	if vary {
		want = regexp.MustCompile(`\d+(\\\.\d+)?`).ReplaceAllString(want, `\d+(\.\d+)?(m\d+)?`)
	}
	want = regexp.MustCompile(`(?m)^…$\n?`).ReplaceAllString(want, `(?:.*\n)*?`)
	want = strings.ReplaceAll(want, "…", ".*")
	printed = regexp.MustCompile(`(?m)[ ]+$`).ReplaceAllString(strings.TrimSpace(printed), "")
	if !regexp.MustCompile(`^` + want + `\n?$`).MatchString(printed + "\n") {
		return fmt.Errorf("the page shows\n%s\nand printed is\n%s", shown, printed)
	}
	return nil
}

// SetClock returns a moment as it is read after the wall clock was put forward by whole seconds: its monotonic clock
// stays. The first word of a time with a monotonic clock has the seconds above 30 bits of nanoseconds.
func SetClock(t *testing.T, moment time.Time, forward time.Duration) time.Time {
	t.Helper()
	after := moment
	*(*uint64)(unsafe.Pointer(&after)) += uint64(forward/time.Second) << 30
	if after.Sub(moment) != 0 || after.Round(0).Sub(moment.Round(0)) != forward {
		t.Fatalf("%s is not %s put forward by %s", after, moment, forward)
	}
	return after
}

// This file gives random tests their seed: the same one each time, so that a change
// alone decides whether they pass, or that of GPURUN_SEED. A test that uses package rapid
// imports it for its effect.

// fixed is the seed where GPURUN_SEED names none.
const fixed = 1

// Of is the seed of a test, which it logs.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed := seed()
	t.Logf("GPURUN_SEED=%d", seed)
	return seed
}

func seed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("GPURUN_SEED"), 10, 64); err == nil {
		return n
	}
	return fixed
}

// rapid has its flags once it is imported; a flag on the command line counts more.
var _ = rapid.Check

func init() {
	if err := flag.Set("rapid.seed", strconv.FormatUint(max(seed(), 1), 10)); err != nil {
		panic(err)
	}
}

// VolumeGroup is the group of Volume. No such group needs to exist.
const VolumeGroup = 4321

// Volume makes the test a pod of Kubernetes with an fsGroup, and returns the folder of a volume. Only root can be in
// that group: for other users the test is skipped.
func Volume(t *testing.T) string {
	t.Helper()
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	if err := syscall.Setegid(VolumeGroup); err != nil || os.Geteuid() != 0 {
		t.Skipf("only root can join a group and give files away: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Setegid(0); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	if err := errors.Join(os.Chown(dir, 0, VolumeGroup), os.Chmod(dir, 0o770|fs.ModeSetgid)); err != nil {
		t.Fatal(err)
	}
	return dir
}
