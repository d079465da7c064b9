package launcher

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
)

// again is a rank's report of steps that it did again in place.
func again(after time.Duration, rank, times int) act {
	one := strategy.InPlace{Remedy: strategy.RemedyCheckpointing, Phase: "forward", Step: 3, LastStep: 2 + times, Times: times, Seconds: strategy.Seconds(times) * strategy.Seconds(time.Second), Elements: 4096, Longest: 512}
	return act{after, strategy.Fact{Rank: rank, Source: "probe", Content: &strategy.ProcessReport{PID: 10 + rank, InPlace: []strategy.InPlace{one}}}}
}

// inPlaceLauncher allows remedies in place.
func inPlaceLauncher(s *stage) *Launcher {
	l := newLauncher(s)
	l.Policy.InPlace = true
	return l
}

// readBack encodes and decodes events, as a journal does.
func readBack(t *testing.T, events []Event) (read []Event) {
	t.Helper()
	for _, e := range events {
		line, err := Encode(e, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		decoded, _, err := Decode(line)
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, decoded)
	}
	return read
}

// Steps that ranks do again belong to their attempt. The journal has the first of a kind at once, and more of them
// whenever their number has doubled, and at the end.
func TestRepeatsInPlaceAreOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := time.Minute
		s := &stage{t: t, scripts: []script{{acts: []act{
			again(m, 0, 1), again(2*m, 1, 1), again(3*m, 0, 1), again(4*m, 0, 3), again(5*m, 0, 5), exit(6*m, 0, 0), exit(6*m, 1, 0),
		}}}}
		l := inPlaceLauncher(s)
		v, err := l.Run(t.Context(), first())
		if err != nil || v.Outcome != strategy.Trained || len(v.Attempts) != 1 {
			t.Fatalf("verdict %+v, %v", v, err)
		}
		var more []int
		for _, e := range s.events {
			if e, ok := e.(InPlace); ok {
				more = append(more, e.More)
			}
		}
		if !slices.Equal(more, []int{1, 1, 2, 2}) {
			t.Errorf("events about %v more repeats", more)
		}
		if all := v.Attempts[0].InPlace; len(all) != 2 || all[0].Times != 5 || all[1].Rank != 1 {
			t.Errorf("the verdict has %+v", all)
		}
		began := Began{Policy: l.Policy, Job: l.Job, Version: "v"}
		events := readBack(t, slices.Concat([]Event{began}, s.events))
		if err := CheckOrder(events); err != nil {
			t.Error(err)
		}
		replayed := Replay(events, "v")
		if len(replayed) != 1 || !replayed[0].Same || replayed[0].Permitted == nil || replayed[0].PermittedThen != nil || len(replayed[0].InPlace) != 2 {
			t.Errorf("replayed %+v", replayed)
		}
		began.Policy.Never = []string{"checkpointing"}
		if r := Replay(readBack(t, slices.Concat([]Event{began}, s.events)), "v"); r[0].PermittedThen == nil {
			t.Error("the replay does not notice that another policy allows less")
		}
	})
}

// The journal has the ways that a process tried: once when it has found the fastest, and at the end.
func TestTrialsAreJournaled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := func(after time.Duration, trials ...strategy.Trial) act {
			one := again(after, 0, 1)
			report := one.fact.Content.(*strategy.ProcessReport)
			report.InPlace[0].Trials = trials
			return one
		}
		m, all, kept, larger := time.Minute, strategy.Trial{Recomputed: 8, Blocks: 8}, strategy.Trial{Recomputed: 5, Blocks: 8, Kept: true}, strategy.Trial{Recomputed: 8, Blocks: 8, Elements: 4096}
		s := &stage{t: t, scripts: []script{{acts: []act{
			again(m, 0, 1), tried(2*m, all), tried(3*m, all, kept), tried(4*m, all, kept), tried(5*m, all, larger), exit(6*m, 0, 0),
		}}}}
		v, err := inPlaceLauncher(s).Run(t.Context(), first())
		if err != nil || v.Outcome != strategy.Trained {
			t.Fatalf("verdict %+v, %v", v, err)
		}
		var trials [][]strategy.Trial
		for _, e := range s.events {
			if e, ok := e.(InPlace); ok {
				trials = append(trials, e.Trials)
			}
		}
		if diff := cmp.Diff([][]strategy.Trial{nil, {all, kept}, {all, larger}}, trials); diff != "" {
			t.Error(diff)
		}
		if got := v.Attempts[0].InPlace[0]; len(got.Trials) != 2 || got.Times != 1 {
			t.Errorf("the verdict has %+v", got)
		}
	})
}

