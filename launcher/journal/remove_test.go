package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/launcher"
)

func always() error { return nil }

// A job that takes the lock file away does not take the run away.
func TestARunWhoseLockFileIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	lock := filepath.Join(dir, lockFile)
	j, _ := open(t, dir)
	if err := errors.Join(j.Append(launcher.Began{}), os.Remove(lock)); err != nil {
		t.Fatal(err)
	}
	if !Locked(dir) {
		t.Error("it does not look as if it ran")
	}
	if err := Remove(dir, always); !errors.Is(err, ErrLocked) {
		t.Errorf("removed: %v", err)
	}
	if _, err := os.Lstat(lock); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("who only looked made a lock file: %v", err)
	}
	if _, _, err := Open(dir, nil); !errors.Is(err, ErrLocked) {
		t.Errorf("another began in it: %v", err)
	}
	if host, pid, works := Holder(dir); !works || host != "" || pid != 0 {
		t.Errorf("the lock file of who came later names %q %d, %v", host, pid, works)
	}
	if err := errors.Join(j.Append(launcher.Noticed{}), j.Close(), os.Remove(lock)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Remove(dir, always), emptied(dir)); Locked(dir) || err != nil {
		t.Errorf("when it has ended: %v", err)
	}
}

// emptied wants nothing beside a directory that is gone.
func emptied(dir string) error {
	left, err := os.ReadDir(filepath.Dir(dir))
	if len(left) > 0 {
		return errors.New(left[0].Name() + " is left")
	}
	return err
}

// Only a folder below .gpurun is what is left of a run, and a link is none.
func TestLeftover(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{".gpurun/gpt/.removed-run", ".gpurun/gpt/run", "gpt/.removed-run", "target/data"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(root, "target"), filepath.Join(root, ".gpurun/gpt/.removed-link")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		".gpurun/gpt/.removed-run": true, ".gpurun/gpt/run": false, ".gpurun/gpt/.removed-link": false, "gpt/.removed-run": false, ".gpurun/gpt/.removed-gone": false,
	} {
		if got := Leftover(filepath.Join(root, name)); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What has the hidden name already is not removed for a run's sake.
func TestAFolderUnderTheHiddenName(t *testing.T) {
	root := t.TempDir()
	dir, other := filepath.Join(root, "run"), filepath.Join(root, ".removed-run", "data")
	begin(t, dir, "")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	err := Remove(dir, always)
	for _, path := range []string{dir, other} {
		if _, there := os.Lstat(path); err == nil || there != nil {
			t.Errorf("%v, %v", err, there)
		}
	}
}

// Where the system does not show whether a run without a lock file runs, one that has ended
// may go, and no other.
func TestEnded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	j, _ := open(t, dir)
	if err := j.Append(launcher.Began{}); err != nil || ended(dir) {
		t.Errorf("begun: %v", err)
	}
	if err := errors.Join(j.Append(launcher.Finished{}), j.Close()); err != nil || !ended(dir) {
		t.Errorf("finished: %v", err)
	}
}
