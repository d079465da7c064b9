package show

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

var morning = time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC)

// writeRun makes a run directory of a journal's events, each a second after the other.
func writeRun(t *testing.T, dir string, events ...launcher.Event) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "attempt-0", "rank0"), 0o755); err != nil {
		t.Fatal(err)
	}
	var text []byte
	for i, e := range events {
		line, err := launcher.Encode(e, morning.Add(time.Duration(i)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, line...), '\n')
	}
	put(t, filepath.Join(dir, "journal.jsonl"), string(text))
	put(t, filepath.Join(dir, "lock"), "host node7, pid 4242\n")
	return dir
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// runBegan is a run's first event, some minutes after eight.
func runBegan(job string, minutes int) launcher.Began {
	return launcher.Began{Name: job, Plan: strategy.Plan{"micro_batch_size": "8"}, At: morning.Add(time.Duration(minutes) * time.Minute)}
}

func started(n int, batch string) launcher.Started {
	return launcher.Started{N: n, Plan: strategy.Plan{"micro_batch_size": strategy.Value(batch)}, At: morning}
}

func finished(o strategy.Outcome, code int) launcher.Finished {
	return launcher.Finished{Verdict: launcher.Verdict{Outcome: o, Code: code, Reason: string(o)}}
}

// Several scripts of one name are distinguished by their folders; a single one is not.
func TestScriptsOfOneName(t *testing.T) {
	of := func(argv ...string) launcher.Started { return launcher.Started{Command: strategy.Command{Argv: argv}} }
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, ".gpurun", name) }
	writeRun(t, at("train/3"), runBegan("train", 3), of("python3", "vision/train.py", "--bs", "8"), finished(strategy.Trained, 0))
	writeRun(t, at("train/2"), runBegan("train", 2), of("train.py"), finished(strategy.Trained, 0))
	writeRun(t, at("eval/1"), runBegan("eval", 1), of("vision/eval.py"), finished(strategy.Trained, 0))
	all, err := ListRuns(dir)
	var out strings.Builder
	if err := errors.Join(err, WriteTable(&out, all, morning)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"JOB", "train (vision)  3", "train (.)       2", "eval            1"} {
		if line := strings.Split(out.String(), "\n")[i]; !strings.HasPrefix(line, want) {
			t.Errorf("%q, want %q", line, want)
		}
	}
}

// shelf is a working directory with a run of each kind.
func shelf(t *testing.T) string {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, ".gpurun", name) }
	writeRun(t, at("gpt/20260504-0800-aaaa"), runBegan("gpt", 0), started(0, "8"), started(1, "4"), finished(strategy.Trained, 0))
	writeRun(t, at("gpt/20260504-0830-bbbb"), runBegan("gpt", 30), started(0, "8"))
	writeRun(t, at("bert/20260504-0810-cccc"), runBegan("bert", 10), started(0, "8"), finished(strategy.Retry, 75))
	writeRun(t, at("bert/20260504-0820-dddd"), runBegan("bert", 20), started(0, "8"),
		launcher.Decided{Decision: strategy.Decision{Outcome: strategy.Exhausted, Code: 12}})
	put(t, filepath.Join(writeRun(t, at("bert/torn"), runBegan("bert", 5)), "journal.jsonl"), "not a journal\n")
	return dir
}

func lockRun(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
}

func names(all []Entry) string {
	var words []string
	for _, r := range all {
		words = append(words, r.Name)
	}
	return strings.Join(words, " ")
}

// Every run is listed, the latest first, in whatever state.
func TestList(t *testing.T) {
	dir := shelf(t)
	all, err := ListRuns(dir)
	if err != nil {
		t.Fatal(err)
	}
	const want = "20260504-0830-bbbb 20260504-0820-dddd 20260504-0810-cccc 20260504-0800-aaaa torn"
	if names(all) != want {
		t.Fatalf("the runs are %s, want %s", names(all), want)
	}
	for i, outcome := range []RunState{CutOff, "exhausted", "retry", "trained", Broken} {
		if all[i].Outcome != outcome || all[i].Host != "node7" || all[i].PID != 0 || all[i].Locked {
			t.Errorf("%s: %+v", all[i].Name, all[i])
		}
	}
	if first := all[3]; first.Attempts != 2 || first.Plan != "micro batch 8→4" || first.Job != "gpt" || !first.Began.Equal(morning) || first.Ended.IsZero() {
		t.Errorf("%+v", first)
	}
	if all[4].Broken == "" {
		t.Error("nobody says what is wrong with the broken run")
	}
	lockRun(t, all[0].Path)
	if r := LookAtRun(all[0].Path); r.Outcome != Running || r.PID != 4242 || !r.Locked || !r.Ended.IsZero() {
		t.Errorf("locked: %+v", r)
	}
	for _, below := range []string{".gpurun", ".gpurun/gpt", ".gpurun/gpt/20260504-0800-aaaa"} {
		if some, err := ListRuns(filepath.Join(dir, below)); err != nil || len(some) == 0 {
			t.Errorf("%s: %d runs, %v", below, len(some), err)
		}
	}
}

