package hook

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/strategy/memory"
	"github.com/gpurun/gpurun/test/testenv"
)

// heard is what the fake of PyTorch's CUDA allocator recorded, and the files that its
// process has left.
type heard struct {
	Way       string           `json:"way"`
	Number    string           `json:"number"` // in the names of its files
	Heard     []map[string]any `json:"heard"`
	Observers int              `json:"observers"`
	Restored  bool             `json:"restored"` // the job's own function is in its place
	Stays     bool             `json:"stays"`    // what a forward held that failed, and whose exception was caught
	files     []string
}

// snapshots runs the job of testdata/snapshots.py, whose allocator is a stand-in, in some
// ways, and gives what each heard.
func snapshots(t *testing.T, ways string, record Recording, most string, env ...string) (all []heard, dir string) {
	t.Helper()
	path := needs(t)
	r := newTrial(t)
	r.orders.Script, r.orders.Record = testdata(t, "snapshots.py"), record
	if most != "" {
		text, err := os.ReadFile("inside/observe/snapshot.py")
		if err != nil {
			t.Fatal(err)
		}
		r.parts = map[string]string{"snapshot": strings.Replace(string(text), "MOST = 32 << 20", "MOST = "+most, 1)}
	}
	r.env = env
	out, stderr, _ := testenv.Warmed(t, r.job(t, path, r.orders.Script, ways))
	r.told(t) // that nothing went wrong in the probe
	dir = filepath.Join(r.dir, "rank0")
	for line := range strings.Lines(out) {
		var h heard
		if err := json.Unmarshal([]byte(line), &h); err != nil {
			t.Fatalf("%v: %s\n%s", err, line, stderr)
		}
		for _, k := range []string{"0", "1", "2"} {
			_, digest := os.Stat(filepath.Join(dir, "snapshot-"+k+h.Number+".json"))
			_, whole := os.Stat(filepath.Join(dir, "snapshot-"+k+h.Number+".pickle"))
			if digest == nil {
				h.files = append(h.files, k)
			}
			if observed := h.Observers > 0; (digest == nil && observed) != (whole == nil) {
				t.Errorf("%s: snapshot %s: digest: %v, pickle: %v", h.Way, k, digest, whole)
			}
		}
		all = append(all, h)
	}
	if len(all) != strings.Count(ways, ",")+1 {
		t.Fatalf("%s: only %+v was heard\n%s", ways, all, stderr)
	}
	return all, dir
}

// What the allocator is set to record, and which files are left. A fake of it receives
// that; what it does on a GPU is seen by TestSnapshotOnAGPU of test.
func TestRecordedAllocations(t *testing.T) {
	on := map[string]any{"enabled": "all", "context": "alloc", "stacks": "python", "max_entries": 100000.0}
	off := map[string]any{"enabled": nil, "context": "all", "stacks": "all", "max_entries": 9223372036854775807.0}
	type want struct {
		heard     []map[string]any
		observers int
		files     string
		restored  bool
	}
	first := map[string]want{
		"late":     {[]map[string]any{on, off}, 1, "0", true},
		"dies":     {[]map[string]any{on}, 1, "0", false},
		"twice":    {[]map[string]any{on}, 1, "0 1", false},
		"outlived": {[]map[string]any{on, off}, 1, "", true},
		"caught":   {[]map[string]any{on, off}, 1, "", true},
		"own":      {[]map[string]any{on, off}, 1, "0", false}, // off is the job's own call
		"already":  {nil, 1, "0", false},                       // the watch is not needed, and stays
		"legacy":   {nil, 0, "", true},
		"oldest":   {nil, 0, "", true},
		"raises":   {[]map[string]any{on}, 1, "", false},
		"recurses": {[]map[string]any{on}, 1, "0", false},

		"workspaces": {[]map[string]any{on}, 1, "0 1", false}, "many workspaces": {[]map[string]any{on}, 1, "0 1", false},
		"pluggable": {nil, 0, "", true}, // a fork says so only once it trains, and then CUDA is in use
	}
	for _, test := range []struct {
		name   string
		record Recording
		env    []string
		want   map[string]want
	}{
		{"first", RecordFirst, nil, first},
		{"the rank itself", RecordFirst, nil, map[string]want{"late": first["late"]}},
		{"all", RecordAll, nil, map[string]want{"late": {[]map[string]any{on}, 1, "0", false}, "outlived": {[]map[string]any{on}, 1, "", false}}},
		{"no caching", RecordFirst, []string{"PYTORCH_NO_CUDA_MEMORY_CACHING=1"}, map[string]want{"late": {nil, 0, "0", true}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			all, _ := snapshots(t, strings.Join(slices.Sorted(maps.Keys(test.want)), ","), test.record, "", test.env...)
			for _, h := range all {
				w := test.want[h.Way]
				if diff := cmp.Diff(w, want{h.Heard, h.Observers, strings.Join(h.files, " "), h.Restored}, cmp.AllowUnexported(want{}), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s: %s", h.Way, diff)
				}
				if h.Stays {
					t.Errorf("%s: what was held when memory ran out is not freed", h.Way)
				}
			}
		})
	}
}

