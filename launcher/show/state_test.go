package show

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

// A run is shown in each state: not begun, running, cut off, ended.
func TestStatesOfARun(t *testing.T) {
	plan := strategy.Plan{strategy.MicroBatchSize: "8"}
	began := launcher.Began{Run: "r", Name: "gpt", Version: "v1", At: day, Plan: plan, Job: strategy.Job{Ranks: 1}}
	started := launcher.Started{N: 0, Plan: plan, At: time.Now().Add(-time.Minute)}
	for name, test := range map[string]struct {
		events []launcher.Event
		locked bool
		want   []string
	}{
		"not begun":  {[]launcher.Event{began}, true, []string{`data-outcome="running"`, "no attempt was started"}},
		"running":    {[]launcher.Event{began, started}, true, []string{`data-outcome="running"`, `attempt 0, for [1-9]\d*m\d+s, step 599 of 600`, `<p class="ended run">running</p>`}},
		"cut off":    {[]launcher.Event{began, started}, false, []string{`data-outcome="cut off"`, "in attempt 0, together with gpurun", "cut off together with gpurun"}},
		"begun anew": {[]launcher.Event{began, started, launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Retry}}, began}, true, []string{`data-outcome="running"`}},
		"stopped":    {[]launcher.Event{began, started, launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Stopped, Reason: "stopped by SIGINT"}}}, false, []string{`data-outcome="stopped"`, "stopped by SIGINT"}},
	} {
		dir := journaled(t, test.events...)
		if len(test.events) > 1 {
			a := ranFrom(started, strategy.Evidence{Started: started.At, Ended: time.Now()})
			sampled(t, dir, a, course{ranks: 1, steps: 600, held: 1 << 30, peak: 2 << 30, allowed: 3 << 30})
		}
		if test.locked {
			lock(t, dir)
		}
		page := pageOf(t, dir)
		for _, words := range test.want {
			if !regexp.MustCompile(words).MatchString(page) {
				t.Errorf("%s: %q is missing", name, words)
			}
		}
	}
}

// ranFrom is an attempt that has ended.
func ranFrom(s launcher.Started, e strategy.Evidence) ReportedAttempt {
	return ReportedAttempt{AttemptState: journal.RunOf([]launcher.Event{s, launcher.Ended{Evidence: e}}).Last()}
}

// lock takes a run directory's lock as its gpurun does.
func lock(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
}

// What a remedy saved and cost, and what the allocator held, is shown where it is known.
func TestPricesAndSnapshots(t *testing.T) {
	plan := strategy.Plan{strategy.ActivationCheckpointing: "none"}
	next := plan.With(strategy.Plan{strategy.ActivationCheckpointing: "full"})
	fact := strategy.Fact{Rank: 2, Source: "probe", Content: &strategy.Snapshot{Rank: 2, File: "rank2/oom-0.pickle", Reserved: 9 << 30, Allocated: 8 << 30, Free: 1 << 30, Largest: 3 << 20,
		Giant: &strategy.Allocation{Bytes: 4 << 30, Count: 1, What: "logits", Shape: []int{8, 2048, 65536}, Dtype: "float32", Advice: "compute the cross entropy in chunks"},
		Top:   []strategy.Allocation{{Bytes: 2 << 30, Count: 24, File: "model.py", Line: 88, Function: "forward"}}, Leaks: []strategy.Allocation{{Bytes: 5 << 20, File: "train.py", Line: 12, PerStep: 1 << 20}}}}
	page := pageOf(t, journaled(t,
		launcher.Began{Run: "r", Name: "gpt", At: day, Plan: plan}, launcher.Started{N: 0, Plan: plan, At: day},
		launcher.Ended{Evidence: strategy.Evidence{Facts: []strategy.Fact{fact}, Started: day, Ended: day.Add(time.Minute)}},
		launcher.Decided{Decision: strategy.Decision{Relaunch: true, Changed: plan.Changed(next)}},
		launcher.Started{N: 1, Plan: next, At: day.Add(time.Minute)},
		launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{N: 1, Price: &strategy.Price{
			Remedies: []strategy.Remedy{"checkpointing"}, Changed: plan.Changed(next), BytesBefore: 9 << 30, BytesAfter: 6 << 30, AtLeast: true, SecondsAfter: .26}}}}}))
	for _, words := range []string{
		"<td>saved at least 3.0 GiB (9.0→6.0)</td>", "<td>0.26 s; before, no step was measured</td>", `data-bytes-before="9663676416" data-bytes-after="6442450944"`,
		"8.0 GiB in tensors of 9.0 GiB held; 1.0 GiB were free in pieces of at most 3 MiB", "a single block: logits, [8 2048 65536], float32", "compute the cross entropy in chunks",
		"<code>model.py:88 forward</code> 24 blocks", "25 %", "&#43;1 MiB a step", "attempt-0/rank2/oom-0.pickle opens in",
	} {
		if !strings.Contains(page, words) {
			t.Errorf("%q is missing", words)
		}
	}
}
