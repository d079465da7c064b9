package show

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"

	"github.com/gpurun/gpurun/strategy"
)

// watched is a run directory with one attempt's folder, and a monitor of it whose words go
// to a file.
func watched(t *testing.T, silent bool) (m *Monitor, dir string, said func() string) {
	t.Helper()
	dir = t.TempDir()
	file, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	for n := range 2 {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("attempt-%d", n)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return OpenMonitor(Display{Stdout: file, Stderr: file, Silent: silent, Dir: dir}), dir, func() string { return read(t, file.Name()) }
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func status(t *testing.T, dir string) launcher.Status {
	t.Helper()
	synctest.Wait()
	var s launcher.Status
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, journal.StatusFile))), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// began opens a run of at most 20 attempts whose ranks may hold 40 GiB.
func began(show func(launcher.Event)) {
	show(launcher.Began{Run: "r", Name: "j", Policy: strategy.Policy{MaxAttempts: 20}, Job: strategy.Job{Ceiling: 40 * gib}})
	show(launcher.Started{N: 0, At: time.Now()})
}

// two are samples of two ranks, the second of which has come further and holds less.
func two(step int) []strategy.Sample {
	now := time.Now()
	return []strategy.Sample{
		{Time: now, Rank: 0, Device: "cuda:0", Step: step - 1, Total: 1000, Allocated: 20 * gib, Reserved: 30 * gib, Peak: 25 * gib, Allowed: 80 * gib, Retries: 2},
		{Time: now, Rank: 1, Device: "cuda:1", Step: step, Total: 1000, Loss: ptr(.5), Allocated: 10 * gib, Peak: 15 * gib, Allowed: 80 * gib},
	}
}

// Without a terminal a line comes once a minute; status.json follows the run.
func TestARunIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir, said := watched(t, false)
		shown := 0
		show := m.Events(func(launcher.Event) { shown++ })
		began(show)
		if s := status(t, dir); s.Run != "r" || s.Job != "j" || !s.Running || s.Outcome != "" || s.MaxAttempts != 20 || s.PID != os.Getpid() {
			t.Errorf("at the start: %+v", s)
		}
		for second := 1; second <= 130; second++ {
			time.Sleep(time.Second)
			m.Sample(0, two(2*second))
		}
		s := status(t, dir)
		want := launcher.StatusMemory{Rank: 0, Device: "cuda:0", Used: 20 * gib, Reserved: 30 * gib, Peak: 25 * gib, Allowed: 40 * gib, Retries: 2}
		if s.Memory == nil || *s.Memory != want || s.Step < 250 || s.Total != 1000 || s.Rate != 2 || s.Loss == nil || s.ETA == nil || time.Since(s.Time) > statusPause {
			t.Errorf("in the midst of it: %+v, %+v", s, s.Memory)
		}
		second := launcher.StatusRank{StatusMemory: launcher.StatusMemory{Rank: 1, Device: "cuda:1", Used: 10 * gib, Peak: 15 * gib, Allowed: 40 * gib}, Step: s.Step}
		if len(s.Ranks) != 2 || s.Ranks[0].StatusMemory != want || s.Ranks[1] != second {
			t.Errorf("the ranks: %+v", s.Ranks)
		}
		line := "gpurun: attempt 0 (first of at most 20) · step 120/1000 · loss 0.5 · 2.0 it/s · GPU 20/40 GiB (peak 25) rank 0 ██▌ · 2 retries · 1m · ~7m left\n"
		if got := said(); !strings.HasPrefix(got, line) || strings.Count(got, "\n") != 2 {
			t.Errorf("said %q, want %q and another", got, line)
		}
		show(launcher.InPlace{InPlace: strategy.InPlace{Phase: "forward", LastStep: 2, Times: 3}})
		time.Sleep(statusPause)
		m.Sample(0, two(280))
		if s := status(t, dir); s.InPlace != 3 || !strings.Contains(StatusLine(s, 200, false), " · 3 in place · ") {
			t.Errorf("after steps were done again: %q", StatusLine(s, 200, false))
		}
		m.Sample(1, two(500)) // of an attempt that nobody knows
		show(launcher.Ended{})
		m.Sample(0, two(600)) // too late
		show(launcher.Started{N: 1, At: time.Now()})
		if s := status(t, dir); s.Attempt != 1 || s.Step != 0 || s.Memory != nil || s.Seconds != 0 || !s.Running {
			t.Errorf("at the start of the next: %+v", s)
		}
		show(launcher.Ended{})
		show(launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained}})
		m.Close()
		if s := status(t, dir); s.Outcome != strategy.Trained || s.Running || shown != 7 {
			t.Errorf("at the end: %+v, %d events were shown", s, shown)
		}
	})
}

