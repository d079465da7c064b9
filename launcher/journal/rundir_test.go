package journal

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// begin makes a run directory whose job has a scheduler's name.
func begin(t *testing.T, dir, scheduler string) {
	t.Helper()
	j, _, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append(launcher.Began{Run: filepath.Base(dir), Scheduler: scheduler}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// A run directory is the one that is named, the oldest that is left of the same job where a
// scheduler restarts it, and else a new one.
func TestFindARunDirectory(t *testing.T) {
	root := t.TempDir()
	begin(t, filepath.Join(root, "20260101-000000-0001"), "slurm 7")
	begin(t, filepath.Join(root, "20260102-000000-0002"), "slurm 7")
	begin(t, filepath.Join(root, "20260103-000000-0003"), "slurm 8")
	fresh := func(dir string) bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err) && filepath.Dir(dir) == root
	}
	for name, test := range map[string]struct {
		search RunSearch
		want   string // empty: a new one
	}{
		"named":         {RunSearch{Named: "/runs/mine", Root: root, Scheduler: "slurm 7", Restart: 1}, "/runs/mine"},
		"by its name":   {RunSearch{ID: "mine", Root: root, Scheduler: "slurm 7", Restart: 1}, filepath.Join(root, "mine")},
		"restarted":     {RunSearch{Root: root, Scheduler: "slurm 7", Restart: 1}, filepath.Join(root, "20260101-000000-0001")},
		"first start":   {RunSearch{Root: root, Scheduler: "slurm 7"}, ""},
		"another job":   {RunSearch{Root: root, Scheduler: "slurm 9", Restart: 1}, ""},
		"no scheduler":  {RunSearch{Root: root, Restart: 1}, ""},
		"no runs there": {RunSearch{Root: filepath.Join(root, "missing"), Scheduler: "slurm 7", Restart: 1}, ""},
	} {
		got, err := test.search.Find()
		if test.want == "" {
			test.want, _ = filepath.Split(filepath.Join(test.search.Root, "x"))
			if err != nil || !strings.HasPrefix(got, test.want) || test.search.Root == root && !fresh(got) {
				t.Errorf("%s: %q, %v, want a new one", name, got, err)
			}
			continue
		}
		if err != nil || got != test.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, test.want)
		}
	}
}

