package journal

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

func TestRecord(t *testing.T) {
	dir := t.TempDir()
	r := NewRecord(dir, nil)
	if err := r.Status(launcher.Status{Run: "r", Job: "j", Attempt: 1, Host: "h"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Samples(0, []strategy.Sample{{Rank: 0}}); err == nil {
		t.Error("samples were written for an attempt that has no folder")
	}
	if err := os.Mkdir(filepath.Join(dir, "attempt-0"), 0o700); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1700000000, 0).UTC()
	for n := range 2 {
		if err := r.Samples(0, []strategy.Sample{{Time: at, Rank: 0, Step: n}, {Time: at, Rank: 1, Step: n, Batches: true, Counted: 1, CountedAt: at, Data: 1e9, Forward: 1e9, InPlace: true}}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "attempt-0", strategy.SamplesFile))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	var last strategy.Sample
	if len(lines) != 4 || json.Unmarshal([]byte(lines[3]), &last) != nil || last.Rank != 1 || last.Step != 1 || !last.Time.Equal(at) || last.Batches || last.Counted > 0 || last.Data > 0 || last.Forward > 0 || !last.CountedAt.IsZero() || last.InPlace {
		t.Errorf("samples are %q", lines)
	}
	for _, name := range []string{StatusFile, filepath.Join("attempt-0", strategy.SamplesFile)} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Remove(filepath.Join(dir, "attempt-0", strategy.SamplesFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, "attempt-0", strategy.SamplesFile)); err != nil {
		t.Fatal(err)
	}
	if err := r.Samples(0, []strategy.Sample{{}}); err == nil {
		t.Error("samples were written through a link")
	}
}
