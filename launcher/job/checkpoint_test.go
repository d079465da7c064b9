package job

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/test/testenv"
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
				testenv.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
				switch f.text {
				case "":
					archive(t, path, f.cut)
				case "-":
					writeFile(t, path, "")
				default:
					writeFile(t, path, f.text)
				}
				at := start.Add(f.after)
				testenv.Check(t, os.Chtimes(path, at, at))
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
		testenv.Check(t, os.Mkdir(folder, 0o755))
		at := start.Add(time.Duration(n) * time.Minute)
		for shard := range 4 {
			path := filepath.Join(folder, fmt.Sprintf("rank%d.pt", shard))
			archive(t, path, n >= 28 && shard == 0) // cut: they are still being written
			testenv.Check(t, os.Chtimes(path, at, at))
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
	testenv.Check(t, err)
	if _, err := w.Write([]byte("weights PK\x05\x06 like the end of an archive, and more weights behind it")); err != nil {
		t.Fatal(err)
	}
	testenv.Check(t, z.Close())
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
	testenv.Check(t, z.Close())
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
	testenv.Check(t, os.WriteFile(path, []byte(text), 0o644))
}

// archive writes a zip file as torch.save does, whole or cut off in the middle.
func archive(t *testing.T, path string, cut bool) {
	t.Helper()
	f, err := os.Create(path)
	testenv.Check(t, err)
	z := zip.NewWriter(f)
	w, err := z.Create("archive/data.pkl")
	testenv.Check(t, err)
	if _, err := w.Write(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	testenv.Check(t, z.Close())
	if cut {
		testenv.Check(t, f.Truncate(60))
	}
	testenv.Check(t, f.Close())
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
	testenv.Check(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), 0o644)))
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
	testenv.Check(t, os.WriteFile(path, nil, 0o644))
	if got := s.None(since); got != "nothing that matches out/ckpt-* is complete" || s.Complete("out/ckpt-7", since) {
		t.Error(got)
	}
}

func TestAFaultInTheReaderMakesACheckpointIncomplete(t *testing.T) {
	dir := t.TempDir()
	testenv.Check(t, os.WriteFile(filepath.Join(dir, "step-1.pt"), make([]byte, 100), 0o600))
	o := opener{func(string) (*os.File, error) { panic("planted") }, time.Now().Add(time.Hour)}
	if newest, err := newestCheckpoint(o, dir, "step-*.pt", time.Time{}, nil); newest != "" || err != nil {
		t.Errorf("%q, %v", newest, err)
	}
}

// safetensors is a file of one tensor of n bytes, of which have are there.
func safetensors(n string, have int) string {
	header := `{"__metadata__":{"format":"pt"},"w":{"dtype":"U8","shape":[` + n + `],"data_offsets":[0,` + n + `]}}`
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + strings.Repeat("x", have)
}

