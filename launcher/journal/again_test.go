package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
)

// A gpurun that only shows the verdict again, as after a requeue, changes neither the time of the run's end nor
// its host.
func TestOpeningAnEndedRunKeepsItsTimeAndHost(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	if err := errors.Join(j.Append(launcher.Began{}), j.Finish(launcher.Verdict{Outcome: "trained"}), j.Close()); err != nil {
		t.Fatal(err)
	}
	ended := time.Now().Add(-time.Hour).Truncate(time.Second)
	lock := filepath.Join(dir, lockFile)
	if err := errors.Join(os.WriteFile(lock, []byte("host n1, pid 7\n"), 0o600), os.Chtimes(filepath.Join(dir, File), ended, ended)); err != nil {
		t.Fatal(err)
	}
	j, events := open(t, dir)
	if _, _, works := Holder(dir); !works {
		t.Error("the open run has no holder")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	_, written, err := Outline(dir)
	if host, _, _ := Holder(dir); err != nil || !written.Equal(ended) || host != "n1" || len(events) != 2 {
		t.Errorf("written %v by %s, %v; want %v by n1", written, host, err, ended)
	}
	j, _ = open(t, dir)
	if err := errors.Join(j.Append(launcher.Began{}), j.Close()); err != nil {
		t.Fatal(err)
	}
	_, written, err = Outline(dir)
	if host, _, _ := Holder(dir); err != nil || written.Equal(ended) || host == "n1" {
		t.Errorf("a run that continues: written %v by %s, %v", written, host, err)
	}
}