// Why a run directory cannot be used decides the exit code.
func TestOpenRunSaysWhyNot(t *testing.T) {
	used := filepath.Join(t.TempDir(), "run")
	j, _, err := Open(used, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	newer := filepath.Join(t.TempDir(), "run")
	begin(t, newer, "")
	if err := os.WriteFile(filepath.Join(newer, File), []byte("{\"v\":99,\"kind\":\"began\"}\n{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		dir  string
		code int
		hint string
	}{
		"in use":       {used, strategy.CodeUsage, "wait for it, or name another --run-dir or --run-id"},
		"newer":        {newer, strategy.CodeUsage, "use the gpurun that wrote the run directory"},
		"below a file": {filepath.Join(file, "run"), strategy.CodeRunDir, "run directory that it can write"},
	} {
		_, _, err := (RunSearch{}).OpenRun(t.Context(), test.dir, nil, LockWait{})
		if errext.Code(err, 0) != test.code || !strings.Contains(errext.Hint(err), test.hint) {
			t.Errorf("%s: %v, code %d, hint %q", name, err, errext.Code(err, 0), errext.Hint(err))
		}
	}
	if _, _, err := (RunSearch{}).OpenRun(t.Context(), used, nil, LockWait{}); !errors.Is(err, ErrLocked) {
		t.Errorf("in use: %v", err)
	}
}

// Where one run that has trained is to be enough, it is found: of this job only, the one
// that is named before all others. A run that was decided and whose verdict is missing has
// trained, too.
func TestFindARunThatHasTrained(t *testing.T) {
	root := t.TempDir()
	trained := launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained}}
	files := map[string]map[string]string{"other": {"c.yaml": "a"}}
	make := func(name, digest string, last ...launcher.Event) {
		t.Helper()
		j, _, err := Open(filepath.Join(root, name), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range append([]launcher.Event{launcher.Began{Run: name, Digest: digest, Files: files[name]}}, last...) {
			if err := j.Append(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	make("first", "2:a", trained)
	make("second", "2:a", launcher.Decided{Decision: strategy.Decision{Outcome: strategy.Trained}})
	make("failed", "2:a", launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Failed, Code: 1}})
	make("open", "2:a")
	make("other", "2:b", trained)
	for _, test := range []struct {
		search RunSearch
		want   string
	}{
		{RunSearch{Root: root, Digest: "2:a", IfTrained: SkipTrained}, "second"},
		{RunSearch{Root: root, Digest: "2:a", IfTrained: SkipTrained, Named: filepath.Join(root, "first")}, "first"},
		{RunSearch{Root: root, Digest: "2:a", IfTrained: SkipTrained, Named: filepath.Join(root, "failed")}, "second"},
		{RunSearch{Root: root, Digest: "2:a", Named: filepath.Join(root, "new")}, "new"},
		{RunSearch{Root: root, Digest: "2:b", IfTrained: SkipTrained, Files: files["other"]}, "other"},
		{RunSearch{Root: root, Digest: "2:b", IfTrained: SkipTrained, Files: map[string]string{"c.yaml": "b"}, Named: filepath.Join(root, "new")}, "new"},
		{RunSearch{Root: root, Digest: "2:c", IfTrained: SkipTrained, Named: filepath.Join(root, "new")}, "new"},
		{RunSearch{Root: root, Digest: "2:a", IfTrained: RunTrained, Named: filepath.Join(root, "failed")}, "failed"},
	} {
		if got, err := test.search.Find(); err != nil || filepath.Base(got) != test.want {
			t.Errorf("%+v: %s, %v, want %s", test.search, got, err, test.want)
		}
	}
	held, _, err := Open(filepath.Join(root, "first"), nil)
	if err != nil {
		t.Fatal(err)
	}
	again := RunSearch{Root: root, Digest: "2:a", IfTrained: RunTrained, Named: filepath.Join(root, "first")}
	if got, err := again.Find(); err != nil || filepath.Base(got) != "first" {
		t.Errorf("a run that is looked at is not set aside: %s, %v", got, err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := again.Find(); err != nil || filepath.Base(got) != "first" {
		t.Errorf("%s, %v", got, err)
	}
	if !again.trained(filepath.Join(root, "first.1")) || again.trained(filepath.Join(root, "first")) {
		t.Error("a run that has trained was not set aside for another of its name")
	}
	mended := RunSearch{Root: root, ID: "failed", Digest: "2:b", Fresh: true, Restart: 1}
	if _, err := mended.Find(); err != nil || !failed(filepath.Join(root, "failed")) {
		t.Errorf("a scheduler's restart sets a failed run aside: %v", err)
	}
	mended.Restart = 0
	if got, err := mended.Find(); err != nil || filepath.Base(got) != "failed" || !failed(filepath.Join(root, "failed.1")) || failed(got) {
		t.Errorf("a failed run is not set aside for a fresh one: %s, %v", got, err)
	}
	mended.ID = "second"
	if _, err := mended.Find(); err != nil || !(RunSearch{}).trained(filepath.Join(root, "second")) {
		t.Errorf("a run that has trained is set aside for a fresh one: %v", err)
	}
}

func TestTrackerNamesArePlain(t *testing.T) {
	plain := regexp.MustCompile(`^[A-Za-z0-9-]{1,49}$`)
	for _, run := range []string{"20270115-080000-ab12", "", "mein Lauf/ü?#", strings.Repeat("ä", 300), "---"} {
		a, b := TrackerName(run), TrackerName(run)
		if a == b || !plain.MatchString(a) || !plain.MatchString(b) || a[0] == '-' {
			t.Errorf("%q: %q and %q", run, a, b)
		}
	}
}
