package job

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// writerRole makes the test binary a process that writes fits: a folder and its number.
const writerRole = "GPURUN_TEST_WRITES_FITS"

// rounds is how often each writer writes.
const rounds = 25

// writeFits adds its fits to a file that others write, too, and prints a line after each.
// Number -1 never ends by itself.
func writeFits(dir, number string) {
	store := JobStore{Dir: dir, Name: "job.json"}
	n, _ := strconv.Atoi(number)
	for i := 0; i < rounds || n < 0; i++ {
		err := store.Update(func(known []Fit) []Fit {
			return LearnFits(known, trainedWith(Conditions{Code: "code", Device: "cpu", DataParallel: n + 2}, strategy.Plan{strategy.MicroBatchSize: strategy.Number(i%10 + 1)}))
		})
		if errors.Is(err, syscall.EWOULDBLOCK) { // the others were too slow, on a slow machine
			i--
			continue
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

func trainedWith(key Conditions, plan strategy.Plan) Observation {
	return Observation{Conditions: key, Training: strategy.Exact, Trained: true, Job: strategy.Job{Written: strategy.Plan{strategy.MicroBatchSize: "64"}, Knobs: map[strategy.Knob]strategy.Range{strategy.MicroBatchSize: {}}},
		Attempt: strategy.Attempt{Plan: plan, Ended: time.Date(2025, 11, 21, 3, 0, 0, 0, time.UTC)}}
}

// writer starts a process that writes fits.
func writer(t *testing.T, dir string, number int) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", writerRole, dir, number))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

func TestConcurrentWritersLoseNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "fits")
	var all []*exec.Cmd
	var read sync.WaitGroup
	for n := range 4 {
		cmd, out := writer(t, dir, n)
		read.Go(func() {
			for out.Scan() { // so that none waits for its reader
			}
		})
		all = append(all, cmd)
	}
	read.Wait()
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	fits, err := JobStore{Dir: dir, Name: "job.json"}.Load()
	if err != nil || len(fits) != 4 {
		t.Fatalf("%d fits (%v), want one of each writer", len(fits), err)
	}
	for _, f := range fits {
		if len(f.Tried) != 10 {
			t.Errorf("writer %d: %d plans, want 10", f.DataParallel-2, len(f.Tried))
		}
	}
}

func TestKilledWriterLeavesTheFileWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "fits")
	store := JobStore{Dir: dir, Name: "job.json"}
	for round := range 15 {
		cmd, out := writer(t, dir, -1)
		for range 2 + round%4 { // writes have begun, and one more is under way
			out.Scan()
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the writer ended by itself")
		}
		if fits, err := store.Load(); err != nil || len(fits) != 1 || len(fits[0].Tried) == 0 {
			t.Fatalf("after kill -9: %v, %v", fits, err)
		}
	}
	// Nobody's lock is left, and what was cut off is swept up once it is old.
	if err := store.Update(func(known []Fit) []Fit { return known }); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, ".gpurun-left")
	if err := os.WriteFile(left, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := errors.Join(os.Chtimes(left, old, old), store.Update(func(known []Fit) []Fit { return known })); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed writer left is still there")
	}
}

// filledStore is a store with one fit.
func filledStore(t *testing.T) JobStore {
	t.Helper()
	store := JobStore{Dir: filepath.Join(t.TempDir(), "gpurun", "fits"), Name: FitName("train.py", "job")}
	err := store.Update(func(known []Fit) []Fit {
		return LearnFits(known, trainedWith(Conditions{Code: "code", Device: "cpu", DataParallel: 1}, strategy.Plan{strategy.MicroBatchSize: "8"}))
	})
	if err != nil {
		t.Fatal(err)
	}
	if fits, err := store.Load(); err != nil || len(fits) != 1 {
		t.Fatalf("%v, %v", fits, err)
	}
	return store
}

func (s JobStore) path() string { return filepath.Join(s.Dir, s.Name) }

