package notify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/strategy"

	"github.com/gpurun/gpurun/launcher"
)

// The file is there with each event, for everybody to read, in place of a link and not where
// that leads; its age is that of the last look, and its last word is the outcome.
func TestTextFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file, other := filepath.Join(dir, "gpurun.prom"), filepath.Join(dir, "other")
		if err := os.WriteFile(other, []byte("untouched"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(other, file); err != nil {
			t.Fatal(err)
		}
		m := made(t, strategy.Metrics{TextFile: file}, nil)
		m.Start(nil, func(text string) { t.Error(text) })
		tell(m, sampled(), metricsEvents...)
		synctest.Wait()
		info, err := os.Lstat(file)
		if err != nil || info.Mode() != 0o644 {
			t.Fatalf("%v %v", info, err)
		}
		if text := read(t, file); !strings.Contains(text, "gpurun_attempts_total"+both+" 2") {
			t.Errorf("the file has\n%s", text)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(textPause + time.Millisecond)
		synctest.Wait()
		if text := read(t, file); !strings.Contains(text, "gpurun_training_step{") {
			t.Errorf("later it has\n%s", text)
		}
		tell(m, nil, launcher.Ended{}, launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained}})
		m.Close()
		if text := read(t, file); !strings.Contains(text, `outcome="trained",run="20270115-080000-ab12"} 1`) {
			t.Errorf("at the end it has\n%s", text)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2 || read(t, other) != "untouched" {
			t.Errorf("left behind: %v, %v", entries, err)
		}
	})
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A file that cannot be written is one warning, and is there once it can.
func TestTextFileThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "later")
		var notes []string
		m := made(t, strategy.Metrics{TextFile: filepath.Join(dir, "gpurun.prom")}, nil)
		m.Start(nil, func(text string) { notes = append(notes, text) })
		tell(m, nil, metricsEvents...)
		time.Sleep(5 * textPause)
		synctest.Wait()
		if len(notes) != 1 || !strings.HasPrefix(notes[0], "warning: the metrics cannot be written; gpurun keeps trying: ") || !strings.Contains(notes[0], dir) {
			t.Errorf("notes: %q", notes)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(textPause)
		synctest.Wait()
		if text := read(t, filepath.Join(dir, "gpurun.prom")); !strings.Contains(text, "gpurun_run_info{") {
			t.Errorf("the file has\n%s", text)
		}
		m.Close()
		if len(notes) != 1 {
			t.Errorf("notes: %q", notes)
		}
	})
}
