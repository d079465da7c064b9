package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A run that continues removes what a kill left half written in its attempts; what others may
// be writing beside them stays.
func TestOpenRunSweeps(t *testing.T) {
	dir, elsewhere := filepath.Join(t.TempDir(), "run"), t.TempDir()
	left := map[string]bool{
		filepath.Join(dir, "attempt-0", ".gpurun-12"): false, filepath.Join(dir, "attempt-1", "config", ".gpurun-3"): false,
		filepath.Join(dir, ".gpurun-4"): true, filepath.Join(elsewhere, ".gpurun-5"): true,
	}
	first, _, err := (RunSearch{}).OpenRun(t.Context(), dir, nil, LockWait{})
	if err == nil {
		err = first.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for path := range left {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, "attempt-2")); err != nil {
		t.Fatal(err)
	}
	j, _, err := (RunSearch{}).OpenRun(t.Context(), dir, nil, LockWait{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for path, stays := range left {
		if _, err := os.Lstat(path); (err == nil) != stays {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A new run removes what an older one that was killed left half written around it, and
// looks into no other run.
func TestOpenRunSweepsAround(t *testing.T) {
	root := filepath.Join(t.TempDir(), home, "job")
	left := map[string]bool{
		filepath.Join(root, ".gpurun-1"): false, filepath.Join(root, "..", ".gpurun-2"): false,
		filepath.Join(root, "..", "..", ".gpurun-3"): true, filepath.Join(root, "other", ".gpurun-4"): true, filepath.Join(root, "..", "job.fits.json"): true,
	}
	old := time.Now().Add(-2 * writing)
	for path := range left {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600), os.Chtimes(path, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	j, _, err := (RunSearch{Root: root}).OpenRun(t.Context(), filepath.Join(root, "run"), nil, LockWait{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for path, stays := range left {
		if _, err := os.Lstat(path); (err == nil) != stays {
			t.Errorf("%s: %v", path, err)
		}
	}
}
