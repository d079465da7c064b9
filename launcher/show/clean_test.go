package show

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
	"go.uber.org/goleak"
)

// aged makes the runs of a shelf end an hour after they began.
func aged(t *testing.T, dir string) {
	t.Helper()
	all, err := ListRuns(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		at := r.Since.Add(time.Hour)
		if err := os.Chtimes(filepath.Join(r.Path, journal.File), at, at); err != nil {
			t.Fatal(err)
		}
	}
}

const oneDay = 24 * time.Hour

func removed(d Cleaned) string { return names(d.Removed) }

// Only what ended long ago, is none of the newest, and has nothing left to do is removed.
func TestClean(t *testing.T) {
	for name, test := range map[string]struct {
		Cleaning
		want string
	}{
		"too young":    {Cleaning{Age: oneDay, Now: morning.Add(2 * time.Hour)}, ""},
		"old":          {Cleaning{Age: oneDay, Now: morning.Add(5 * oneDay)}, "20260504-0820-dddd 20260504-0800-aaaa"},
		"the newest":   {Cleaning{Age: oneDay, Now: morning.Add(5 * oneDay), Keep: 1}, "20260504-0800-aaaa"},
		"all are":      {Cleaning{Age: oneDay, Now: morning.Add(5 * oneDay), Keep: 5}, ""},
		"asked":        {Cleaning{Age: oneDay, Now: morning.Add(5 * oneDay), Asked: true}, "20260504-0820-dddd 20260504-0810-cccc 20260504-0800-aaaa"},
		"asked, young": {Cleaning{Age: oneDay, Now: morning.Add(2 * time.Hour), Asked: true}, ""},
	} {
		dir := shelf(t)
		aged(t, dir)
		lockRun(t, filepath.Join(dir, ".gpurun/gpt/20260504-0830-bbbb"))
		for _, dry := range []bool{true, false} {
			test.Dry = dry
			done, err := test.Clean(dir)
			if err != nil || removed(done) != test.want || len(done.Removed)+len(done.Kept) != 5 {
				t.Errorf("%s: removed %q, %v, want %q (kept %v)", name, removed(done), err, test.want, done.Kept)
			}
			left, err := ListRuns(dir)
			if gone := 5 - len(left); err != nil || dry && gone != 0 || !dry && gone != len(done.Removed) {
				t.Errorf("%s, dry %v: %d runs are gone, %v", name, dry, gone, err)
			}
		}
	}
}

// What a run directory leads to stays, and so does what is no run directory.
func TestCleanIgnoresOtherFolders(t *testing.T) {
	dir, elsewhere := shelf(t), t.TempDir()
	run := filepath.Join(dir, ".gpurun/gpt/20260504-0800-aaaa")
	put(t, filepath.Join(elsewhere, "precious"), "keep")
	put(t, filepath.Join(dir, ".gpurun/gpt.fits.json"), "{}")
	if err := os.Symlink(elsewhere, filepath.Join(run, "attempt-0", "data")); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, ".gpurun", "gpt", "foreign")
	if err := os.MkdirAll(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(foreign, "journal.jsonl"), "") // of another program
	aged(t, dir)
	c := Cleaning{Age: oneDay, Now: morning.Add(5 * oneDay), Asked: true}
	if done, err := c.Clean(dir); err != nil || !strings.Contains(removed(done), "aaaa") {
		t.Fatalf("removed %s, %v", removed(done), err)
	}
	for _, path := range []string{filepath.Join(elsewhere, "precious"), filepath.Join(dir, ".gpurun/gpt.fits.json"), foreign, filepath.Join(dir, ".gpurun/bert/torn")} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%v", err)
		}
	}
	if _, err := os.Stat(run); err == nil {
		t.Error("the run is still there")
	}
}

// What gpurun was removing is below .gpurun; elsewhere a folder is not gpurun's for its name.
func TestCleanFinishesAnInterruptedRemoval(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".removed-top", "proj/.removed-2023", "logs/gpt/.removed-mine", "work/.gpurun/gpt/.removed-left"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeRun(t, filepath.Join(dir, "logs/gpt/run"), runBegan("gpt", 0))
	for _, test := range []struct{ at, want string }{{"", ""}, {"proj", ""}, {"logs", ""}, {"work", ".removed-left"}} {
		done, err := Cleaning{Age: oneDay, Now: morning, Keep: 5}.Clean(filepath.Join(dir, test.at))
		if err != nil || removed(done) != test.want {
			t.Errorf("in %q: removed %q, %v", test.at, removed(done), err)
		}
	}
	for _, name := range []string{".removed-top", "proj/.removed-2023", "logs/gpt/.removed-mine"} {
		if _, err := os.Stat(filepath.Join(dir, name, "data")); err != nil {
			t.Error(err)
		}
	}
}

