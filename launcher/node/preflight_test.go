package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// What a preflight finds is the attempt: no rank is started.
func TestAnUnfitGPUStartsNoRank(t *testing.T) {
	f := newFixture(t, "#!/bin/sh\ntouch started\n")
	unfit := strategy.Fact{Rank: -1, Source: "gpurun", Content: &strategy.DriverEvent{Kind: cause.UnfitEvent, Device: "cuda:0", UUID: "GPU-0", Fault: "it is broken"}}
	f.opts.Preflight = func(_ context.Context, warn func(string)) []strategy.Fact {
		warn("a word")
		return []strategy.Fact{unfit}
	}
	a, err := f.start(t)
	if err != nil {
		t.Fatal(err)
	}
	var facts []strategy.Fact
	for fact := range a.Facts() {
		facts = append(facts, fact)
	}
	a.Stop(15, 0)
	if len(facts) != 1 || facts[0].DriverEvent() != unfit.DriverEvent() {
		t.Errorf("%+v", facts)
	}
	want := []string{"preflight: the GPUs are checked before the ranks are started, for a minute at most", "warning: a word", "warning: cuda:0 (GPU-0, index 0): it is broken"}
	if got := f.store.notices(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "started")); err == nil {
		t.Error("a rank was started")
	}
}

// A preflight is made once, and ranks are started after one that finds nothing.
func TestAPreflightThatFindsNothing(t *testing.T) {
	f := newFixture(t, "#!/bin/sh\n[ -e looked ] && touch started\n")
	looks := 0
	f.opts.Preflight = func(context.Context, func(string)) []strategy.Fact {
		looks++
		if err := os.WriteFile(filepath.Join(f.dir, "looked"), nil, 0o644); err != nil {
			t.Error(err)
		}
		return nil
	}
	n := New(f.opts, f.log, f.signals)
	for i := range 2 {
		dir, err := f.store.Prepare(i)
		if err != nil {
			t.Fatal(err)
		}
		a, err := n.Start(t.Context(), f.launch(i, dir))
		if err != nil {
			t.Fatal(err)
		}
		drain(a.Facts())
	}
	if _, err := os.Stat(filepath.Join(f.dir, "started")); err != nil || looks != 1 {
		t.Errorf("looked %d times, %v", looks, err)
	}
}

// Who stops gpurun during a preflight stops the run.
func TestAPreflightIsCutShort(t *testing.T) {
	f := newFixture(t, "#!/bin/sh\n")
	ctx, cancel := context.WithCancelCause(t.Context())
	f.opts.Preflight = func(context.Context, func(string)) []strategy.Fact {
		cancel(&launcher.Signal{Number: syscall.SIGTERM})
		return nil
	}
	_, err := New(f.opts, f.log, f.signals).Start(ctx, f.launch(0, t.TempDir()))
	var stop *launcher.Signal
	if !errors.As(err, &stop) {
		t.Errorf("%v", err)
	}
}
