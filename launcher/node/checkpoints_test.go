package node

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
	"github.com/gpurun/gpurun/test/testenv"
)

// A checkpoint counts once nothing of it was written for a while, or the job has begun
// the next one.
func TestSavedCheckpoints(t *testing.T) {
	for name, test := range map[string]struct {
		writes map[string]time.Duration // when a checkpoint was last written
		want   string
		after  time.Duration
	}{
		"one":                {map[string]time.Duration{"ckpt-1": 10 * time.Second}, "ckpt-1", 13 * time.Second},
		"one after the next": {map[string]time.Duration{"ckpt-1": 10 * time.Second, "ckpt-2": 11500 * time.Millisecond}, "ckpt-1", 12 * time.Second},
		"none":               {nil, "", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				newest := func(since time.Time) string {
					last, path := time.Time{}, ""
					for name, after := range test.writes {
						at := begin.Add(after)
						if !at.Before(since) && !at.After(time.Now()) && at.After(last) {
							last, path = at, name
						}
					}
					return path
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				saved := NoticeOptions{Checkpoint: newest}.Checkpoints(func(string) bool { return true })
				path, found := saved.Saved(ctx, begin)
				if took := time.Since(begin); path != test.want || found != (test.want != "") || took != test.after {
					t.Errorf("%q, %v after %s", path, found, took)
				}
			})
		})
	}
}

func TestDeadlineOfASpeedUp(t *testing.T) {
	now := time.Now()
	o := NoticeOptions{
		Checkpoint: func(time.Time) string { return "" }, Deadline: now.Add(2 * time.Hour),
		Scheduler: func(context.Context) (time.Time, bool) { return now.Add(time.Hour), true },
	}
	if end := o.Checkpoints(nil).Deadline(t.Context()); !end.Equal(now.Add(time.Hour)) {
		t.Errorf("the scheduler's end is %s", end)
	}
	o.Scheduler = nil
	if end := o.Checkpoints(nil).Deadline(t.Context()); !end.Equal(o.Deadline) {
		t.Errorf("the user's is %s", end)
	}
	if (NoticeOptions{}).Checkpoints(nil) != nil {
		t.Error("a job whose checkpoints nobody knows has some")
	}
}

// A checkpoint that grows after a rank has named the cause of its end is reported once, and
// only then is it looked at.
func TestSavingIsSeen(t *testing.T) {
	word := func(source string, weight cause.Weight) strategy.Fact {
		return strategy.Fact{Source: source, Content: &strategy.Finding{Code: cause.CUDAOOM, Weight: weight}}
	}
	for name, c := range map[string]struct {
		facts []strategy.Fact
		from  time.Duration // when it is seen to grow
		want  int           // signs
	}{
		"it grows":                 {[]strategy.Fact{word("probe", cause.WeightCause), word("error.json", cause.WeightCause)}, 100 * time.Millisecond, 1},
		"it grows too late":        {[]strategy.Fact{word("probe", cause.WeightCause)}, time.Second, 0},
		"a symptom":                {[]strategy.Fact{word("probe", cause.WeightSymptom)}, 0, 0},
		"a line in the output":     {[]strategy.Fact{word("stderr", cause.WeightCause)}, 0, 0},
		"no rank says why it ends": {nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, looks, told, signs := time.Now(), 0, 0, 0
				w := newSavingWatch(func(context.Context) func(context.Context) bool {
					return func(context.Context) bool { looks++; return time.Since(begin) >= c.from }
				}, func(f strategy.Fact) {
					if strategy.As[*strategy.Sign](f) == nil {
						told++
					} else if signs++; strategy.As[*strategy.Sign](f).Saved.IsZero() || f.Rank != -1 {
						t.Errorf("sign %+v of rank %d", strategy.As[*strategy.Sign](f), f.Rank)
					}
				})
				for _, f := range c.facts {
					w.see(f)
				}
				time.Sleep(2 * time.Second)
				w.stop()
				if told != len(c.facts) || signs != c.want || looks > 6 {
					t.Errorf("%d facts and %d signs after %d looks, want %d and %d", told, signs, looks, len(c.facts), c.want)
				}
			})
		})
	}
}

// What the allocators of ranks held is reported once they are gone, and dropped for those that
// ended well.
func TestSnapshotsAreReported(t *testing.T) {
	const digest = `{"reserved_bytes": 1048576, "leaks": [{"file": "train.py", "line": 78}]}`
	for mode, want := range map[string]int{"oom": 1, "off": 0} {
		f := newFixture(t, "#!/bin/sh\ncd \"${TORCHELASTIC_ERROR_FILE%/*}\"\necho '"+digest+"' > snapshot-0.json\ntouch snapshot-0.pickle\nexit $(( RANK == 1 ? 0 : 3 ))\n")
		f.opts.Snapshot = mode
		a, err := f.start(t)
		testenv.Check(t, err)
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
