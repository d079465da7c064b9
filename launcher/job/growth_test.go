package job

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

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
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
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
				if err := os.Chtimes(path, at, at); err != nil {
					t.Fatal(err)
				}
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