// A file that would be too long loses its oldest history first, and says so. Its digest is made
// of all of it.
func TestLongSnapshotIsTrimmed(t *testing.T) {
	all, dir := snapshots(t, "huge,large", RecordFirst, "2 << 20")
	for i, want := range []string{"history and stacks are omitted, because of the file's size 1 forward runs_out ", "the history is the latest"} {
		path := filepath.Join(dir, "snapshot-0"+all[i].Number+".pickle")
		info, err := os.Stat(path)
		if err != nil || info.Size() > 2<<20 || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v", info, err)
		}
		digest, err := readDigest(strings.TrimSuffix(path, ".pickle")+".json", nil)
		if err != nil || digest.Allocated < 8<<20 || len(digest.Top) == 0 || digest.Top[0].Line == 0 && all[i].Way == "large" || digest.Missing != "" {
			t.Errorf("%+v, %v", digest, err)
		}
		out, err := exec.Command(testenv.Python(t), "-c", `
import pickle, sys
s = pickle.load(open(sys.argv[1], "rb"))
entries, told = s["device_traces"][0], s["gpurun"]
print(told["trimmed"], told["steps"], told["phase"], told["stack"][0]["name"], entries[-1]["addr"] >> 20 if entries else "")`, path).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%v: %s", err, out)
		}
		if all[i].Way == "large" && !strings.HasSuffix(string(out), " 1 forward runs_out 19999\n") {
			t.Errorf("%s", out)
		}
	}
}

// The snapshot is of the request that was raised to the job, whatever workspaces cuDNN asked for before. A fake of the
// allocator's observer receives the requests; no convolution runs.
func TestSnapshotOfTheRaisedRequest(t *testing.T) {
	for _, way := range []string{"workspaces", "many workspaces"} {
		_, dir := snapshots(t, way, RecordFirst, "")
		s, found := NewestSnapshot(filepath.Dir(dir), 0, nil)
		if !found || s.Requested != 3<<30 {
			t.Errorf("%s: found %v, of a request of %d", way, found, s.Requested)
		}
	}
}

// A snapshot that was taken later, of a request that did not end the process, is not preferred.
func TestSnapshotOfTheMeasuredRequest(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "snapshot-0.json", `{"reserved_bytes": 1, "requested_bytes": 2000000000}`, 0)
	put(t, dir, "snapshot-1.json", `{"reserved_bytes": 2, "requested_bytes": 17000000000}`, 1)
	for requested, want := range map[int64]int64{2000000000: 1, 17000000000: 2, 5: 2, 0: 2} {
		s, found := NewestSnapshot(dir, 3, &memory.Measurement{Failed: "backward", Requested: requested})
		if !found || s.Reserved != want {
			t.Errorf("%d were requested: %+v", requested, s)
		}
	}
}
