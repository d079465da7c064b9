package node

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
)

// Memory of other processes is noted with its amount and holders, and is evidence for the next
// attempt: before a relaunch, and once NVML is up during the first attempt.
func TestMemoryOfOthersIsNoted(t *testing.T) {
	held := strategy.Fact{Rank: -1, Source: "nvml", Content: &strategy.Tenant{Device: "cuda:1", Bytes: 12 << 30, PIDs: []int{1 << 30}}}
	var notes []string
	note := func(text string) { notes = append(notes, text) }
	w := NewWorld(WorldOptions{Settle: func(context.Context, time.Duration) []strategy.Fact { return []strategy.Fact{held} }}, nil, note)
	got := [][]strategy.Fact{w.Settle(t.Context(), time.Second)}

	store := &kept{dir: t.TempDir()}
	log := OpenEventLog(store)
	defer log.Close()
	a := &attempt{node: &Node{log: log}, facts: make(chan strategy.Fact, 1)}
	a.alarm(held)
	got = append(got, []strategy.Fact{<-a.facts})
	await(t, "the notice", func() bool { return len(store.notices()) > 0 })
	notes = append(notes, store.notices()...)
	if diff := cmp.Diff([][]strategy.Fact{{held}, {held}}, got); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	want := "warning: 12.0 GiB of cuda:1 are in use, and not by this run (process 1073741824)"
	if diff := cmp.Diff([]string{want, want}, notes); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
}