// A run that is begun again after it was looked at stays.
func TestARunThatIsBegunAgainStays(t *testing.T) {
	dir := shelf(t)
	aged(t, dir)
	c := Cleaning{Age: oneDay, Now: morning.Add(5 * oneDay)}
	r := LookAtRun(filepath.Join(dir, ".gpurun/gpt/20260504-0800-aaaa"))
	writeRun(t, r.Path, runBegan("gpt", 0), started(0, "8"), finished(strategy.Stopped, 130), runBegan("gpt", 100))
	if why, err := c.remove(r); why != keptRunning || err != nil {
		t.Errorf("%q, %v", why, err)
	}
	lockRun(t, r.Path)
	if why, err := c.remove(LookAtRun(r.Path)); why != keptRunning || err != nil {
		t.Errorf("in use: %q, %v", why, err)
	}
	if _, err := os.Stat(filepath.Join(r.Path, "journal.jsonl")); err != nil {
		t.Error(err)
	}
}

// TestMain lets the test binary be a cleaning that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("GPURUN_TEST_CLEANS"); dir != "" {
		_, err := Cleaning{Age: 0, Now: time.Now(), Asked: true}.Clean(dir)
		if err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// A kill at any moment leaves runs that are whole, or gone from the list; the next cleaning
// finishes it.
func TestAKilledCleaning(t *testing.T) {
	dir := t.TempDir()
	for i := range 6 {
		run := writeRun(t, filepath.Join(dir, ".gpurun", "gpt", "run"+string(rune('a'+i))), runBegan("gpt", i), started(0, "8"), finished(strategy.Trained, 0))
		for n := range 120 {
			put(t, filepath.Join(run, "attempt-0", "rank0", strings.Repeat("f", n%200+1)+string(rune('a'+n%26))), "x")
		}
	}
	aged(t, dir)
	for after := 5 * time.Millisecond; ; after += after / 2 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "GPURUN_TEST_CLEANS="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		_ = cmd.Process.Kill() // it may have ended
		killed := cmd.Wait() != nil
		left, err := ListRuns(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range left {
			files, err := os.ReadDir(filepath.Join(r.Path, "attempt-0", "rank0"))
			if r.Outcome != "trained" || err != nil || len(files) < 100 {
				t.Fatalf("half a run is left, %s: %d files, %v", r.Outcome, len(files), err)
			}
		}
		if !killed {
			break
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, ".gpurun", "gpt")); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// Times that have passed are written as people write them.
func TestParseAge(t *testing.T) {
	for text, want := range map[string]time.Duration{"14d": 14 * oneDay, "2w": 14 * oneDay, "36h": 36 * time.Hour, "0d": 0, "90m": 90 * time.Minute} {
		if got, err := ParseAge(text); got != want || err != nil {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "14", "-1d", "-5h", "d", "a week"} {
		if got, err := ParseAge(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// A .gpurun that is a link is followed, and no link in it.
func TestCleanFollowsALinkedHome(t *testing.T) {
	dir, large, elsewhere := shelf(t), filepath.Join(t.TempDir(), "runs"), shelf(t)
	aged(t, dir)
	aged(t, elsewhere)
	if err := errors.Join(
		os.Rename(filepath.Join(dir, ".gpurun"), large), os.Symlink(large, filepath.Join(dir, ".gpurun")),
		os.Symlink(filepath.Join(elsewhere, ".gpurun", "gpt"), filepath.Join(large, "linked")),
	); err != nil {
		t.Fatal(err)
	}
	done, err := Cleaning{Now: morning.Add(5 * oneDay), Age: oneDay, Asked: true}.Clean(dir)
	if err != nil || len(done.Removed) == 0 {
		t.Fatalf("removed %d, %v", len(done.Removed), err)
	}
	for _, r := range done.Removed {
		if _, err := os.Stat(filepath.Join(large, filepath.Base(filepath.Dir(r.Path)), r.Name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", r.Path, err)
		}
	}
	if left, err := ListRuns(elsewhere); err != nil || len(left) != 5 {
		t.Errorf("behind a link %d runs are left, %v", len(left), err)
	}
}
