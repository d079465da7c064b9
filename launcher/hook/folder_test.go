package hook

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/test/testenv"
)

// put writes a file of a rank's folder, so many seconds after another.
func put(t *testing.T, dir, name string, content string, at int) {
	t.Helper()
	path := filepath.Join(dir, "rank3", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	when := time.Unix(1_700_000_000+int64(at), 0)
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
}

func TestNewestSnapshotCounts(t *testing.T) {
	dir := t.TempDir()
	if s, found := NewestSnapshot(dir, 3, nil); found {
		t.Errorf("found %+v", s)
	}
	put(t, dir, "snapshot-0.json", `{"reserved_bytes": 1}`, 0)
	put(t, dir, "snapshot-1-77.json", `{"reserved_bytes": 2}`, 1)
	put(t, dir, "snapshot-1-77.pickle", "", 1)
	put(t, dir, "snapshot-0.pickle", "", 3)
	put(t, dir, "snapshot-x.json", `{"reserved_bytes": 3}`, 2)
	put(t, dir, "snapshot-0.json.part", `{"reserved_bytes": 4}`, 2)
	s, found := NewestSnapshot(dir, 3, measured)
	if !found || s.Rank != 3 || s.File != "rank3/snapshot-1-77.pickle" || s.Reserved != 2 {
		t.Errorf("%v %+v", found, s)
	}
	if err := RemoveSnapshots(dir, 3); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "rank3", "snapshot-[01]*[ne]")); len(left) > 0 || err != nil {
		t.Errorf("%q are left, %v", left, err)
	}
}

// What a job has put there in place of a digest is no reason to fail, or to follow a link.
func TestBadDigestIsNoPicture(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"a pickle":           {"\x80\x04}.", "invalid character"},
		"another type":       {"[]", "cannot unmarshal"},
		"cut off":            {`{"top": [{"by`, "unexpected end"},
		"nothing":            {"", "unexpected end"},
		"the probe's reason": {`{"missing": "why"}`, "why"},
		"a negative size":    {`{"reserved_bytes": 1, "large": [{"bytes": -1}]}`, "a size of -1"},
		"too large a size":   {`{"reserved_bytes": 1000000000000000000}`, "a size of 1000000000000000000"},
		"too many places":    {`{"reserved_bytes": 1, "top": [{}` + strings.Repeat(",{}", mostPlaces) + "]}", "more than 32 places"},
		"too long":           {`{"reserved_bytes": 1, "missing": "` + strings.Repeat("a", mostDigest) + `"}`, "more than 262144 bytes"},
	} {
		dir := t.TempDir()
		put(t, dir, "snapshot-0.json", test.content, 0)
		s, found := NewestSnapshot(dir, 3, measured)
		if !found || !strings.Contains(s.Missing, test.want) || s.File != "" || s.Reserved != 0 || len(s.Words()) != 1 {
			t.Errorf("%s: %v %+v", name, found, s)
		}
	}
	dir := t.TempDir()
	put(t, dir, "other", "{}", 0)
	if err := os.Symlink("other", filepath.Join(dir, "rank3", "snapshot-0.json")); err != nil {
		t.Fatal(err)
	}
	if s, found := NewestSnapshot(dir, 3, nil); found {
		t.Errorf("a link was followed: %+v", s)
	}
}

// The files are those that PyTorch's own viewer opens, with the probe's words in them.
func TestMemoryVizOpensSnapshots(t *testing.T) {
	python := testenv.Torch(t)
	out, err := exec.Command(python, "-c", "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])").Output()
	viewer := filepath.Join(strings.TrimSpace(string(out)), "cuda", "_memory_viz.py")
	if help, _ := exec.Command(python, viewer, "--help").Output(); err != nil || !strings.Contains(string(help), "segment_plot") {
		t.Skipf("%s has no viewer of this form: %v", python, err)
	}
	page := filepath.Join(t.TempDir(), "out.html")
	for _, name := range []string{"transformer", "leak"} {
		for _, plot := range []string{"trace_plot", "segment_plot"} {
			if out, err := exec.Command(python, viewer, plot, filepath.Join("testdata", "snapshots", name+".pickle"), "-o", page).CombinedOutput(); err != nil {
				t.Errorf("%s of %s: %v\n%s", plot, name, err, out)
			}
		}
	}
}

func FuzzReadDigest(f *testing.F) {
	f.Add([]byte(`{"reserved_bytes": 9, "large": [{"bytes": 8, "file": "a.py", "count": 1}], "top": [{"bytes": 8, "each_bytes": 8}], "leaks": [{"bytes": 1}]}`))
	f.Add([]byte(`{"missing": "why"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "snapshot-0.json")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := readDigest(path, measured)
		if err != nil {
			return
		}
		if s.Reserved < 0 || s.Allocated < 0 || s.Free < 0 || len(s.Top) > mostPlaces || len(s.Leaks) > mostPlaces {
			t.Errorf("%+v", s)
		}
		if len(s.Words()) > 5 {
			t.Errorf("%q", s.Words())
		}
	})
}
