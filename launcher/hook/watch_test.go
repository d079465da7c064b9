package hook

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// oom is what a rank writes that ran out of CUDA memory, first without and then
// with what PyTorch knows of its devices.
const oom = `{"type": "torch.OutOfMemoryError", "pid": 7, "time": 1700000000.25, "message": "CUDA out of memory. Tried to allocate 2.00 GiB.", "traceback": "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    loss.backward()\n  File \"/x/torch/_tensor.py\", line 581, in backward\n    torch.autograd.backward(\n  File \"/x/torch/autograd/__init__.py\", line 347, in backward\n    _engine_run_backward(\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"%s}`

const devices = `, "memory": [{"device": 0, "current": false, "allocated": 1, "reserved": 1, "free": 1, "total": 1}, {"device": 1, "current": true, "allocated": 70, "reserved": 75, "free": 3, "total": 80}]`

const recorded = `{"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  File \"train.py\", line 9, in main\n    x()\nValueError: bad\n", "timestamp": "%d"}}}`

// watching starts a watch of ranks 0 and 1, and delivers what it emits.
func watching(t *testing.T, dir string) (facts chan strategy.Fact, stop func()) {
	facts = make(chan strategy.Fact, 100)
	stop, _ = Watch(dir, []int{0, 1}, func(f strategy.Fact) { facts <- f }, nil)
	t.Cleanup(stop)
	return facts, stop
}

// next waits for a fact.
func next(t *testing.T, facts <-chan strategy.Fact) strategy.Fact {
	t.Helper()
	select {
	case f := <-facts:
		return f
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing was emitted")
		return strategy.Fact{}
	}
}

// rename writes a file as the probe does.
func rename(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".part", text)
	if err := os.Rename(path+".part", path); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestWatchReportsAtOnce(t *testing.T) {
	dir := t.TempDir()
	facts, stop := watching(t, dir)
	path := filepath.Join(dir, "rank1", "probe.json")

	rename(t, path, fmt.Sprintf(oom, ""))
	f := next(t, facts)
	s := f.Finding()
	if f.Rank != 1 || f.Source != "probe" || !f.Time.Equal(time.Unix(1700000000, 250e6)) {
		t.Errorf("fact %+v", f)
	}
	if s.Code != cause.CUDAOOM || s.Phase != cause.Backward || !s.Raised || s.Weight == cause.WeightSymptom || s.Seq != 1 || s.Stream != "probe" || len(s.Traceback) == 0 {
		t.Errorf("finding %+v", s)
	}
	figure := func(n int64) *int64 { return &n }
	if diff := cmp.Diff(cause.Figures{Requested: figure(2 << 30)}, s.Figures); diff != "" {
		t.Error(diff)
	}

	// The devices' memory comes later, and completes what the message says.
	rename(t, path, fmt.Sprintf(oom, devices))
	f = next(t, facts)
	want := cause.Figures{Requested: figure(2 << 30), Capacity: figure(80), Free: figure(3), Allocated: figure(70), ReservedUnallocated: figure(5)}
	if diff := cmp.Diff(want, f.Finding().Figures); diff != "" || f.Finding().Device != "cuda:1" || f.Finding().Seq != 1 {
		t.Errorf("finding %+v: %s", f.Finding(), diff)
	}

	// The same once more is no news, neither now nor at the end.
	rename(t, path, fmt.Sprintf(oom, devices))
	write(t, filepath.Join(dir, "rank1", "stdout.log"), "x")
	now := time.Now()
	write(t, filepath.Join(dir, "rank0", "error.json"), fmt.Sprintf(recorded, now.Unix()))
	f = next(t, facts)
	if f.Rank != 0 || f.Source != "error.json" || f.Finding().Code != cause.UserError || f.Finding().Text != "ValueError: bad" {
		t.Errorf("fact %+v, %+v", f, f.Finding())
	}
	if off := f.Time.Sub(now); off < -time.Second || off > time.Hour || f.Time.Nanosecond() == 0 {
		t.Errorf("written at %s, told as of %s", now, f.Time)
	}
	stop()
	stop()
	if len(facts) != 0 {
		t.Errorf("emitted again: %+v", <-facts)
	}
}

// What no event reported is found when the watch ends: no event reports a link.
func TestStopLooksOnceMore(t *testing.T) {
	dir := t.TempDir()
	facts, stop := watching(t, dir)
	elsewhere := filepath.Join(t.TempDir(), "error.json")
	write(t, elsewhere, fmt.Sprintf(recorded, 1700000000))
	if err := os.Link(elsewhere, filepath.Join(dir, "rank0", "error.json")); err != nil {
		t.Skipf("no hard links here: %v", err)
	}
	stop()
	if f := next(t, facts); f.Source != "error.json" || !f.Time.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("fact %+v", f)
	}
}