// TestHalfWrittenFolders: what each framework writes last has to be there.
func TestHalfWrittenFolders(t *testing.T) {
	trainer := []string{"trainer_state.json"}
	tests := []struct {
		name  string
		files map[string]string // below the checkpoint's folder, or beside it
		path  string
		needs []string
		whole bool
	}{
		{"Trainer", map[string]string{"checkpoint-2/model.safetensors": safetensors("8", 8), "checkpoint-2/trainer_state.json": "{}"}, "checkpoint-2", trainer, true},
		{"Trainer, no state yet", map[string]string{"checkpoint-2/model.safetensors": safetensors("8", 8)}, "checkpoint-2", trainer, false},
		{"Trainer that no recipe knows", map[string]string{"checkpoint-2/training_args.bin": "x", "checkpoint-2/optimizer.pt": "x"}, "checkpoint-2", nil, false},
		{"cut safetensors", map[string]string{"checkpoint-2/model.safetensors": safetensors("8", 7), "checkpoint-2/trainer_state.json": "{}"}, "checkpoint-2", trainer, false},
		{"cut header", map[string]string{"checkpoint-2/model.safetensors": safetensors("8", 8)[:20], "checkpoint-2/trainer_state.json": "{}"}, "checkpoint-2", trainer, false},
		{"a shard is missing", map[string]string{"checkpoint-2/model-00001-of-00002.safetensors": safetensors("1", 1)}, "checkpoint-2", nil, false},
		{"all shards", map[string]string{"checkpoint-2/model-00001-of-00002.safetensors": safetensors("1", 1), "checkpoint-2/model-00002-of-00002.safetensors": safetensors("1", 1)}, "checkpoint-2", nil, true},
		{"an index of more files", map[string]string{"c/pytorch_model.bin.index.json": `{"weight_map": {"w": "a.bin", "v": "b.bin"}}`, "c/a.bin": "x"}, "c", nil, false},
		{"DeepSpeed", map[string]string{"checkpoint-2/global_step2/mp_rank_00_model_states.pt": "x", "checkpoint-2/latest": "global_step2\n", "checkpoint-2/trainer_state.json": "{}"}, "checkpoint-2", trainer, true},
		{"DeepSpeed, latest not written", map[string]string{"checkpoint-2/global_step2/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt": "x", "checkpoint-2/trainer_state.json": "{}"}, "checkpoint-2", trainer, false},
		{"DeepSpeed, latest of a tag that is not there", map[string]string{"c/global_step2/mp_rank_00_model_states.pt": "x", "c/latest": "global_step9"}, "c", nil, false},
		{"DeepSpeed's tag itself", map[string]string{"global_step2/mp_rank_00_model_states.pt": "x", "latest": "global_step2"}, "global_step2", nil, true},
		{"an earlier tag", map[string]string{"global_step1/mp_rank_00_model_states.pt": "x", "global_step2/mp_rank_00_model_states.pt": "x", "latest": "global_step2"}, "global_step1", nil, true},
		{"a tag that latest does not name yet", map[string]string{"global_step1/mp_rank_00_model_states.pt": "x", "global_step2/mp_rank_00_model_states.pt": "x", "latest": "global_step1"}, "global_step2", nil, false},
		{"Lightning's DeepSpeed folder", map[string]string{"e.ckpt/checkpoint/mp_rank_00_model_states.pt": "x", "e.ckpt/latest": "checkpoint"}, "e.ckpt", nil, true},
		{"distributed", map[string]string{"step-2/__0_0.distcp": "x", "step-2/.metadata": "x"}, "step-2", nil, true},
		{"distributed, no metadata yet", map[string]string{"step-2/__0_0.distcp": "x"}, "step-2", nil, false},
		{"distributed below", map[string]string{"checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp": "x", "checkpoint-2/trainer_state.json": "{}"}, "checkpoint-2", trainer, false},
		{"a folder with the name of an unfinished one", map[string]string{"step_2.tmp/model.pt": "x"}, "step_2.tmp", nil, false},
		{"a model that is no checkpoint of the Trainer", map[string]string{"final/training_args.bin": "x"}, "final", nil, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range test.files {
				path := filepath.Join(dir, name)
				testenv.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
				writeFile(t, path, text)
			}
			got, err := CompleteCheckpoint(dir, test.path, time.Time{}, test.needs...)
			if test.whole && (err != nil || got != test.path) || !test.whole && !errors.Is(err, errIncomplete) {
				t.Errorf("%q, %v", got, err)
			}
			newest, err := NewestCheckpoint(dir, test.path, time.Time{}, test.needs...)
			if err != nil || (newest != "") != test.whole {
				t.Errorf("newest %q, %v", newest, err)
			}
		})
	}
}

// A search finds what filepath.Glob finds.
func TestSearchIsGlob(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[1]*")
	for _, name := range []string{"out/ckpt-1/x", "out/ckpt-2/x", "out/other", "more/ckpt-3/y", ".hidden/ckpt-4/x"} {
		path := filepath.Join(dir, name)
		testenv.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testenv.Check(t, os.WriteFile(path, nil, 0o644))
	}
	quoted := filepath.Join(filepath.Dir(dir), `a\[1\]\*`)
	for _, pattern := range []string{
		"out/ckpt-*", "*/ckpt-*", "*/*/x", "*", "*/ckpt-[12]", "out/ckpt-1", "out/none", "none/*", "out/other/*", "out/ckpt-?/x", ".*/*", "",
	} {
		pattern = filepath.Join(quoted, pattern)
		want, err := filepath.Glob(pattern)
		testenv.Check(t, err)
		got, err := search(pattern, 1000, time.Now().Add(time.Hour))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v -want +got\n%s", pattern, err, diff)
		}
	}
	if _, err := search(filepath.Join(quoted, "[x"), 1000, time.Now().Add(time.Hour)); !errors.Is(err, filepath.ErrBadPattern) {
		t.Errorf("an open bracket: %v", err)
	}
}

