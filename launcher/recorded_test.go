package launcher

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// recorded reads the journals of real runs: see testdata/runs/README.md.
func recorded(t testing.TB) map[string][]Event {
	t.Helper()
	paths, err := filepath.Glob("testdata/runs/*/journal.jsonl")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no recorded runs: %v", err)
	}
	runs := map[string][]Event{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(filepath.Dir(path))
		for line := range bytes.Lines(text) {
			e, _, err := Decode(line)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			runs[name] = append(runs[name], e)
		}
	}
	for _, name := range []string{"quickstart", "several"} {
		if len(runs[name]) < 8 {
			t.Errorf("%s: %d events", name, len(runs[name]))
		}
	}
	return runs
}

// only returns the events of one kind.
func only[E Event](events []Event) []E {
	var found []E
	for _, e := range events {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// A replay makes the recorded decisions again.
func TestRecordedRunsReplay(t *testing.T) {
	for name, events := range recorded(t) {
		decided := only[Decided](events)
		began := only[Began](events)[0]
		own, other := Replay(events, began.Version), Replay(events, "v999.0.0")
		if len(own) != len(decided) || len(other) != len(decided) {
			t.Fatalf("%s: %d and %d decisions of %d", name, len(own), len(other), len(decided))
		}
		for i, d := range decided {
			if !own[i].Same || own[i].Then != "" || own[i].Attempt != i {
				t.Errorf("%s: attempt %d: %s\nthen %s", name, own[i].Attempt, own[i].Decision.Reason, d.Decision.Reason)
			}
			if got := own[i].Diagnosis; got.Cause != d.Diagnosis.Cause || got.Rank != d.Diagnosis.Rank || got.Phase != d.Diagnosis.Phase {
				t.Errorf("%s: attempt %d is %s in %s on rank %d", name, i, got.Cause, got.Phase, got.Rank)
			}
			if own[i].Recorded != nil {
				t.Errorf("%s: the decision of this version is told apart from itself", name)
			}
			if diff := cmp.Diff(&Recorded{Version: began.Version, Diagnosis: d.Diagnosis, Decision: d.Decision}, other[i].Recorded); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
}

// A journal has durations in seconds.
func TestRecordedDurations(t *testing.T) {
	several := recorded(t)["several"]
	if got := only[Began](several)[0].Policy.RestartFromZero; got != strategy.Seconds(90*time.Second) {
		t.Errorf("restart_from_zero is %s", got)
	}
	if got := only[Decided](several)[1].Decision.After; got != strategy.Seconds(time.Minute) {
		t.Errorf("the wait for the GPU's memory is %s", got)
	}
	for _, ended := range only[Ended](several) {
		steps := 0
		for _, f := range ended.Evidence.Facts {
			if strategy.As[*strategy.Progress](f) == nil {
				continue
			}
			steps++
			if longest := strategy.As[*strategy.Progress](f).Longest.Duration(); longest < 20*time.Millisecond || longest > 20*time.Second {
				t.Errorf("the longest step is %s", longest)
			}
		}
		if steps != 2 {
			t.Errorf("%d ranks made steps", steps)
		}
	}
}

// Recorded events can be written again without loss.
func TestRecordedEventsAreWrittenAgain(t *testing.T) {
	for name, events := range recorded(t) {
		for i, want := range events {
			line, err := Encode(want, time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := Decode(line)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(strategy.Evidence{})); err != nil || diff != "" {
				t.Errorf("%s: event %d: %v %s", name, i, err, diff)
			}
		}
	}
}

// A run that was cut off after any event continues with its next attempt, and its verdict includes the
// earlier attempts.
func TestRecordedRunsGoOn(t *testing.T) {
	for name, events := range recorded(t) {
		began := only[Began](events)[0]
		now := began
		now.Policy = strategy.Policy{Mode: strategy.Off, MaxAttempts: 99, Numerics: strategy.Any, RestartFromZero: strategy.Seconds(9 * time.Hour), InPlace: true} // of a later gpurun's defaults
		for cut := 1; cut < len(events)-2; cut++ {
			state, done, err := GoOn("run", now, events[:cut])
			if err != nil || done {
				t.Fatalf("%s: cut at %d: done %v, %v", name, cut, done, err)
			}
			if diff := cmp.Diff(began.Policy, state.Policy); diff != "" {
				t.Errorf("%s: goes on with another policy: %s", name, diff)
			}
			goOnToTheEnd(t, name, cut, state, events)
		}
		state, done, err := GoOn("run", now, events)
		if diff := cmp.Diff(only[Finished](events)[0].Verdict, state.Verdict); err != nil || !done || diff != "" {
			t.Errorf("%s: at its end: done %v, %v %s", name, done, err, diff)
		}
	}
}

// goOnToTheEnd runs the rest of a run with ranks that train at once. An attempt without a decision gets one
// first.
func goOnToTheEnd(t *testing.T, name string, cut int, state State, events []Event) {
	t.Helper()
	started := len(only[Started](events[:cut]))
	synctest.Test(t, func(t *testing.T) {
		model := act{time.Second, strategy.Fact{Rank: 0, Source: "probe", Content: &strategy.ProcessReport{PID: 1, Model: &strategy.Model{}}}}
		s := &stage{t: t, scripts: slices.Repeat([]script{{acts: []act{model, exit(time.Second, 0, 0), exit(time.Second, 1, 0)}}}, started+1)}
		l := newLauncher(s)
		l.Policy, l.Job = state.Policy, only[Began](events)[0].Job
		s.inv = only[Decided](events)[0].Inventory
		v, err := l.Run(t.Context(), state)
		if err != nil || v.Outcome != strategy.Trained || len(v.Attempts) != started+1 {
			t.Errorf("%s: cut at %d: %s after %d attempts of %d, %v", name, cut, v.Outcome, len(v.Attempts), started+1, err)
		}
		if n := len(s.applied); n != 1 {
			t.Errorf("%s: cut at %d: %d attempts were started", name, cut, n)
		}
	})
}

// GoOn distinguishes jobs by the digest, whose parts show the difference.
func TestGoOnRefusesOtherJobs(t *testing.T) {
	const ours = "4:a.b.c."
	state, _, err := GoOn("run", Began{Digest: ours, Policy: strategy.Policy{MaxAttempts: 8}}, []Event{Began{Digest: ours, Policy: strategy.Policy{MaxAttempts: 7}}, Began{Digest: ours, Policy: strategy.Policy{MaxAttempts: 7}}})
	if err != nil || state.Policy.MaxAttempts != 7 {
		t.Errorf("the same job: policy %+v, %v", state.Policy, err)
	}
	for theirs, want := range map[string]string{
		"4:a.b.d.": "another job: a configuration file that it names differs", "4:x.y.c.": "ranks, and its train.toml differ",
		"4:a.b.c.e": "a variable that its command names or sets, differs", "4:x": "another job: its command, train.toml or configuration differs", "": "configuration differs",
	} {
		_, _, err := GoOn("run", Began{Digest: ours}, []Event{Began{Digest: theirs}})
		if !errors.Is(err, ErrOtherJob) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("digest %q: %v, want %s", theirs, err, want)
		}
	}
	state, _, err = GoOn("run", Began{Policy: strategy.Policy{MaxAttempts: 3}}, nil)
	if err != nil || state.Policy.MaxAttempts != 3 {
		t.Errorf("a new run: %+v, %v", state.Policy, err)
	}
}

// If files have changed, a finished run does not count for the job, unless a scheduler restarts it. An
// interrupted run continues.
func TestGoOnWithOtherFiles(t *testing.T) {
	done := Finished{Verdict: Verdict{Outcome: strategy.Trained}}
	old, same, other := map[string]string{"c.yaml": "a"}, map[string]string{"c.yaml": "a", "out.json": "b"}, map[string]string{"c.yaml": "b"}
	for _, test := range []struct {
		name       string
		began, now map[string]string
		restart    int
		done, want bool
	}{
		{"the same", old, same, 0, true, true}, {"another", old, other, 0, true, false}, {"one that is gone", old, nil, 0, true, false},
		{"a restart", old, other, 1, true, true}, {"cut off", old, other, 0, false, true}, {"none", nil, other, 0, true, true},
	} {
		events := []Event{Began{Digest: "4:aa", Files: test.began}, Began{Digest: "4:aa", Files: test.now}}
		if test.done {
			events = append(events, done)
		}
		if _, _, err := GoOn("run", Began{Digest: "4:aa", Files: test.now, Restart: test.restart}, events); (err == nil) != test.want {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// A replay shows both decisions if another version decided differently. With the same version this is a
// difference.
func TestReplayOfAnotherVersion(t *testing.T) {
	ended := Ended{strategy.Evidence{Ranks: 1, Facts: []strategy.Fact{{Rank: 0, Source: "exit", Content: &strategy.Exit{Code: 3}}}}}
	then := Decided{Diagnosis: strategy.Diagnosis{Cause: cause.HostOOM}, Decision: strategy.Decision{Relaunch: true, Reason: "as it was"}}
	events := []Event{Began{Version: "v1"}, Started{}, ended, then}
	got := Replay(events, "v2")
	if len(got) != 1 || got[0].Same || got[0].Then != "as it was" || got[0].Decision.Outcome != strategy.Failed ||
		got[0].Recorded == nil || got[0].Recorded.Version != "v1" || !got[0].Recorded.Decision.Relaunch || got[0].Recorded.Diagnosis.Cause != cause.HostOOM {
		t.Errorf("%+v", got)
	}
	if got := Replay(events, "v1"); len(got) != 1 || got[0].Same || got[0].Then != "as it was" || got[0].Recorded != nil {
		t.Errorf("%+v", got)
	}
}

// Every journal that can be decoded can be replayed and continued, with any order and content of events.
func FuzzStrangeJournals(f *testing.F) {
	var lines [][]byte
	paths, _ := filepath.Glob("testdata/runs/several/journal.jsonl")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		lines = slices.AppendSeq(lines, bytes.Lines(text))
	}
	var order []byte
	for i := range lines {
		order = append(order, byte(i))
		f.Add(bytes.Clone(order[i:]), []byte(nil))
	}
	f.Add(order, []byte(nil))
	slices.Reverse(order)
	f.Add(order, []byte(nil))
	for _, own := range []string{
		`{"v":2,"kind":"decided","event":{"diagnosis":{"because":[-1,99]}}}`,
		`{"v":2,"kind":"finished","event":{"verdict":{"outcome":"trained"}}}`,
		`{"v":2,"kind":"ended","event":{"evidence":{"facts":[null,{"progress":{"longest_seconds":1e9}}]}}}`,
		`{"v":2,"kind":"ended","event":{"evidence":{"ranks":-1,"facts":[{"rank":-7,"exit":{"code":1}}]}}}`,
		`{"v":2,"kind":"began","event":{"policy":null,"job":{"knobs":{"micro_batch_size":{"min":-1}}}}}`,
	} {
		f.Add([]byte{0, 1, 2, 255, 3, 255}, []byte(own))
	}
	// order selects recorded lines. An index beyond them selects the line own.
	f.Fuzz(func(t *testing.T, order, own []byte) {
		var events []Event
		for _, i := range order[:min(len(order), 64)] {
			line := own
			if int(i) < len(lines) {
				line = lines[i]
			}
			if e, _, err := Decode(line); err == nil {
				events = append(events, e)
			}
		}
		replayed := Replay(events, "")
		if n := len(only[Decided](events)); len(replayed) > n {
			t.Fatalf("%d decisions of %d", len(replayed), n)
		}
		for _, r := range replayed {
			for _, i := range r.Diagnosis.Because {
				Describe(r.Evidence.Facts[i])
			}
		}
		ordered := CheckOrder(events) == nil
		if state, done := Resume(nil, "run", events); ordered && done && len(state.Verdict.Attempts) == 0 {
			t.Fatal("done without an attempt")
		}
		if state, _, err := GoOn("run", Began{}, events); err == nil && state.undecided && len(state.History) == 0 {
			t.Fatal("a decision is missing, and no attempt")
		}
	})
}

// TestReplayDecidesAStoppedAttemptAgain: a run that somebody stopped while it ran out of memory
// is decided again when it is started again, and replayed so.
func TestReplayDecidesAStoppedAttemptAgain(t *testing.T) {
	began := Began{Version: "v1", Policy: strategy.Policy{MaxAttempts: 5}}
	oom := strategy.Fact{Rank: 0, Source: "stderr", Content: &strategy.Finding{Code: cause.CUDAOOM, Raised: true, Text: "torch.OutOfMemoryError: CUDA out of memory"}}
	ended := Ended{strategy.Evidence{Ranks: 1, StopSignal: 15, Facts: []strategy.Fact{oom, {Rank: 0, Source: "exit", Content: &strategy.Exit{Code: 1}}}}}
	events := []Event{began, Started{}, ended}
	var outcomes []strategy.Outcome
	for range 2 {
		var run resumed
		for _, e := range events {
			run.take(e)
		}
		d := strategy.Decide(began.Policy, began.Job, run.History, strategy.Inventory{})
		outcomes = append(outcomes, d.Outcome)
		events = append(events, Decided{Diagnosis: run.diagnosis(), Decision: d}, Finished{Verdict: Verdict{Outcome: d.Outcome, Code: d.Code}}, began)
	}
	if outcomes[0] != strategy.Stopped || outcomes[1] == strategy.Stopped {
		t.Fatalf("decided %q", outcomes)
	}
	for i, r := range Replay(events, "v1") {
		if !r.Same {
			t.Errorf("decision %d is %q now, and was %q", i, r.Decision.Reason, r.Then)
		}
	}
}
