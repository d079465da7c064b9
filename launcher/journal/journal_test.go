package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

func open(t *testing.T, dir string) (*Journal, []launcher.Event) {
	t.Helper()
	j, events, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return j, events
}

func TestTheNextStartReadsWhatWasWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	j, _ := open(t, dir)
	want := []launcher.Event{
		launcher.Began{Run: "r1", Plan: strategy.Plan{strategy.MicroBatchSize: "8", strategy.PinMemory: "true", strategy.Precision: "bf16"}},
		launcher.Started{N: 0, Plan: strategy.Plan{strategy.MicroBatchSize: "8"}, Command: strategy.Command{Argv: []string{"train.py"}}},
		launcher.Noticed{Text: "hello"},
	}
	for _, e := range want {
		if err := j.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, got := open(t, dir)
	defer j.Close()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A journal that is cut anywhere, as kill -9 or a full disk may cut it, can be
// read up to its last whole line, and written to again.
func TestACutJournalCanBeReadAndContinued(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	for _, text := range []string{"one", "two", "three"} {
		if err := j.Append(launcher.Noticed{Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	whole, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, File), whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		j, before := open(t, dir)
		if err := j.Append(launcher.Noticed{Text: "again"}); err != nil {
			t.Fatal(err)
		}
		j.Close()
		after, err := Read(dir)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if diff := cmp.Diff(append(before, launcher.Noticed{Text: "again"}), after); diff != "" {
			t.Fatalf("cut at %d: %s", cut, diff)
		}
		lines := 0
		for _, b := range whole[:cut] {
			if b == '\n' {
				lines++
			}
		}
		if len(before) != lines {
			t.Fatalf("cut at %d: %d events, and %d whole lines", cut, len(before), lines)
		}
	}
}

func TestInvalidLineInTheMiddleIsAnError(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	if err := j.Append(launcher.Noticed{Text: "x"}); err != nil {
		t.Fatal(err)
	}
	j.Close()
	path := filepath.Join(dir, File)
	text, _ := os.ReadFile(path)
	if err := os.WriteFile(path, append([]byte("rubbish\n"), text...), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(dir, nil); err == nil {
		t.Error("a journal that starts with rubbish was read")
	}
}

func TestALiveDirectoryIsLocked(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	if _, _, err := Open(dir, nil); !errors.Is(err, ErrLocked) {
		t.Errorf("a second Open gives %v, want ErrLocked", err)
	}
	j.Close()
	j, _ = open(t, dir)
	j.Close()
}

func TestChangedFilesKeepTheirSiblings(t *testing.T) {
	original := t.TempDir()
	for name, text := range map[string]string{"ds.json": "old", "base.json": "base"} {
		if err := os.WriteFile(filepath.Join(original, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	j, _ := open(t, t.TempDir())
	defer j.Close()
	dir, err := j.Prepare(3)
	if err != nil {
		t.Fatal(err)
	}
	copies := filepath.Join(dir, "files")
	c := strategy.Command{Files: map[string][]byte{filepath.Join(copies, "ds.json"): []byte("new")}, Siblings: map[string]string{copies: original}, Diff: "-old\n+new\n"}
	for range 2 { // a second time, after a restart, is no error
		if err := j.Write(dir, strategy.Plan{strategy.MicroBatchSize: "4"}, c); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		filepath.Join(copies, "ds.json"):   "new",
		filepath.Join(copies, "base.json"): "base",
		filepath.Join(original, "ds.json"): "old",
		filepath.Join(dir, "diff.patch"):   "-old\n+new\n",
		filepath.Join(dir, "plan.json"):    "{\n  \"micro_batch_size\": 4\n}\n",
	} {
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%s = %q, %v; want %q", path, got, err, want)
		}
	}
}

// Beside a changed file in a folder of many lie those that the job names, and folders: never
// the run directory, through which whoever follows links would come back for ever. A copy of a
// checkpoint has all of its files.
func TestSiblingsAreBounded(t *testing.T) {
	original := t.TempDir()
	for n := range mostSiblings + 200 {
		if err := os.WriteFile(filepath.Join(original, fmt.Sprintf("sample-%d.json", n)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"model", ".gpurun", "runs"} {
		if err := os.Mkdir(filepath.Join(original, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var said []string
	j, _, err := Open(filepath.Join(original, "runs", "a"), func(e launcher.Event) {
		if n, ok := e.(launcher.Noticed); ok {
			said = append(said, n.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	dir, err := j.Prepare(0)
	if err != nil {
		t.Fatal(err)
	}
	copies, whole := filepath.Join(dir, "files", "config"), filepath.Join(dir, "files", "checkpoint")
	c := strategy.Command{Argv: []string{"train.py", "--valid=data/sample-7.json"}, Siblings: map[string]string{copies: original, whole: original}, Whole: whole,
		Files: map[string][]byte{filepath.Join(copies, "conf.yaml"): []byte("defaults: [sample-11]\n"), filepath.Join(whole, "state.json"): nil}}
	if err := j.Write(dir, nil, c); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(copies)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"conf.yaml", "model", "sample-11.json", "sample-7.json"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(said) != 1 || !strings.Contains(said[0], "has more than 1000 entries") || !strings.Contains(said[0], "1198 are not") {
		t.Errorf("%q", said)
	}
	if all, err := os.ReadDir(whole); err != nil || len(all) != mostSiblings+200+2 {
		t.Errorf("%d files of the checkpoint, %v", len(all), err)
	}
}

// A last line that is whole was acted upon: one that this gpurun cannot read is an
// error, and stays. A hole that a crash of the machine left is no line.
func TestAWholeLastLineIsNeverDropped(t *testing.T) {
	for text, readable := range map[string]bool{
		`{"v":99,"kind":"began"}` + "\n":       false,
		"rubbish\n":                            false,
		`{"v":2,"kind":"no` + "\x00\x00\x00\n": true,
		`{"v":99,"kind":"began"}`:              true,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, File)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		j, _, err := Open(dir, nil)
		if readable {
			if err != nil {
				t.Errorf("%q: %v", text, err)
				continue
			}
			j.Close()
			continue
		}
		var unreadable *Unreadable
		if !errors.As(err, &unreadable) || unreadable.Line != 1 || unreadable.Hint() == "" {
			t.Errorf("%q: %v, want an *Unreadable of line 1", text, err)
		}
		if left, err := os.ReadFile(path); err != nil || string(left) != text {
			t.Errorf("%q became %q, %v", text, left, err)
		}
	}
}