// What was there before the watch began is reported as well.
func TestWatchThatBeginsLate(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "rank0"), 0o755); err != nil {
		t.Fatal(err)
	}
	rename(t, filepath.Join(dir, "rank0", "probe.json"), fmt.Sprintf(oom, ""))
	facts, _ := watching(t, dir)
	if f := next(t, facts); f.Source != "probe" {
		t.Errorf("fact %+v", f)
	}
}

// A file that is written bit by bit is reported when it is whole.
func TestWatchAFileThatGrows(t *testing.T) {
	dir := t.TempDir()
	facts, _ := watching(t, dir)
	f, err := os.Create(filepath.Join(dir, "rank0", "error.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, part := range strings.SplitAfter(fmt.Sprintf(recorded, 1700000000), " ") {
		if len(facts) != 0 {
			t.Fatalf("half a file is told of: %+v", <-facts)
		}
		if _, err := f.WriteString(part); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if f := next(t, facts); f.Source != "error.json" || f.Finding().Text != "ValueError: bad" {
		t.Errorf("fact %+v", f)
	}
}

// A rank's folder that something removes and makes again is watched again.
func TestWatchAFolderThatComesBack(t *testing.T) {
	dir := t.TempDir()
	facts, _ := watching(t, dir)
	rename(t, filepath.Join(dir, "rank0", "probe.json"), fmt.Sprintf(oom, ""))
	next(t, facts) // the watch is at work
	folder := filepath.Join(dir, "rank1")
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	rename(t, filepath.Join(folder, "probe.json"), fmt.Sprintf(oom, ""))
	if f := next(t, facts); f.Source != "probe" || f.Rank != 1 {
		t.Errorf("fact %+v", f)
	}
	rename(t, filepath.Join(folder, "probe.json"), fmt.Sprintf(oom, devices))
	if f := next(t, facts); f.Rank != 1 || f.Finding().Device != "cuda:1" {
		t.Errorf("fact %+v", f)
	}
}

// More files than the kernel keeps events for, while no reader takes the facts: none
// of the ranks' own is lost.
func TestWatchLosesNothing(t *testing.T) {
	limit := 16384
	if text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events"); err == nil {
		fmt.Sscan(string(text), &limit)
	}
	if limit > 1<<16 {
		t.Skipf("the kernel keeps %d events", limit)
	}
	dir := t.TempDir()
	facts, hold := make(chan strategy.Fact, 100), make(chan struct{})
	stop, _ := Watch(dir, []int{0, 1}, func(f strategy.Fact) { <-hold; facts <- f }, nil)
	t.Cleanup(stop)
	rename(t, filepath.Join(dir, "rank0", "probe.json"), fmt.Sprintf(oom, "")) // the watch waits for hold
	for i := range limit/2 + 1000 {
		name := filepath.Join(dir, "rank0", fmt.Sprintf("other%d", i%2))
		write(t, name, "x")
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	rename(t, filepath.Join(dir, "rank1", "probe.json"), fmt.Sprintf(oom, "")) // its event has no room
	close(hold)
	for seen := 0; seen != 1; {
		seen = next(t, facts).Rank
	}
}

// Files that are not whole, or not ours, are ignored and do no harm.
func TestRubbishIsNoFact(t *testing.T) {
	dir := t.TempDir()
	facts, stop := watching(t, dir)
	for i, text := range []string{"", "{", "null", "[]", `{"type": 3}`, `{"message": {"message": `, "\x00\xff", `{"type": "", "time": 1e300}`} {
		write(t, filepath.Join(dir, "rank0", "error.json"), text)
		rename(t, filepath.Join(dir, "rank1", "probe.json"), text)
		write(t, filepath.Join(dir, "rank1", fmt.Sprintf("probe.json.%d", i)), fmt.Sprintf(oom, ""))
	}
	stop()
	if len(facts) != 0 {
		t.Errorf("emitted %+v", <-facts)
	}
}

// Without the kernel's help the files are found at the end, and a fact says so.
func TestWithoutWatching(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rank1"), "a file where the rank's folder should be")
	facts, stop := watching(t, dir)
	if f := next(t, facts); !strings.Contains(string(strategy.As[strategy.Gap](f)), "rank1") || f.Rank != -1 {
		t.Errorf("fact %+v", f)
	}
	stop()
}

// A real rank that raises and then hangs is reported while it hangs.
func TestWatchAHangingRank(t *testing.T) {
	r := newTrial(t)
	facts, _ := watching(t, r.dir)
	cmd := r.command(t, "import atexit, signal\natexit.register(signal.pause)\ndef step(): raise MemoryError('no room')\nstep()")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f := next(t, facts)
	if err := cmd.Process.Kill(); err != nil {
		t.Errorf("the rank did not hang: %v", err)
	}
	_ = cmd.Wait()
	if f.Source != "probe" || f.Rank != 0 || f.Finding().Code != cause.HostOOM || !f.Finding().Raised || time.Since(f.Time) > time.Hour {
		t.Errorf("fact %+v, %+v", f, f.Finding())
	}
	if n := len(f.Finding().Traceback); n < 3 {
		t.Errorf("%d lines of traceback", n)
	}
}
