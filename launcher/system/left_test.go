package system

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What killed writers have left goes, the rest stays: marks, files of others, what is behind
// a link, and what another process may be writing.
func TestSweepRemovesWhatWritersLeft(t *testing.T) {
	run, elsewhere := t.TempDir(), t.TempDir()
	files := map[string]bool{ // whether it stays
		".gpurun-123": false, "attempt-0/.gpurun-4567": false, "attempt-0/config/a/.gpurun-89": false,
		".gpurun-removed": true, "attempt-0/.gpurun-": true, "attempt-0/x.gpurun-1": true, "attempt-0/plan.json": true,
	}
	for name := range files {
		path := filepath.Join(run, name)
		if err := errors.Join(MkdirAll(filepath.Dir(path)), os.WriteFile(path, nil, PrivateMode)); err != nil {
			t.Fatal(err)
		}
	}
	theirs := filepath.Join(elsewhere, ".gpurun-5")
	if err := errors.Join(os.WriteFile(theirs, nil, PrivateMode), os.Symlink(elsewhere, filepath.Join(run, "link")), os.Mkdir(filepath.Join(run, ".gpurun-6"), 0o700)); err != nil {
		t.Fatal(err)
	}
	SweepFiles(run, time.Hour)
	if _, err := os.Lstat(filepath.Join(run, ".gpurun-123")); err != nil {
		t.Errorf("what may still be written: %v", err)
	}
	SweepFiles(run, 0)
	files[".gpurun-6"] = true
	for name, stays := range files {
		if _, err := os.Lstat(filepath.Join(run, name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(theirs); err != nil {
		t.Error(err)
	}
}

// A folder that a job has filled is not looked through to its end.
func TestSweepIsBounded(t *testing.T) {
	deep := t.TempDir()
	path := deep
	for range sweptDepth {
		path = filepath.Join(path, "d")
	}
	last := filepath.Join(path, ".gpurun-1")
	if err := errors.Join(MkdirAll(path), os.WriteFile(last, nil, PrivateMode)); err != nil {
		t.Fatal(err)
	}
	SweepFiles(deep, 0)
	if _, err := os.Lstat(last); err != nil {
		t.Error(err)
	}
	many := t.TempDir()
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(many, fmt.Sprintf(".gpurun-%d", i)), nil, PrivateMode); err != nil {
			t.Fatal(err)
		}
	}
	left := 5
	sweepOne(many, 0, &left)
	if rest, err := fs.Glob(os.DirFS(many), ".gpurun-*"); err != nil || len(rest) != 15 {
		t.Errorf("%d are left, %v", len(rest), err)
	}
}