// A run that is resumed begins with the remedies in place that it needed, also if gpurun was killed meanwhile.
func TestResumedRunArmsRemedies(t *testing.T) {
	plan := strategy.Plan{strategy.MicroBatchSize: "8"}
	job := strategy.Job{Knobs: map[strategy.Knob]strategy.Range{strategy.ActivationCheckpointing: {Values: []strategy.Value{"none", "full"}}}}
	began, started := Began{Policy: strategy.Policy{InPlace: true}, Job: job}, Started{Plan: plan}
	event := func(times int) Event {
		return InPlace{InPlace: strategy.As[*strategy.ProcessReport](again(0, 0, times).fact).InPlace[0], More: 1}
	}
	ended := func() Event {
		e := strategy.Evidence{Plan: plan, Ranks: 1}
		e.Add(again(0, 0, 2).fact)
		return Ended{e}
	}
	relaunch := Decided{Decision: strategy.Decision{Relaunch: true, Next: plan}}
	want := []strategy.ArmedRemedy{{Remedy: strategy.RemedyCheckpointing, Elements: 4096, Longest: 512}}
	for name, test := range map[string]struct {
		events []Event
		want   []strategy.ArmedRemedy
	}{
		"killed":                 {[]Event{began, started, event(1), event(2)}, want},
		"killed twice":           {[]Event{began, started, event(1), began, Started{N: 1, Plan: plan}}, want},
		"ended":                  {[]Event{began, started, event(1), ended(), relaunch}, want},
		"ended, and killed then": {[]Event{began, started, event(1), ended(), relaunch, Started{N: 1, Plan: plan}}, want},
		"nothing ran out":        {[]Event{began, started}, nil},
	} {
		events := readBack(t, test.events)
		if err := CheckOrder(events); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		state, _ := Resume(plan, "r", events)
		got := strategy.AllowInPlace(began.Policy, state.arming(), state.History, state.Next.Plan, "cuda")
		if diff := cmp.Diff(test.want, got.Armed); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if name == "killed" && len(state.Verdict.Attempts[0].InPlace) != 1 {
			t.Errorf("the verdict of the killed attempt has %+v", state.Verdict.Attempts[0].InPlace)
		}
	}
}

// After steps were done again in place, a faster plan is also looked for before there is a checkpoint, and where none
// can be found: each time that a process has measured more, a bounded number of times.
func TestFasterPlanIsLookedForAfterRepeatsInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		measured := func(after time.Duration, steps int) act {
			return act{after, strategy.Fact{Rank: 0, Source: "probe", Content: &strategy.Measurement{Steps: steps}}}
		}
		m := time.Minute
		s := &stage{t: t, scripts: []script{
			{acts: []act{again(m, 0, 1), measured(2*m, 1), measured(3*m, 3), exit(9*time.Hour, 0, 0), exit(9*time.Hour, 1, 0)}},
			trains(time.Hour),
		}}
		asked := 0
		l := inPlaceLauncher(s)
		l.Policy.Mode, l.Policy.Speedup = strategy.Predict, true
		l.decideSpeedup = func(_ strategy.Policy, _ strategy.Job, _ []strategy.Attempt, now strategy.Attempt, inv strategy.Inventory) strategy.Speedup {
			asked++
			if inv.Checkpoint != "" || len(now.InPlace) != 1 || now.Measured[0].Steps != 3 {
				t.Errorf("asked with %+v, %+v", inv, now)
			}
			return strategy.Speedup{Decision: strategy.Decision{Relaunch: true, Rule: "climb", Next: high, Changed: now.Plan.Changed(high), Reason: "attempt 0: up"}}
		}
		v, err := l.Run(t.Context(), first())
		if err != nil || v.Outcome != strategy.Trained || len(v.Attempts) != 2 || asked != 1 {
			t.Fatalf("asked %d times, verdict %+v, %v", asked, v, err)
		}
		if len(v.Attempts[0].InPlace) != 1 || len(v.Attempts[1].InPlace) != 0 || s.from[1] != "" {
			t.Errorf("attempts %+v, from %q", v.Attempts, s.from)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		acts := []act{again(time.Second, 0, 1)}
		for n := range 50 {
			acts = append(acts, act{time.Duration(n+2) * time.Second, strategy.Fact{Rank: 0, Source: "probe", Content: &strategy.Measurement{Steps: n + 2}}})
		}
		s := &stage{t: t, scripts: []script{{acts: append(acts, exit(time.Hour, 0, 0), exit(time.Hour, 1, 0))}}}
		asked := 0
		l := inPlaceLauncher(s)
		l.Policy.Mode, l.Policy.Speedup = strategy.Predict, true
		l.decideSpeedup = func(strategy.Policy, strategy.Job, []strategy.Attempt, strategy.Attempt, strategy.Inventory) strategy.Speedup {
			asked++
			return strategy.Speedup{Refused: "not yet", Later: true}
		}
		if v, err := l.Run(t.Context(), first()); err != nil || len(v.Attempts) != 1 || asked != mostEarly {
			t.Errorf("asked %d times, verdict %+v, %v", asked, v, err)
		}
	})
}

// A job can write ever more kinds of repeats into its report: the journal has a bounded number of them.
func TestKindsOfRepeatsAreBounded(t *testing.T) {
	var events, more []InPlace
	var shown []strategy.InPlace
	for parts := range 1000 {
		one := strategy.InPlace{Phase: "forward", Parts: parts, Times: 1}
		more, shown = news(0, shown, []strategy.InPlace{one}, false)
		events = append(events, more...)
	}
	if len(events) != strategy.MostInPlace || len(shown) != strategy.MostInPlace {
		t.Errorf("%d events about %d kinds", len(events), len(shown))
	}
}
