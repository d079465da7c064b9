package snapshot

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// put writes a file of a rank's folder, so many seconds after another.
func put(t *testing.T, dir, name string, content []byte, at int) {
	t.Helper()
	path := filepath.Join(dir, "rank3", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	when := time.Unix(1_700_000_000+int64(at), 0)
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
}

func TestTheNewestCounts(t *testing.T) {
	dir := t.TempDir()
	if s, found := Newest(t.Context(), dir, 3, nil); found {
		t.Errorf("found %+v", s)
	}
	put(t, dir, "snapshot-0.pickle", text(t, "transformer"), 0)
	put(t, dir, "snapshot-1-77.pickle", text(t, "leak"), 1)
	put(t, dir, "snapshot-x.pickle", text(t, "late"), 2)
	put(t, dir, "snapshot-0.pickle.part", text(t, "late"), 2)
	s, found := Newest(t.Context(), dir, 3, measured)
	if !found || s.Rank != 3 || s.File != "rank3/snapshot-1-77.pickle" || len(s.Leaks) != 1 {
		t.Errorf("%v %+v", found, s)
	}
	if err := Remove(dir, 3); err != nil {
		t.Error(err)
	}
	if _, found = Newest(t.Context(), dir, 3, nil); found {
		t.Error("one is left")
	}
}

// What a job has put there in place of a snapshot is no reason to fail, or to follow a link.
func TestWhatIsNoSnapshot(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"a call":           {"\x80\x02cos\nsystem\n.", "opcode GLOBAL"},
		"other data":       {"\x80\x04N.", "no snapshot"},
		"a dictionary":     {"\x80\x04}.", "no snapshot"},
		"cut off":          {string(text(t, "leak")[:5000]), "cut off"},
		"nothing":          {"", "cut off"},
		"the probe's word": {"\x80\x04}(\x8c\x08segments]\x8c\x06gpurun}\x8c\x07missing\x8c\x03whys" + "u.", "why"},
	} {
		dir := t.TempDir()
		put(t, dir, "snapshot-0.pickle", []byte(test.content), 0)
		s, found := Newest(t.Context(), dir, 3, nil)
		if !found || !strings.Contains(s.Missing, test.want) || s.File != "" || s.Reserved != 0 || len(s.Words()) != 1 {
			t.Errorf("%s: %v %+v", name, found, s)
		}
	}
	dir := t.TempDir()
	put(t, dir, "other", text(t, "leak"), 0)
	if err := os.Symlink("other", filepath.Join(dir, "rank3", "snapshot-0.pickle")); err != nil {
		t.Fatal(err)
	}
	if s, found := Newest(t.Context(), dir, 3, nil); found {
		t.Errorf("a link was followed: %+v", s)
	}
}

// The files are those that PyTorch's own viewer opens, with the probe's words in them.
func TestMemoryVizOpensThem(t *testing.T) {
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if python == "" {
		t.Skip("GPURUN_TEST_PYTHON names no interpreter that has PyTorch")
	}
	out, err := exec.Command(python, "-c", "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])").Output()
	viewer := filepath.Join(strings.TrimSpace(string(out)), "cuda", "_memory_viz.py")
	if help, _ := exec.Command(python, viewer, "--help").Output(); err != nil || !strings.Contains(string(help), "segment_plot") {
		t.Skipf("%s has no viewer of this form: %v", python, err)
	}
	page := filepath.Join(t.TempDir(), "out.html")
	for _, name := range []string{"transformer", "leak"} {
		for _, plot := range []string{"trace_plot", "segment_plot"} {
			if out, err := exec.Command(python, viewer, plot, filepath.Join("testdata", name+".pickle"), "-o", page).CombinedOutput(); err != nil {
				t.Errorf("%s of %s: %v\n%s", plot, name, err, out)
			}
		}
	}
}

// faulty panics when it is first asked.
type faulty struct {
	context.Context
	asked int
}

func (f *faulty) Err() error {
	if f.asked++; f.asked == 1 {
		panic("planted")
	}
	return f.Context.Err()
}

func TestAFaultInTheReaderIsAGap(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "snapshot-0.pickle", text(t, "leak"), 0)
	if s, found := Newest(&faulty{Context: t.Context()}, dir, 3, measured); !found || !strings.Contains(s.Missing, "a bug in gpurun: planted") {
		t.Errorf("%v %+v", found, s)
	}
}