func TestFilesAreReadableByOwnerOnly(t *testing.T) {
	store := filledStore(t)
	for path, want := range map[string]os.FileMode{store.Dir: 0o700 | os.ModeDir, store.path(): 0o600, filepath.Join(store.Dir, lockFile): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
}

func TestFilesWritableByOthersAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(JobStore) error{
		"a file that others can write to":   func(s JobStore) error { return os.Chmod(s.path(), 0o622) },
		"a file that a group can write to":  func(s JobStore) error { return os.Chmod(s.path(), 0o660) },
		"a folder that others can write to": func(s JobStore) error { return os.Chmod(s.Dir, 0o777|os.ModeSticky) },
	} {
		store := filledStore(t)
		if err := spoil(store); err != nil {
			t.Fatal(err)
		}
		refusedFits(t, name, store)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	for name, path := range map[string]func(JobStore) string{"another user's file": JobStore.path, "another user's folder": func(s JobStore) string { return s.Dir }} {
		store := filledStore(t)
		if err := os.Chown(path(store), 4242, -1); err != nil {
			t.Fatal(err)
		}
		refusedFits(t, name, store)
	}
}

// refusedFits wants a store that is neither read nor written.
func refusedFits(t *testing.T, name string, store JobStore) {
	t.Helper()
	var why *system.Untrusted
	if fits, err := store.Load(); !errors.As(err, &why) || fits != nil {
		t.Errorf("%s: it was read: %v, %v", name, fits, err)
	}
	if err := store.Update(func([]Fit) []Fit { return nil }); !errors.As(err, &why) {
		t.Errorf("%s: it was written: %v", name, err)
	}
}

func TestLinkIsNotFollowed(t *testing.T) {
	store := filledStore(t)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere.json")
	if err := errors.Join(os.Rename(store.path(), elsewhere), os.Symlink(elsewhere, store.path())); err != nil {
		t.Fatal(err)
	}
	if fits, err := store.Load(); err == nil {
		t.Errorf("the link was followed: %v", fits)
	}
}

func TestPipeIsNotWaitedFor(t *testing.T) {
	store := filledStore(t)
	if err := errors.Join(os.Remove(store.path()), syscall.Mkfifo(store.path(), 0o600)); err != nil {
		t.Fatal(err)
	}
	if fits, err := store.Load(); err == nil {
		t.Errorf("a pipe was read: %v", fits)
	}
}

func TestHostileFilesAreIgnored(t *testing.T) {
	const fit = `{"v":1,"fits":[{"code":"c","device":"cpu","data_parallel":1,"written":{"micro_batch_size":64},"tried":[{"plan":{"micro_batch_size":8},"training":"exact","at":"2025-11-21T03:00:00Z"%s}]}]}`
	if _, err := decode(fmt.Appendf(nil, fit, "")); err != nil {
		t.Fatalf("a whole file: %v", err)
	}
	for name, text := range map[string]string{
		"empty":                 "",
		"cut off":               fmt.Sprintf(fit, "")[:100],
		"not JSON":              "\x00\x01",
		"a list":                "[]",
		"a knob that is none":   strings.Replace(fmt.Sprintf(fit, ""), `{"micro_batch_size":8}`, `{"rm -rf":8}`, 1),
		"a word that is none":   strings.Replace(fmt.Sprintf(fit, ""), `{"micro_batch_size":8}`, `{"precision":"fp64; reboot"}`, 1),
		"a negative batch":      strings.Replace(fmt.Sprintf(fit, ""), `{"micro_batch_size":8}`, `{"micro_batch_size":-8}`, 1),
		"a written plan":        strings.Replace(fmt.Sprintf(fit, ""), `{"micro_batch_size":64}`, `{"sharding":"zero9"}`, 1),
		"no time":               strings.Replace(fmt.Sprintf(fit, ""), `,"at":"2025-11-21T03:00:00Z"`, "", 1),
		"a number too large":    fmt.Sprintf(fit, `,"room_bytes":1e400`),
		"too large":             strings.Repeat(" ", largestFits) + fmt.Sprintf(fit, ""),
		"deep":                  strings.Repeat("[", 100_000),
		"no class of training":  strings.Replace(fmt.Sprintf(fit, ""), `"training":"exact",`, "", 1),
		"of a version to come":  `{"v":2,"fits":[]}`,
		"of no version":         `{"fits":[]}`,
		"a plan that is a list": strings.Replace(fmt.Sprintf(fit, ""), `{"micro_batch_size":8}`, `["micro_batch_size"]`, 1),
	} {
		if fits, err := decode([]byte(text)); err == nil {
			t.Errorf("%s: it was taken for %v", name, fits)
		}
	}
}

func TestDamagedFileIsReplacedAndNewerOneKept(t *testing.T) {
	store := filledStore(t)
	learn := func(known []Fit) []Fit {
		return LearnFits(known, trainedWith(Conditions{Code: "new", Device: "cpu", DataParallel: 1}, strategy.Plan{strategy.MicroBatchSize: "4"}))
	}
	if err := os.WriteFile(store.path(), []byte(`{"v":1,"fits":[{`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Load(); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged file: %v", err)
	}
	if err := store.Update(learn); err != nil {
		t.Fatal(err)
	}
	if fits, err := store.Load(); err != nil || len(fits) != 1 || fits[0].Code != "new" {
		t.Errorf("after a damaged file: %v, %v", fits, err)
	}
	const newer = `{"v":2,"fits":"of another kind"}`
	if err := os.WriteFile(store.path(), []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := store.Update(learn); !errors.Is(err, errNewer) {
		t.Errorf("a newer gpurun's file: %v", err)
	}
	if text, err := os.ReadFile(store.path()); err != nil || string(text) != newer {
		t.Errorf("a newer gpurun's file became %q, %v", text, err)
	}
}

func TestOldestFileIsDropped(t *testing.T) {
	store := filledStore(t)
	for i := range mostFiles + 10 {
		path := filepath.Join(store.Dir, FitName("other", strconv.Itoa(i)))
		at := time.Now().Add(-time.Duration(i+1) * time.Hour)
		if err := errors.Join(os.WriteFile(path, []byte("{}"), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Update(func(known []Fit) []Fit { return known }); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(store.Dir, "*.json"))
	if err != nil || len(files) != mostFiles {
		t.Errorf("%d files (%v), want %d", len(files), err, mostFiles)
	}
	for i, want := range map[int]bool{0: true, mostFiles - 2: true, mostFiles - 1: false, mostFiles + 9: false} {
		if _, err := os.Stat(filepath.Join(store.Dir, FitName("other", strconv.Itoa(i)))); (err == nil) != want {
			t.Errorf("file %d is there: %v, want %v", i, err == nil, want)
		}
	}
	large := filepath.Join(store.Dir, FitName("large"))
	if err := errors.Join(os.WriteFile(large, nil, 0o600), os.Truncate(large, largestStore), os.Chtimes(large, time.Time{}, time.Unix(1, 0))); err != nil {
		t.Fatal(err)
	}
	if err := store.Update(func(known []Fit) []Fit { return known }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(large); err == nil {
		t.Error("what is too large is still there")
	}
}

func TestFolder(t *testing.T) {
	for _, c := range []struct{ state, home, want string }{
		{"/state", "/home/a", "/state/gpurun/fits"},
		{"", "/home/a", "/home/a/.local/state/gpurun/fits"},
		{"relative", "/home/a", "/home/a/.local/state/gpurun/fits"},
		{"", "", ""},
		{"", "relative", ""},
	} {
		dir, err := FitsFolder(func(name string) string { return map[string]string{"XDG_STATE_HOME": c.state, "HOME": c.home}[name] })
		if dir != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, %v", c, dir, err)
		}
	}
}