// Samples are kept ever more seldom, the last one always.
func TestSamplesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir, said := watched(t, true)
		began(m.Events(func(launcher.Event) {}))
		for second := 1; second <= 3600; second++ {
			time.Sleep(time.Second)
			m.Sample(0, two(second))
		}
		m.see(launcher.Ended{})
		m.Close()
		lines := strings.Split(strings.TrimSuffix(read(t, filepath.Join(dir, "attempt-0", strategy.SamplesFile)), "\n"), "\n")
		var last strategy.Sample
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
			t.Fatal(err)
		}
		if n := len(lines) / 2; n < 1200 || n > 1700 || last.Step != 3600 || last.Allowed != 40*gib { // 600 + 600 ln 6 at most
			t.Errorf("%d samples a rank, the last %+v", n, last)
		}
		if got := said(); got != "" {
			t.Errorf("silent, and said %q", got)
		}
	})
}

// A run that is over is shown again, and its status stays what it is.
func TestFinishedRunStaysFinished(t *testing.T) {
	m, dir, _ := watched(t, false)
	m.Events(func(launcher.Event) {})(launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained}})
	m.Close()
	if _, err := os.Stat(filepath.Join(dir, journal.StatusFile)); !os.IsNotExist(err) {
		t.Errorf("a status was written: %v", err)
	}
}

// A run directory that is gone is no error.
func TestNothingCanBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir, _ := watched(t, false)
		began(m.Events(func(launcher.Event) {}))
		synctest.Wait()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		for second := range 20 {
			time.Sleep(time.Second)
			m.Sample(0, two(second))
		}
		m.Close()
	})
}

