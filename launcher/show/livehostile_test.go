package show

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/journal"
)

// A status that no training has is no error, and makes no table that is too wide to read.
func TestAStatusThatCannotBe(t *testing.T) {
	for text, want := range map[string]struct{ rate, line, time string }{
		`{"step":3,"rate":1e-300,"seconds":60}`:                  {"–", "attempt 0 · step 3 · 1m", "1m"},
		`{"step":3,"rate":1e300,"seconds":60}`:                   {"–", "attempt 0 · step 3 · 1m", "1m"},
		`{"step":3,"rate":-1,"seconds":60}`:                      {"–", "attempt 0 · step 3 · 1m", "1m"},
		`{"step":3,"rate":2,"seconds":1e300}`:                    {"2.0 it/s", "attempt 0 · step 3 · 2.0 it/s · 0s", "0s"},
		`{"step":3,"rate":2,"seconds":1e999,"eta_seconds":null}`: {"2.0 it/s", "attempt 0 · step 3 · 2.0 it/s · 0s", "0s"},
		`{"step":3,"rate":2,"seconds":1.5,"eta_seconds":1e300}`:  {"2.0 it/s", "attempt 0 · step 3 · 2.0 it/s · 2s", "2s"},
		`{"step":3,"rate":2,"seconds":1.5,"eta_seconds":60}`:     {"2.0 it/s", "attempt 0 · step 3 · 2.0 it/s · 2s · ~1m left", "2s"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, journal.StatusFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		hold(t, dir)
		r, err := statusIn(LookAtRun(dir))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := StatusLine(r.Status, 400, false); got != want.line {
			t.Errorf("%s: %q, want %q", text, got, want.line)
		}
		var out bytes.Buffer
		if err := table(&out, []RunStatus{r}, time.Now()); err != nil || !strings.Contains(out.String(), "  "+want.rate+"  ") || !strings.Contains(out.String(), "  "+want.time+"  ") {
			t.Errorf("%s: %v, %q", text, err, out.String())
		}
	}
}
