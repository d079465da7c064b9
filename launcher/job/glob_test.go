package job

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A search finds what filepath.Glob finds.
func TestSearchIsGlob(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[1]*")
	for _, name := range []string{"out/ckpt-1/x", "out/ckpt-2/x", "out/other", "more/ckpt-3/y", ".hidden/ckpt-4/x"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	quoted := filepath.Join(filepath.Dir(dir), `a\[1\]\*`)
	for _, pattern := range []string{
		"out/ckpt-*", "*/ckpt-*", "*/*/x", "*", "*/ckpt-[12]", "out/ckpt-1", "out/none", "none/*", "out/other/*", "out/ckpt-?/x", ".*/*", "",
	} {
		pattern = filepath.Join(quoted, pattern)
		want, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
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
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprint(i), "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
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
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), 0o644)); err != nil {
			t.Fatal(err)
		}
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
