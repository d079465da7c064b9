package node

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/test/testenv"

	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/strategy"
)

// What ranks print, what their processes report and what the driver reports of the devices is
// joined while they run, and once more when they are gone.
func TestRanksAreSampled(t *testing.T) {
	stepped := time.Now().Truncate(time.Second)
	f := newFixture(t, fmt.Sprintf(`#!/bin/sh
[ $RANK = 1 ] && exit
echo 'step 3 loss 0.25'
echo 5 100 nan %d 1 10 20 30 2 train 0.25 0.5 5 >$(dirname $TORCHELASTIC_ERROR_FILE)/steps
until [ -e go-on ]; do sleep 0.02; done
echo 7 100 0.5 1700000001 1 11 21 31 2 eval 0 0 7 >$(dirname $TORCHELASTIC_ERROR_FILE)/steps
`, stepped.Unix()))
	f.opts.Output.Step = regexp.MustCompile(`step (?P<step>\d+) loss (?P<loss>\S+)`)
	f.opts.Devices = func(context.Context) (func() []ranks.Device, func()) {
		return func() []ranks.Device { return []ranks.Device{{Used: 50, Total: 100}, {Used: 60, Total: 200}} }, func() {}
	}
	var mu sync.Mutex
	var latest []strategy.Sample
	f.opts.Samples = func(n int, samples []strategy.Sample) {
		mu.Lock()
		defer mu.Unlock()
		if latest = samples; n != 0 {
			t.Errorf("samples of attempt %d", n)
		}
	}
	now := func() []strategy.Sample {
		mu.Lock()
		defer mu.Unlock()
		return latest
	}
	a, err := f.start(t)
	testenv.Check(t, err)
	await(t, "the steps", func() bool { s := now(); return len(s) == 2 && s[0].Step == 5 && s[0].Loss != nil })
	loss := .25
	want := []strategy.Sample{
		{Rank: 0, Device: "cuda:1", Step: 5, Total: 100, Loss: &loss, Counted: 5, CountedAt: stepped, Data: strategy.Seconds(time.Second / 4), Forward: strategy.Seconds(time.Second / 2), Phase: "train", Allocated: 10, Reserved: 20, Peak: 30, Retries: 2, Allowed: 200, Used: 60, Capacity: 200},
		{Rank: 1, Device: "cuda:1", Phase: "load", Allowed: 200, Used: 60, Capacity: 200},
	}
	if diff := cmp.Diff(want, now(), cmpopts.IgnoreFields(strategy.Sample{}, "Time")); diff != "" {
		t.Error(diff)
	}
	testenv.Check(t, os.WriteFile(filepath.Join(f.dir, "go-on"), nil, 0o644))
	drain(a.Facts())
	if s := now()[0]; s.Step != 7 || s.Counted != 0 || s.Peak != 31 || s.Phase != "eval" || time.Since(s.Time) > time.Hour {
		t.Errorf("at the end: %+v", s)
	}
}

// A job on the CPU that has made no step is seen anyway, and what was seen last stays
// when it is gone.
func TestRanksOnTheCPUAreSeenBeforeTheirFirstStep(t *testing.T) {
	f := newFixture(t, "#!/bin/sh\nuntil [ -e go-on ]; do sleep 0.02; done\n")
	f.opts.Accelerator, f.opts.DataLimit = "cpu", 1<<40
	var mu sync.Mutex
	var latest []strategy.Sample
	f.opts.Samples = func(_ int, samples []strategy.Sample) {
		mu.Lock()
		defer mu.Unlock()
		latest = samples
	}
	now := func() strategy.Sample {
		mu.Lock()
		defer mu.Unlock()
		return append(latest, strategy.Sample{})[0]
	}
	a, err := f.start(t)
	testenv.Check(t, err)
	await(t, "memory", func() bool { return now().Allocated > 0 })
	if s := now(); s.Device != "cpu" || s.Phase != "load" || s.Peak < s.Allocated || s.Allowed != 1<<40 {
		t.Errorf("%+v", s)
	}
	testenv.Check(t, os.WriteFile(filepath.Join(f.dir, "go-on"), nil, 0o644))
	drain(a.Facts())
	if s := now(); s.Allocated == 0 || s.Device != "cpu" {
		t.Errorf("at the end: %+v", s)
	}
}