// written puts a status into the folder of a run.
func written(t *testing.T, dir string, s launcher.Status) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(journal.NewRecord(dir, nil).Status(s), os.WriteFile(filepath.Join(dir, journal.File), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// hold locks a run directory as a gpurun does that is at work there.
func hold(t *testing.T, dir string) {
	t.Helper()
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	here := t.TempDir()
	host, _ := os.Hostname()
	now := time.Now().UTC()
	root := filepath.Join(here, ".gpurun")
	written(t, filepath.Join(root, "a", "one"), launcher.Status{Run: "one", Outcome: strategy.Trained, Time: now.Add(-time.Hour)})
	written(t, filepath.Join(root, "a", "two"), launcher.Status{Run: "two", Time: now.Add(-2 * time.Hour), Host: host})
	written(t, filepath.Join(root, "b", "three"), launcher.Status{Run: "three", Time: now, Host: host, PID: os.Getpid()}) // somebody else by now
	hold(t, filepath.Join(root, "a", "two"))
	if err := os.MkdirAll(filepath.Join(root, "b", "none"), 0o700); err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]string{
		"": "three one two", "two": "two", filepath.Join(root, "a", "one"): "one", filepath.Join(root, "a"): "one two", root: "three one two", here: "three one two",
	} {
		runs, err := FindStatus(here, word)
		var names []string
		for _, r := range runs {
			names = append(names, r.Run)
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%q: %q (%v), want %q", word, got, err, want)
		}
	}
	if runs, err := FindStatus(here, "four"); err == nil {
		t.Errorf("found %+v", runs)
	}
	mute := filepath.Join(root, "b", "five")
	if err := errors.Join(os.Mkdir(mute, 0o700), os.WriteFile(filepath.Join(mute, journal.File), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := FindStatus(here, "five"); err == nil || errext.Hint(err) == "" || !strings.HasSuffix(err.Error(), "five has no status yet") {
		t.Errorf("of a run without a status: %v", err)
	}
	runs, _ := FindStatus(here, "")
	if !runs[0].Gone || runs[0].Live() || runs[2].Gone || !runs[2].Live() {
		t.Errorf("which of them live: %+v", runs)
	}
	if asked := DefaultRuns(runs); len(asked) != 1 || asked[0].Run != "two" {
		t.Errorf("of one that runs: %+v", asked)
	}
	if asked := DefaultRuns(runs[:2]); len(asked) != 1 || asked[0].Run != "three" {
		t.Errorf("of none that runs: %+v", asked)
	}
}

// A verdict of an earlier start is not the end of a run that was started again and then killed.
func TestStatusOmitsTheVerdictOfAnEarlierStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	store, _, err := journal.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	old := launcher.Verdict{Outcome: strategy.Retry, Code: strategy.CodeRetry, Reason: "the time was up"}
	begun := launcher.Began{Run: "r", At: time.Now().Add(time.Minute)} // after the verdict
	if err := errors.Join(store.Append(launcher.Began{Run: "r"}), store.Finish(old), store.Append(begun), journal.NewRecord(dir, nil).Status(launcher.Status{Run: "r", Host: host}), store.Close()); err != nil {
		t.Fatal(err)
	}
	if r, err := statusIn(LookAtRun(dir)); err != nil || !r.Gone || r.Outcome != "" || r.Reason != "" {
		t.Errorf("%+v, %v, want a run that was cut off", r, err)
	}
}

// What is printed of a run cannot make a terminal obey, and says how old it is.
func TestPage(t *testing.T) {
	s := training()
	s.Run, s.Job, s.Time, s.Host, s.PID = "r\x1b[2J", "j\n", time.Now().Add(-time.Minute), "elsewhere", 7
	var out bytes.Buffer
	p := statusPage{out: &out, columns: func() int { return 120 }}
	if err := p.show(t.Context(), RunStatus{Status: s}); err != nil {
		t.Fatal(err)
	}
	want := "job j\\n, run r\\x1b[2J, pid 7 on elsewhere\n" + StatusLine(s, 120, false) + " · 1m old\n"
	if got := out.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	out.Reset()
	s.Outcome, s.ETA = strategy.Exhausted, nil
	if err := p.show(t.Context(), RunStatus{Status: s, Dir: "/r", Reason: "every remedy was tried", Next: []string{"raise \x1b[2J it"}}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasSuffix(got, StatusLine(s, 120, false)+"\nno plan left: every remedy was tried\nnext: raise \\x1b[2J it\ngpurun logs /r shows the rank's output, gpurun report /r why it failed\n") {
		t.Errorf("%q", got)
	}
	out.Reset()
	if err := table(&out, []RunStatus{{Status: s}, {Status: training()}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(out.String(), "\n"); len(lines) != 4 || strings.Contains(out.String(), "\x1b") ||
		strings.Join(strings.Fields(lines[1]), " ") != `j\n r\x1b[2J 1 412/2000 3.1 it/s GPU 71/80 GiB (peak 76) 12m –` {
		t.Errorf("%q", lines)
	}
}

// On a terminal a run is followed until it ends.
func TestARunIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := training()
		s.Time, s.Host = time.Now(), "elsewhere"
		written(t, dir, s)
		r, err := statusIn(LookAtRun(dir))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		p := statusPage{out: &out, columns: func() int { return 81 - 1 }, follows: true}
		done := make(chan error)
		go func() { done <- p.show(t.Context(), r) }()
		time.Sleep(1500 * time.Millisecond)
		s.Step, s.Outcome = 2000, strategy.Trained
		written(t, dir, s)
		if err := <-done; err != nil {
			t.Error(err)
		}
		first := "\r" + StatusLine(training(), 80, false) + "\x1b[0m\x1b[J\r"
		if got := out.String(); strings.Count(got, first) != 2 || !strings.HasSuffix(got, "attempt 1 · step 2000/2000 · 3.1 it/s · GPU 71/80 GiB (peak 76) ███▊ · 12m\n") {
			t.Errorf("%q", got)
		}
	})
}
