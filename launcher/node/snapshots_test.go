package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/probe"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// What the allocators of ranks held is told once they are gone, and forgotten of those that
// ended well.
func TestSnapshotsAreTold(t *testing.T) {
	t.Setenv("SNAPSHOT", filepath.Join("..", "snapshot", "testdata", "leak.pickle"))
	path, err := filepath.Abs(os.Getenv("SNAPSHOT"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SNAPSHOT", path)
	for mode, want := range map[string]int{"oom": 1, "off": 0} {
		f := newFixture(t, "#!/bin/sh\ncp $SNAPSHOT \"${TORCHELASTIC_ERROR_FILE%/*}/snapshot-0.pickle\"\nexit $(( RANK == 1 ? 0 : 3 ))\n")
		f.opts.Snapshot = mode
		a, err := f.start(t)
		if err != nil {
			t.Fatal(err)
		}
		var told []strategy.Snapshot
		for fact := range a.Facts() {
			if fact.Snapshot != nil {
				told = append(told, *fact.Snapshot)
			}
		}
		if len(told) != want {
			t.Fatalf("%s: %d snapshots are told, want %d", mode, len(told), want)
		}
		if want > 0 && (told[0].Rank != 0 || told[0].File != "rank0/snapshot-0.pickle" || len(told[0].Leaks) != 1 || told[0].Leaks[0].Line != 78) {
			t.Errorf("told %+v", told[0])
		}
		_, err = os.Stat(filepath.Join(f.store.dir, "attempt-0", "rank1", "snapshot-0.pickle"))
		if kept := err == nil; kept != (mode == "off") {
			t.Errorf("%s: the file of the rank that ended well: %v", mode, err)
		}
	}
}

// Once the time for all ranks is over, what is missing is said of each that is left.
func TestSnapshotsThatTakeTooLong(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "snapshot", "testdata", "leak.pickle"))
	if err != nil {
		t.Fatal(err)
	}
	a := &attempt{node: &Node{opts: Options{Snapshot: "oom"}}, dir: t.TempDir(), facts: make(chan strategy.Fact, 2)}
	a.local = 2
	for rank := range a.local {
		folder := filepath.Join(a.dir, fmt.Sprintf("rank%d", rank))
		if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(filepath.Join(folder, "snapshot-0.pickle"), content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	a.snapshots(over)
	for rank := range a.local {
		if f := <-a.facts; f.Rank != rank || f.Snapshot == nil || f.Snapshot.Reserved != 0 || !strings.Contains(f.Snapshot.Missing, "not read in time") {
			t.Errorf("rank %d: %+v", rank, f.Snapshot)
		}
	}
}

// Of several processes of a rank the one counts that ran out of memory.
func TestWhoseMeasurementCounts(t *testing.T) {
	var m measured
	see := m.tap(func(strategy.Fact) {})
	for _, each := range []memory.Measurement{{PID: 1}, {PID: 2, Failed: "forward"}, {PID: 3}} {
		see(strategy.Fact{Memory: &each})
	}
	see(strategy.Fact{Rank: 1, Memory: &memory.Measurement{PID: 4}})
	if m[0].PID != 2 || m[1].PID != 4 {
		t.Errorf("%+v", m)
	}
}

func TestWhatIsOrdered(t *testing.T) {
	for _, test := range []struct {
		mode    string
		closely bool
		want    probe.Record
	}{{"", false, ""}, {"off", true, ""}, {"oom", false, "first"}, {"oom", true, "all"}, {"always", false, "all"}} {
		n := &Node{opts: Options{Snapshot: test.mode}}
		if got := n.record(launcher.Launch{Closely: test.closely}); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
