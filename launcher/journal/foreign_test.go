package journal

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

// A folder with a user's files is not a run directory, and stays unchanged.
func TestFolderOfAnotherUser(t *testing.T) {
	for name, test := range map[string]struct {
		files   []string
		refused bool
	}{
		"empty":              {nil, false},
		"a start that ended": {[]string{"lock"}, false},
		"a new file system":  {[]string{"lost+found/"}, false},
		"a run":              {[]string{"journal.jsonl", "attempt-0/", "verdict.json"}, false},
		"a project":          {[]string{"train.py", "data/"}, true},
		"a hidden file":      {[]string{".git/"}, true},
		"no journal":         {[]string{"lock", "attempt-0/"}, true},
	} {
		dir := t.TempDir()
		for _, file := range test.files {
			path := filepath.Join(dir, file)
			err := os.MkdirAll(filepath.Dir(path), 0o755)
			if !strings.HasSuffix(file, "/") && err == nil {
				err = os.WriteFile(path, nil, 0o644)
			}
			if strings.HasSuffix(file, "/") && err == nil {
				err = os.MkdirAll(path, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		before, _ := os.ReadDir(dir)
		j, _, err := (RunSearch{}).OpenRun(t.Context(), dir, nil, LockWait{})
		if (err != nil) != test.refused {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			j.Close()
			continue
		}
		after, _ := os.ReadDir(dir)
		if errext.Code(err, 0) != strategy.CodeUsage || errext.Hint(err) == "" || len(after) != len(before) {
			t.Errorf("%s: %v, %d files became %d", name, err, len(before), len(after))
		}
	}
}

// What is no journal is refused at once, however much it would give to read.
func TestAJournalWithoutAnEnd(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a pipe":           func(path string) error { return unix.Mkfifo(path, 0o644) },
		"a link":           func(path string) error { return os.Symlink("/dev/zero", path) },
		"a folder":         func(path string) error { return os.Mkdir(path, 0o755) },
		"a terabyte":       func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 1<<40)) },
		"somebody's notes": func(path string) error { return os.WriteFile(path, []byte("milk, bread"), 0o644) },
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, File)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		_, _, err := (RunSearch{}).OpenRun(t.Context(), dir, nil, LockWait{})
		want := strategy.CodeUsage
		if name == "a link" { // to a device; no link is followed at all
			want = strategy.CodeRunDir
		}
		if errext.Code(err, 0) != want || errext.Hint(err) == "" || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, code %d, hint %q", name, err, errext.Code(err, 0), errext.Hint(err))
		}
		if _, err := Read(dir); err == nil {
			t.Errorf("%s was read", name)
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("%s: %s", name, took)
		}
	}
	pipe := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(pipe, lockFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := (RunSearch{}).OpenRun(t.Context(), pipe, nil, LockWait{}); errext.Code(err, 0) != strategy.CodeUsage {
		t.Errorf("a pipe in the lock's place: %v", err)
	}
}

// Events out of order are reported with the line.
func TestAJournalOutOfOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	j, _ := open(t, dir)
	for _, e := range []launcher.Event{launcher.Began{}, launcher.Noticed{}, launcher.Decided{}} {
		if err := j.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	_, _, err := (RunSearch{}).OpenRun(t.Context(), dir, nil, LockWait{})
	if want := filepath.Join(dir, File) + ":3: a decision follows no attempt that has ended"; err == nil || err.Error() != want || errext.Code(err, 0) != strategy.CodeUsage || errext.Hint(err) == "" {
		t.Errorf("%v, code %d", err, errext.Code(err, 0))
	}
	j, _ = open(t, dir) // the lock was given back
	j.Close()
}

// A run directory that is gone, or was replaced by another, is reported; what
// is appended is shown and not written.
func TestARunDirectoryThatDisappears(t *testing.T) {
	for name, lose := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"renamed": func(dir string) error { return os.Rename(dir, dir+"-old") },
		"replaced": func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, File), nil, 0o644))
		},
		"a file":              func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)) },
		"without its journal": func(dir string) error { return os.Remove(filepath.Join(dir, File)) },
	} {
		dir := filepath.Join(t.TempDir(), "run")
		var shown []launcher.Event
		j, _, err := Open(dir, func(e launcher.Event) { shown = append(shown, e) })
		if err != nil || j.Check() != nil {
			t.Fatal(err, j.Check())
		}
		if err := lose(dir); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{j.Check(), j.Append(launcher.Noticed{Text: "x"})} {
			if errext.Code(err, 0) != strategy.CodeRunDir || !strings.Contains(err.Error(), "has disappeared") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(shown) != 1 {
			t.Errorf("%s: %d events were shown", name, len(shown))
		}
		j.Close()
	}
}

// An event that cannot be written whole leaves no part of itself behind, and what
// comes later can be read.
func TestPartialEventIsRemoved(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	// The limit is on all files of this process, the test's own log among them.
	if err := j.Append(launcher.Began{Run: "r", Name: strings.Repeat("n", 256<<10)}); err != nil {
		t.Fatal(err)
	}
	whole, _ := os.ReadFile(filepath.Join(dir, File))
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(len(whole) + 10), Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	err := j.Append(launcher.Noticed{Text: "lost"})
	if again := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); again != nil {
		t.Fatal(again)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, File)); !errors.Is(err, unix.EFBIG) || string(text) != string(whole) {
		t.Errorf("%v left behind %d bytes, want %d", err, len(text), len(whole))
	}
	if err := errors.Join(j.Append(launcher.Noticed{Text: "kept"}), j.Close()); err != nil {
		t.Fatal(err)
	}
	if events, err := Read(dir); err != nil || len(events) != 2 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

// The journal keeps room for itself, and gives it back.
func TestRoomIsKept(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	blocks := func() int64 {
		var info unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, File), &info); err != nil {
			t.Fatal(err)
		}
		return info.Blocks * 512
	}
	if j.reserved == 0 {
		t.Skip("this file system keeps no room")
	}
	for range 100 {
		if err := j.Append(launcher.Noticed{Text: strings.Repeat("x", 5000)}); err != nil {
			t.Fatal(err)
		}
		if left := blocks() - j.size; left < reservations[0]/2 {
			t.Fatalf("%d bytes are left", left)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if left := blocks() - j.size; left > 64<<10 {
		t.Errorf("%d bytes were not given back", left)
	}
}
