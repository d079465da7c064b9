package launcher

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// cutOffAfter has the events of a run that was killed in the attempt after one that ran out of memory.
func cutOffAfter(t *testing.T, ran bool) []Event {
	t.Helper()
	s := &stage{t: t, scripts: []script{
		{acts: []act{raised(time.Second, 0, cause.CUDAOOM), exit(time.Second, 0, 1), exit(time.Second, 1, 1)}},
		{acts: []act{exit(time.Second, 0, 0), exit(time.Second, 1, 0)}},
	}}
	if _, _, err := begun(t, newLauncher(s), s, nil); err != nil {
		t.Fatal(err)
	}
	for i, e := range s.events {
		if started, is := e.(Started); is && started.N == 1 {
			if ran {
				i++
			}
			return s.events[:i:i]
		}
	}
	t.Fatal("there was no second attempt")
	return nil
}

// stoppedAfter has the events of a run that was stopped by SIGTERM in the attempt after one that ran out of memory.
func stoppedAfter(t *testing.T) []Event {
	t.Helper()
	events := cutOffAfter(t, true)
	started := events[len(events)-1].(Started)
	e := strategy.Evidence{Attempt: 1, Plan: started.Plan, Ranks: 2, Started: started.At, Ended: started.At.Add(time.Second), StopSignal: 15}
	for rank := range 2 {
		e.Facts = append(e.Facts, strategy.Fact{Rank: rank, Source: "exit", Content: &strategy.Exit{Code: 143, Signal: 15}})
	}
	d := strategy.Interrupted(15)
	v := Verdict{Outcome: d.Outcome, Code: d.Code, Reason: d.Reason}
	return append(events, Ended{Evidence: e}, Decided{Diagnosis: strategy.Diagnose(e), Decision: d}, Finished{Verdict: v})
}

// Between two starts of a run its policy may become stricter. Then a plan that it forbids does not run, no attempt
// beyond it is made, and the run is not refused. A looser policy changes nothing.
func TestStricterPolicyOfALaterStartCounts(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*strategy.Policy)
		outcome strategy.Outcome
		next    strategy.Value // checkpointing of the next attempt
	}{
		"a looser one":    {func(p *strategy.Policy) { p.MaxAttempts, p.Numerics = 99, strategy.Any }, strategy.Trained, "full"},
		"fewer attempts":  {func(p *strategy.Policy) { p.MaxAttempts = 1 }, strategy.Exhausted, ""},
		"as many as were": {func(p *strategy.Policy) { p.MaxAttempts = 2 }, strategy.Trained, "full"},
		"never":           {func(p *strategy.Policy) { p.Never = []string{"checkpointing"} }, strategy.Trained, "none"},
	} {
		for ran, number := range map[string]int{"not started": 1, "cut off": 2, "stopped": 2} {
			synctest.Test(t, func(t *testing.T) {
				earlier := stoppedAfter(t)
				if ran != "stopped" {
					earlier = cutOffAfter(t, ran == "cut off")
				}
				again := &stage{t: t, events: earlier, scripts: []script{{}, {}, {}}[:number]}
				again.scripts = append(again.scripts, script{acts: []act{exit(time.Second, 0, 0), exit(time.Second, 1, 0)}})
				next := newLauncher(again)
				test.change(&next.Policy)
				now := only[Began](earlier)[0]
				now.Policy = next.Policy
				state, done, err := GoOn("run", now, earlier)
				if err != nil || done {
					t.Fatalf("%s: done %v, %v", name, done, err)
				}
				next.Policy, next.Job, now.Policy = state.Policy, now.Job, state.Policy
				if err := again.Append(now); err != nil {
					t.Fatal(err)
				}
				v, err := next.Run(t.Context(), state)
				if err != nil || v.Outcome != test.outcome {
					t.Errorf("%s, %s: %s, %s, %v", name, ran, v.Outcome, v.Reason, err)
				}
				last := v.Attempts[len(v.Attempts)-1]
				if test.next != "" && (last.Plan[strategy.ActivationCheckpointing] != test.next || last.N != number) {
					t.Errorf("%s, %s: attempt %d with %v", name, ran, last.N, last.Plan)
				}
				if fault := CheckOrder(again.events); fault != nil {
					t.Errorf("%s, %s: %v", name, ran, fault)
				}
				for _, r := range Replay(again.events, now.Version) {
					if !r.Same {
						t.Errorf("%s, %s: attempt %d is replayed otherwise: %s", name, ran, r.Attempt, r.Decision.Reason)
					}
				}
				state, done, err = GoOn("run", now, again.events)
				if err != nil || !done || state.Verdict.Outcome != test.outcome {
					t.Errorf("%s, %s: read again: %v, %+v, %v", name, ran, done, state.Verdict, err)
				}
			})
		}
	}
}