// On the CPU ranks share what the host has.
func TestHostShare(t *testing.T) {
	a := &attempt{node: &Node{}, local: 1, steps: map[int]hook.OptimizerStep{0: {N: 1, Loss: math.NaN(), Held: hook.HeldMemory{Device: -1, Allocated: 5, Peak: 7}}}, out: &ranks.Output{}}
	want := strategy.Sample{Device: "cpu", Step: 1, Counted: 1, Phase: "train", Allocated: 5, Peak: 7, Allowed: 20}
	if got := a.samples(time.Time{}, []ranks.Device{{Used: 1, Total: 2}}, 20); len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestStepsAreTimedByTheMonotonicClock: a process reports the wall clock, which can be set while it trains.
func TestStepsAreTimedByTheMonotonicClock(t *testing.T) {
	for name, test := range map[string]struct{ early, want time.Duration }{
		"just now": {0, 0}, "two seconds ago": {2 * time.Second, 2 * time.Second},
		"before the clock was put forward a day": {24 * time.Hour, 0}, "before it was put back an hour": {-time.Hour, 0},
	} {
		a := &attempt{steps: map[int]hook.OptimizerStep{}, reported: map[int]time.Time{}, out: &ranks.Output{}}
		wall := time.Now().Round(0).Add(-test.early)
		a.stepped(0, hook.OptimizerStep{N: 7, At: wall})
		at := a.steps[0].At
		if early := time.Since(at); !strings.Contains(at.String(), " m=") || early < test.want || early > test.want+time.Minute {
			t.Errorf("%s: %s, %s ago, want %s", name, at, early, test.want)
		}
		if a.stepped(0, hook.OptimizerStep{N: 7, At: wall, Phase: "eval"}); a.steps[0].At != at || a.steps[0].Phase != "eval" {
			t.Errorf("%s: the next phase of the same step: %+v, want the time %s", name, a.steps[0], at)
		}
	}
}

// Lines and process may count different things: one of them is taken, with its total.
func TestAddSteps(t *testing.T) {
	lost, own := .5, .25
	for _, test := range []struct {
		name  string
		lines ranks.Shown
		told  hook.OptimizerStep
		want  strategy.Sample
	}{
		{"nothing", ranks.Shown{}, hook.OptimizerStep{}, strategy.Sample{}},
		{"lines alone", ranks.Shown{Step: 3, Loss: &lost}, hook.OptimizerStep{}, strategy.Sample{Step: 3, Loss: &lost}},
		{"the process alone", ranks.Shown{}, hook.OptimizerStep{N: 5, Total: 9, Loss: own}, strategy.Sample{Step: 5, Total: 9, Loss: &own}},
		{"the process, which knows the total", ranks.Shown{Step: 30, Total: 90}, hook.OptimizerStep{N: 5, Total: 9, Loss: math.NaN()}, strategy.Sample{Step: 5, Total: 9}},
		{"lines, which know the total", ranks.Shown{Step: 30, Total: 90, Loss: &lost}, hook.OptimizerStep{N: 5, Loss: own}, strategy.Sample{Step: 30, Total: 90, Loss: &lost, Batches: true}},
		{"neither knows it", ranks.Shown{Step: 30}, hook.OptimizerStep{N: 5, Loss: math.Inf(1)}, strategy.Sample{Step: 5}},
	} {
		var got strategy.Sample
		addSteps(&got, test.lines, test.told)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// A rank that did steps again in place is marked: it computes longer than the others. Its peak counts what it held
// when memory ran out, which the process forgets.
func TestRanksThatRepeatStepsAreMarked(t *testing.T) {
	a := &attempt{node: &Node{}, local: 1, steps: map[int]hook.OptimizerStep{}, again: map[int][]strategy.InPlace{}, out: &ranks.Output{}}
	a.node.opts.Accelerator = "cuda"
	passed := 0
	emit := a.repeats(func(strategy.Fact) { passed++ })
	a.steps[0] = hook.OptimizerStep{N: 1, Held: hook.HeldMemory{Allocated: 3, Peak: 5}}
	for _, said := range []*strategy.ProcessReport{nil, {PID: 1}, {PID: 1, InPlace: []strategy.InPlace{{Times: 1, Held: 7}}}} {
		emit(strategy.Fact{Content: said})
		marked, peak := said != nil && len(said.InPlace) > 0, int64(5)
		if marked {
			peak = 7
		}
		if got := a.samples(time.Now(), nil, 0)[0]; got.InPlace != marked || got.Peak != peak || got.Allocated != 3 {
			t.Errorf("%+v: %+v", said, got)
		}
	}
	if passed != 3 {
		t.Errorf("%d facts of 3 passed", passed)
	}
}
