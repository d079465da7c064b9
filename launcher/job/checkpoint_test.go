package job

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestNewest(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	type file struct {
		name  string
		after time.Duration // of writing, since the run's start
		cut   bool
		text  string
	}
	tests := []struct {
		name  string
		files []file
		glob  string
		want  string
	}{
		{"numbers are numbers", []file{{name: "out/ckpt-90.pt", after: 2}, {name: "out/ckpt-100.pt", after: 1}}, "out/ckpt-*", "out/ckpt-100.pt"},
		{"an older run's are not this run's", []file{{name: "out/ckpt-500.pt", after: -time.Hour}, {name: "out/ckpt-20.pt", after: time.Minute}}, "out/ckpt-*", "out/ckpt-20.pt"},
		{"a torn archive is none", []file{{name: "out/ckpt-1.pt", after: 1}, {name: "out/ckpt-2.pt", after: 2, cut: true}}, "out/ckpt-*", "out/ckpt-1.pt"},
		{"an empty file is none", []file{{name: "out/ckpt-2.bin", after: 2, text: "-"}}, "out/ckpt-*", ""},
		{"a folder that is being written", []file{{name: "out/checkpoint-3/model.bin", after: 1, text: "x"}, {name: "out/checkpoint-4/model.bin", after: 1, text: "x"}, {name: "out/checkpoint-4/checkpoint-is-incomplete.txt", after: 1, text: "x"}}, "out/checkpoint-*", "out/checkpoint-3"},
		{"no match", nil, "out/ckpt-*", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range test.files {
				path := filepath.Join(dir, f.name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				switch f.text {
				case "":
					archive(t, path, f.cut)
				case "-":
					writeFile(t, path, "")
				default:
					writeFile(t, path, f.text)
				}
				at := start.Add(f.after)
				if err := os.Chtimes(path, at, at); err != nil {
					t.Fatal(err)
				}
			}
			got, err := NewestCheckpoint(dir, test.glob, start)
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

// TestOnlyTheNewestIsOpened: a folder of many has many gigabytes, which
// nobody reads to learn that the newest is whole.
func TestOnlyTheNewestIsOpened(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	dir := t.TempDir()
	for n := range 30 {
		folder := filepath.Join(dir, fmt.Sprintf("checkpoint-%d", n))
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		at := start.Add(time.Duration(n) * time.Minute)
		for shard := range 4 {
			path := filepath.Join(folder, fmt.Sprintf("rank%d.pt", shard))
			archive(t, path, n >= 28 && shard == 0) // cut: they are still being written
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name  string
		since time.Time
		want  string
		opens int
	}{
		{"of this run", start, "checkpoint-27", 1 + 1 + 4},
		{"of older runs only", start.Add(time.Hour), "", 0},
	} {
		var opened []string
		o := opener{func(path string) (*os.File, error) {
			opened = append(opened, path)
			return os.Open(path)
		}, time.Now().Add(time.Hour)}
		got, err := newestCheckpoint(o, dir, "checkpoint-*", test.since, nil)
		if err != nil || got != test.want || len(opened) != test.opens {
			t.Errorf("%s: %q, %v, and %d files were opened: %q", test.name, got, err, len(opened), opened)
		}
	}
}

// TestTruncatedArchiveIsIncomplete: wherever it is cut, and whatever its tensors hold.
func TestTruncatedArchiveIsIncomplete(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.CreateHeader(&zip.FileHeader{Name: "archive/data/0"}) // stored, as tensors are
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("weights PK\x05\x06 like the end of an archive, and more weights behind it")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ckpt.pt")
	for n := range b.Len() + 1 {
		writeFile(t, path, b.String()[:n])
		got, err := NewestCheckpoint("", path, time.Time{})
		whole := n == b.Len() || n > 0 && n < 4 // of some other format, as far as one can see
		if err != nil || (got != "") != whole {
			t.Errorf("%d of %d bytes: %q, %v", n, b.Len(), got, err)
		}
	}
}

// TestALargeDirectoryIsNotReadWhole: what is kept in memory is bounded.
func TestALargeDirectoryIsNotReadWhole(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for range 2 * directoryRead / (46 + 200) {
		if _, err := z.CreateHeader(&zip.FileHeader{Name: strings.Repeat("t", 200)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	counted := &counter{r: bytes.NewReader(b.Bytes())}
	if err := wholeArchive(counted, int64(b.Len())); err != nil {
		t.Errorf("it is whole: %v", err)
	}
	if counted.n == 0 || counted.n > directoryRead {
		t.Errorf("%d bytes were read", counted.n)
	}
	if err := wholeArchive(bytes.NewReader(b.Bytes()[:b.Len()-1]), int64(b.Len()-1)); !errors.Is(err, errIncomplete) {
		t.Errorf("it is cut: %v", err)
	}
}

type counter struct {
	r io.ReaderAt
	n int
}

func (c *counter) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.r.ReadAt(p, at)
	c.n += n
	return n, err
}

// TestAPipeInACheckpointIsNotOpened: that would wait for a writer for ever.
func TestAPipeInACheckpointIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "model.bin"), "x")
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Skip(err)
	}
	got, err := NewestCheckpoint("", dir, time.Time{})
	if err != nil || got != dir {
		t.Errorf("%q, %v", got, err)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// archive writes a zip file as torch.save does, whole or cut off in the middle.
func archive(t *testing.T, path string, cut bool) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	w, err := z.Create("archive/data.pkl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if cut {
		if err := f.Truncate(60); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// A checkpoint that was decided is asked for again; and where none is found, why.
func TestSearchReportsWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	s := CheckpointLocation{Dir: dir, Glob: "out/ckpt-*"}
	since := time.Now().Add(-time.Hour).Truncate(time.Second)
	if got := s.None(since); got != "nothing matches out/ckpt-*" {
		t.Error(got)
	}
	path := filepath.Join(dir, "out", "ckpt-7")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), 0o644)); err != nil {
		t.Fatal(err)
	}
	info, _ := os.Stat(path)
	if info.ModTime().Nanosecond() != 0 && s.Complete("out/ckpt-7", info.ModTime().Add(100*time.Millisecond)) {
		t.Error("what was there before the run began is of the run")
	}
	if !s.Complete("out/ckpt-7", since) || !s.Complete(path, since) || s.Complete("out/ckpt-8", since) || s.Complete("out/ckpt-7", time.Now().Add(time.Hour)) {
		t.Error("what is complete is not told from what is not")
	}
	if !s.Written("out/ckpt-7").Equal(info.ModTime()) || !s.Written("out/ckpt-8").IsZero() {
		t.Errorf("written at %s", s.Written("out/ckpt-7"))
	}
	if got := s.None(time.Now().Add(time.Hour)); got != "what matches out/ckpt-* is older than this run" {
		t.Error(got)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := s.None(since); got != "nothing that matches out/ckpt-* is complete" || s.Complete("out/ckpt-7", since) {
		t.Error(got)
	}
}

func TestAFaultInTheReaderMakesACheckpointIncomplete(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "step-1.pt"), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	o := opener{func(string) (*os.File, error) { panic("planted") }, time.Now().Add(time.Hour)}
	if newest, err := newestCheckpoint(o, dir, "step-*.pt", time.Time{}, nil); newest != "" || err != nil {
		t.Errorf("%q, %v", newest, err)
	}
}
