package show

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A screen records what was written to it.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
	came chan struct{}
}

func newScreen() *screen { return &screen{came: make(chan struct{}, 1)} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.came <- struct{}{}:
	default:
	}
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until something is on the screen.
func (s *screen) await(text string) {
	for !strings.Contains(s.String(), text) {
		<-s.came
	}
}

// held is a run directory that a gpurun works in, until the lock is closed.
func held(t *testing.T) (dir string, lock *os.File) {
	dir = writeRun(t, filepath.Join(t.TempDir(), "run"), runBegan("gpt", 0), started(0, "8"))
	lock, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return dir, lock
}

func add(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// Logs are followed from attempt to attempt, and until the gpurun is gone, which is killed
// here: it writes nothing then.
func TestFollow(t *testing.T) {
	dir, lock := held(t)
	out, errs := newScreen(), newScreen()
	var begun []int
	follows := make(chan error)
	go func() {
		follows <- LogFollower{Run: LookAtRun(dir), Attempt: AnyRank, Rank: AnyRank, To: Sink{out, errs}, Begins: func(l Logs) { begun = append(begun, l.Attempt) }}.Follow()
	}()
	add(t, filepath.Join(dir, "attempt-0/rank0/stdout.log"), "one\x1b[31m\r")
	out.await("\r")
	add(t, filepath.Join(dir, "attempt-0/rank0/stdout.log"), "two")
	add(t, filepath.Join(dir, "attempt-0/rank0/stderr.log"), "failed\n")
	out.await("two")
	errs.await("failed")
	add(t, filepath.Join(dir, "attempt-1/rank0/stdout.log"), "three\n")
	out.await("three")
	add(t, filepath.Join(dir, "attempt-1/rank0/stdout.log"), "last\n")
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-follows; err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "one\x1b[31m\rtwothree\nlast\n" || errs.String() != "failed\n" || len(begun) != 2 {
		t.Errorf("stdout %q, stderr %q, attempts %v", got, errs, begun)
	}
}

// The rank that failed is shown without being asked for, and what is not there is told with
// what is.
func TestLogs(t *testing.T) {
	failed := launcher.Decided{Diagnosis: strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Rank: 3}, Decision: strategy.Decision{Outcome: strategy.Failed, Code: 1}}
	dir := writeRun(t, filepath.Join(t.TempDir(), "run"), runBegan("gpt", 0), started(0, "8"), failed)
	for _, rank := range []string{"1", "2", "3", "5"} {
		add(t, filepath.Join(dir, "attempt-0/rank"+rank+"/stdout.log"), rank)
	}
	if err := os.Symlink("/", filepath.Join(dir, "attempt-0/rank9")); err != nil {
		t.Fatal(err)
	}
	r := LookAtRun(dir)
	if l, err := r.Logs(AnyRank, AnyRank); err != nil || l.Rank != 3 || l.Attempt != 0 || !strings.HasSuffix(l.Stdout, "attempt-0/rank3/stdout.log") {
		t.Errorf("%+v, %v", l, err)
	}
	for want, at := range map[string][2]int{"no rank 9": {0, 9}, "no rank 4": {AnyRank, 4}, "no attempt 2": {2, 0}} {
		if _, err := r.Logs(at[0], at[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", at, err)
		}
	}
	if got := spans([]int{0, 1, 2, 3, 5, 8, 9}); got != "0 to 3, 5, 8 to 9" {
		t.Error(got)
	}
}
