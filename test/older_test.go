package test

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpurun/gpurun/strategy"
)

var digestOfRun = regexp.MustCompile(`"digest":"[^"]*"`)

// A run that an older gpurun began continues with its plan, and all verbs read it. Keys that came later are absent
// from its files, and one key there is unknown.
func TestOlderRunsContinue(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "older_run.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := txtar.Write(archive, dir); err != nil {
		t.Fatal(err)
	}
	gpurun := func(env string, words ...string) string {
		cmd := osexec.Command(binary(t), words...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(dir, "state"), env)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("gpurun %s: %v\n%s", strings.Join(words, " "), err, out)
		}
		return string(out)
	}
	// The digest of a job has its folder, which is another one than that of the recorded run.
	gpurun("FITS=8", "--run-dir", "fresh", "train.toml")
	fresh, err := os.ReadFile(filepath.Join(dir, "fresh", "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(dir, "run", "journal.jsonl")
	text, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(journal, digestOfRun.ReplaceAll(text, digestOfRun.Find(fresh)), 0o600); err != nil {
		t.Fatal(err)
	}

	for verb, want := range map[string]string{"explain": "micro batch 8→4", "logs": "rank 0 trains with 4 x 2", "report": "report.html"} {
		if out := gpurun("", verb, "run"); !strings.Contains(out, want) {
			t.Errorf("%s: %s", verb, out)
		}
	}
	out := gpurun("", "--run-dir", "run", "train.toml")
	if v := readVerdict(t, filepath.Join(dir, "run")); !strings.Contains(out, "resuming the run: attempt 1 was interrupted") || v.Code != 0 || len(v.Attempts) != 3 || v.Attempts[2].Plan[strategy.MicroBatchSize] != "4" {
		t.Errorf("%+v\n%s", v, out)
	}
}
