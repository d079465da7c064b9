package node

import (
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// What the allocators of ranks held is reported once they are gone, and dropped for those that
// ended well.
func TestSnapshotsAreReported(t *testing.T) {
	const digest = `{"reserved_bytes": 1048576, "leaks": [{"file": "train.py", "line": 78}]}`
	for mode, want := range map[string]int{"oom": 1, "off": 0} {
		f := newFixture(t, "#!/bin/sh\ncd \"${TORCHELASTIC_ERROR_FILE%/*}\"\necho '"+digest+"' > snapshot-0.json\ntouch snapshot-0.pickle\nexit $(( RANK == 1 ? 0 : 3 ))\n")
		f.opts.Snapshot = mode
		a, err := f.start(t)
		if err != nil {
			t.Fatal(err)
		}
		var told []strategy.Snapshot
		for fact := range a.Facts() {
			if strategy.As[*strategy.Snapshot](fact) != nil {
				told = append(told, *strategy.As[*strategy.Snapshot](fact))
			}
		}
		if len(told) != want {
			t.Fatalf("%s: %d snapshots are told, want %d", mode, len(told), want)
		}
		if want > 0 && (told[0].Rank != 0 || told[0].File != "rank0/snapshot-0.pickle" || len(told[0].Leaks) != 1 || told[0].Leaks[0].Line != 78) {
			t.Errorf("told %+v", told[0])
		}
		kept, err := filepath.Glob(filepath.Join(f.store.dir, "attempt-0", "rank1", "snapshot-0.*"))
		if want := map[string]int{"oom": 0, "off": 2}[mode]; err != nil || len(kept) != want {
			t.Errorf("%s: the files of the rank that ended well: %q, %v", mode, kept, err)
		}
	}
}

// Of several processes of a rank the one counts that ran out of memory.
func TestMeasurementThatCounts(t *testing.T) {
	var m measured
	see := m.tap(func(strategy.Fact) {})
	for _, each := range []memory.Measurement{{PID: 1}, {PID: 2, Failed: "forward"}, {PID: 3}} {
		see(strategy.Fact{Content: (*strategy.Measurement)(&each)})
	}
	see(strategy.Fact{Rank: 1, Content: &strategy.Measurement{PID: 4}})
	if m[0].PID != 2 || m[1].PID != 4 {
		t.Errorf("%+v", m)
	}
}

func TestOrders(t *testing.T) {
	for _, test := range []struct {
		mode    string
		closely bool
		want    hook.Recording
	}{{"", false, ""}, {"off", true, ""}, {"oom", false, "first"}, {"oom", true, "all"}, {"always", false, "all"}} {
		n := &Node{opts: Options{Snapshot: test.mode}}
		if got := n.record(launcher.Launch{Closely: test.closely}); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