// A pattern over everything ends.
func TestSearchIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		testenv.Check(t, os.MkdirAll(filepath.Join(dir, fmt.Sprint(i), "sub"), 0o755))
	}
	if _, err := search(filepath.Join(dir, "*", "*"), 40, time.Now().Add(time.Hour)); err != nil {
		t.Errorf("40 names: %v", err)
	}
	if _, err := search(filepath.Join(dir, "*", "*"), 39, time.Now().Add(time.Hour)); !errors.Is(err, ErrTooManyFiles) {
		t.Errorf("one name too many: %v", err)
	}
	if err := CheckCheckpoints(dir, "*/*"); err != nil {
		t.Errorf("a small folder: %v", err)
	}
}

// A search that takes too long ends, wherever it is: among names, in the folders that match,
// and in a checkpoint of many files.
func TestSearchEndsInTime(t *testing.T) {
	dir, over := t.TempDir(), time.Now().Add(-time.Second)
	for _, name := range []string{"ckpt-1/a/model.bin", "ckpt-2/a/model.bin"} {
		path := filepath.Join(dir, name)
		testenv.Check(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), 0o644)))
	}
	if _, err := search(filepath.Join(dir, "*"), mostNames, over); !errors.Is(err, ErrSlowSearch) {
		t.Errorf("among names: %v", err)
	}
	late := opener{func(path string) (*os.File, error) { t.Errorf("%s was opened", path); return os.Open(path) }, over}
	if got, err := newestCheckpoint(late, dir, "ckpt-*", time.Time{}, nil); !errors.Is(err, ErrSlowSearch) || got != "" {
		t.Errorf("the newest: %q, %v", got, err)
	}
	if err := late.complete(filepath.Join(dir, "ckpt-1"), nil); !errors.Is(err, ErrSlowSearch) {
		t.Errorf("a checkpoint: %v", err)
	}
	if at := lastWritten(dir, over); !at.IsZero() {
		t.Errorf("the last file: %s", at)
	}
}

// A save in progress is seen, whatever the folder and its files are called meanwhile;
// what else a job writes is none.
func TestGrowing(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	for _, c := range []struct {
		name   string
		search CheckpointLocation
		write  string // that is written to
		want   bool
	}{
		{"a new file", CheckpointLocation{Glob: "out/ckpt-*.pt"}, "out/ckpt-2.pt", true},
		{"a known file grows", CheckpointLocation{Glob: "out/ckpt-*.pt"}, "out/ckpt-1.pt", true},
		{"under a temporary name", CheckpointLocation{Glob: "out/ckpt-*.pt"}, "out/ckpt-2.pt.part", true},
		{"in a folder", CheckpointLocation{Glob: "out/checkpoint-*"}, "out/checkpoint-7/model/rank1.pt", true},
		{"in a temporary folder", CheckpointLocation{Glob: "out/checkpoint-*"}, "out/tmp-checkpoint-8/model.pt", true},
		{"below one of several folders", CheckpointLocation{Glob: "out/*/checkpoint-*"}, "out/b/checkpoint-1/model.pt", true},
		{"where a file points to", CheckpointLocation{Pointer: "out/latest.txt", Only: true}, "out/iter_0000009/model.pt", true},
		{"one name only", CheckpointLocation{Glob: "out/last.pt"}, "out/last.pt.tmp", true},
		{"a log beside it", CheckpointLocation{Glob: "out/ckpt-*.pt"}, "out/train.log", false},
		{"a log in the folder above", CheckpointLocation{Glob: "out/ckpt-*.pt"}, "train.log", false},
		{"nothing", CheckpointLocation{Glob: "out/ckpt-*.pt"}, "", false},
		{"no checkpoints are known", CheckpointLocation{}, "out/ckpt-2.pt", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.search.Dir = t.TempDir()
			put := func(name, text string, at time.Time) {
				path := filepath.Join(c.search.Dir, name)
				testenv.Check(t, os.MkdirAll(filepath.Dir(path), 0o700))
				f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
				testenv.Check(t, err)
				defer f.Close()
				if _, err := f.WriteString(text); err != nil {
					t.Fatal(err)
				}
				testenv.Check(t, os.Chtimes(path, at, at))
			}
			for _, name := range []string{"out/ckpt-1.pt", "out/checkpoint-7/model/rank0.pt", "out/b/notes", "train.log"} {
				put(name, "before", long)
			}
			grown := c.search.Growing(t.Context())
			if grown(t.Context()) {
				t.Error("it has grown before anything was written")
			}
			if c.write != "" {
				put(c.write, "more", long) // whatever the server's clock says
			}
			if got := grown(t.Context()); got != c.want {
				t.Errorf("grown %v, want %v", got, c.want)
			}
			cancelled, cancel := context.WithCancel(t.Context())
			cancel()
			if grown(cancelled) {
				t.Error("a look that was cut short says that it has grown")
			}
		})
	}
}