// A run that was started again is listed in its new state.
func TestAVerdictOfAnEarlierStart(t *testing.T) {
	again := runBegan("gpt", 60)
	dir := writeRun(t, filepath.Join(t.TempDir(), "run"), runBegan("gpt", 0), started(0, "8"), finished(strategy.Retry, 75), again, launcher.Started{N: 1, At: again.At})
	put(t, filepath.Join(dir, "verdict.json"), `{"outcome":"retry","code":75}`)
	old := again.At.Add(-time.Minute)
	if err := os.Chtimes(filepath.Join(dir, "verdict.json"), old, old); err != nil {
		t.Fatal(err)
	}
	if r := LookAtRun(dir); r.Outcome != CutOff || r.Attempts != 2 || !r.Since.Equal(again.At) {
		t.Errorf("cut off in the second start: %+v", r)
	}
	if err := os.Chtimes(filepath.Join(dir, "verdict.json"), time.Time{}, again.At.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if r := LookAtRun(dir); r.Outcome != "retry" || r.Code != 75 {
		t.Errorf("killed while it was stopped: %+v", r)
	}
}

// A journal that is longer than what is read of it says the same.
func TestALongJournal(t *testing.T) {
	events := []launcher.Event{runBegan("gpt", 0), started(0, "8")}
	for range 160 {
		events = append(events, launcher.Noticed{Text: strings.Repeat("x", 16<<10)})
	}
	dir := writeRun(t, filepath.Join(t.TempDir(), "run"), append(events, started(7, "1"), finished(strategy.Trained, 0))...)
	if r := LookAtRun(dir); r.Outcome != "trained" || r.Attempts != 8 || r.Plan != "micro batch 8→1" || r.Job != "gpt" {
		t.Errorf("%+v", r)
	}
}

// What is no run of ours, or leads elsewhere, is not listed.
func TestFoldersThatAreNoRun(t *testing.T) {
	dir, elsewhere := shelf(t), shelf(t)
	home := filepath.Join(dir, ".gpurun")
	for link, target := range map[string]string{"linked": filepath.Join(elsewhere, ".gpurun", "gpt"), "gpt/link": filepath.Join(elsewhere, ".gpurun", "gpt", "20260504-0800-aaaa")} {
		if err := os.Symlink(target, filepath.Join(home, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(home, "gpt", "linkedjournal"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(elsewhere, ".gpurun/gpt/20260504-0800-aaaa/journal.jsonl"), filepath.Join(home, "gpt", "linkedjournal", "journal.jsonl")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(home, "gpt", "20260504-0830-bbbb", "verdict.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := ListRuns(dir); err != nil || len(all) != 5 {
		t.Errorf("%s, %v", names(all), err)
	}
}

// A run is found by all that people type for it, and an error says what they could.
func TestFindRun(t *testing.T) {
	dir := shelf(t)
	run := filepath.Join(dir, ".gpurun", "gpt", "20260504-0800-aaaa")
	for name, want := range map[string]string{
		"": "20260504-0830-bbbb", "gpt": "20260504-0830-bbbb", "bert": "20260504-0820-dddd", "20260504-0800-aaaa": "20260504-0800-aaaa",
		"gpt/20260504-0800-aaaa": "20260504-0800-aaaa", "20260504-080": "20260504-0800-aaaa", "bert/20260504-081": "20260504-0810-cccc",
		run: "20260504-0800-aaaa", run + "/journal.jsonl": "20260504-0800-aaaa", ".gpurun/bert": "20260504-0820-dddd", run + "/": "20260504-0800-aaaa",
	} {
		if r, err := FindRun(dir, name); err != nil || r.Name != want {
			t.Errorf("%q is %q, want %q: %v", name, r.Name, want, err)
		}
	}
	put(t, filepath.Join(dir, "file"), "")
	for name, words := range map[string][2]string{
		"20260504": {"may mean 4 runs", "gpt/20260504-0830-bbbb, bert/20260504-0820-dddd"},
		"nothing":  {"nothing is not a run directory of gpurun, nor the name of a run", "gpurun runs"},
		"file":     {"not a run directory", "a folder"},
	} {
		_, err := FindRun(dir, name)
		if err == nil || !strings.Contains(err.Error(), words[0]) || !strings.Contains(errext.Hint(err), words[1]) {
			t.Errorf("%q: %v; %s", name, err, errext.Hint(err))
		}
	}
	if _, err := NewestRun(t.TempDir()); err == nil || errext.Hint(err) == "" {
		t.Errorf("an empty folder: %v", err)
	}
}

// What a run takes is counted once and without leaving its directory.
func TestMeasure(t *testing.T) {
	dir := writeRun(t, filepath.Join(t.TempDir(), "run"), runBegan("gpt", 0))
	put(t, filepath.Join(dir, "attempt-0", "rank0", "stdout.log"), strings.Repeat("x", 1<<20))
	if err := os.Symlink("/", filepath.Join(dir, "attempt-0", "root")); err != nil {
		t.Fatal(err)
	}
	r := LookAtRun(dir)
	if r.Measure(); r.Bytes < 1<<20 || r.Bytes > 2<<20 || r.AtLeast {
		t.Errorf("%d bytes, at least: %v", r.Bytes, r.AtLeast)
	}
}
