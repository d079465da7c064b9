package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

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
		got, err := search(pattern, 1000)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v -want +got\n%s", pattern, err, diff)
		}
	}
	if _, err := search(filepath.Join(quoted, "[x"), 1000); !errors.Is(err, filepath.ErrBadPattern) {
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
	if _, err := search(filepath.Join(dir, "*", "*"), 40); err != nil {
		t.Errorf("40 names: %v", err)
	}
	if _, err := search(filepath.Join(dir, "*", "*"), 39); !errors.Is(err, ErrTooMany) {
		t.Errorf("one name too many: %v", err)
	}
	if err := Check(dir, "*/*"); err != nil {
		t.Errorf("a small folder: %v", err)
	}
}
