package strategy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/strategy/cause"
)

// network is an attempt that lost the network after some steps, with its newest checkpoint.
func network(n int, s Stepping, checkpoint string) Attempt {
	a := ended(n, plain, Diagnosis{Cause: cause.NCCLError, Fatal: true, Rank: -1})
	a.Stepping, a.Checkpoint = s, checkpoint
	return a
}

// A transient failure counts only if there was no progress since the one before.
func TestProgressRefillsTheBudget(t *testing.T) {
	none := Stepping{}
	steps := func(n, last int) Stepping { return Stepping{Steps: n, Last: last, For: Seconds(time.Minute)} }
	slow := Stepping{Steps: 9, Last: 9, For: Seconds(10 * time.Minute)}
	repeat := func(n int, s Stepping) (all []Attempt) {
		for i := range n {
			all = append(all, network(i, s, ""))
		}
		return all
	}
	further := func(n int, s Stepping) (all []Attempt) {
		for i := range n {
			s.Last += i
			all = append(all, network(i, s, ""))
		}
		return all
	}
	saved := func(n int, format string) (all []Attempt) {
		for i := range n {
			all = append(all, network(i, none, strings.ReplaceAll(format, "#", fmt.Sprint(i))))
		}
		return all
	}
	oomBetween := append(repeat(3, none), ended(3, plain, oom(cause.Forward)), network(4, none, ""))
	oomBetween[3].Stepping = steps(60, 60)
	oomBetween[4].Stepping = steps(60, 60)
	sameAgain := repeat(4, none)
	for i := range sameAgain {
		sameAgain[i].Checkpoint = "out/last.pt"
		sameAgain[i].CheckpointWritten = sameAgain[i].Ended
	}
	older := repeat(4, none)
	for i := range older {
		older[i].Checkpoint = fmt.Sprint("ckpt-", 9-i)
		older[i].CheckpointWritten = older[0].Started.Add(-time.Duration(i) * time.Minute)
	}
	for _, test := range []struct {
		name    string
		history []Attempt
		goesOn  bool
		after   time.Duration
		reason  string
	}{
		{"the first", repeat(1, none), true, 0, "the same plan again (1 of 3)"},
		{"the second", repeat(2, none), true, 10 * time.Second, "the same plan again after 10s (2 of 3)"},
		{"the third", repeat(3, none), true, 30 * time.Second, "the same plan again after 30s (3 of 3)"},
		{"the fourth", repeat(4, none), false, 0, "recovery.transient_retries = 3 are used up"},
		{"a new checkpoint each time", saved(9, "ckpt-#"), true, 0, "again (after the new checkpoint ckpt-8, which refills"},
		{"the same one written again", sameAgain, true, 0, "the new checkpoint out/last.pt"},
		{"always the same one", saved(4, "ckpt-7"), true, 30 * time.Second, "(3 of 3)"},
		{"an older one, since the newest was deleted", older, true, 30 * time.Second, "(3 of 3)"},
		{"a hundred steps", further(9, steps(100, 100)), true, 0, "after 100 steps"},
		{"ninety-nine", further(4, steps(99, 99)), false, 0, "used up"},
		{"ten minutes of steps", further(9, slow), true, 0, "after 10m0s of steps"},
		{"steps on both sides of another failure", oomBetween, true, 0, "after 120 steps"},
		{"a lost network that passes later", append(repeat(3, none), network(3, steps(500, 500), ""), network(4, none, "")), true, 0, "(1 of 3)"},
		{"the same steps for ever", repeat(21, steps(150, 150)), true, 0, "after 150 steps"},
		{"the same steps once too often", repeat(22, steps(150, 150)), false, 0, "the job got no further than before"},
		{"further each time, for long", further(60, steps(150, 150)), true, 0, "after 150 steps"},
		{"saves at each start, and no more", saved(22, "ckpt-#"), false, 0, "the job got no further than before"},
	} {
		for _, c := range transientCauses {
			for i := range test.history {
				if test.history[i].Diagnosis.Cause != cause.CUDAOOM {
					test.history[i].Diagnosis.Cause = c
				}
			}
			last := test.history[len(test.history)-1]
			inv := h100
			inv.Checkpoint, inv.CheckpointWritten = last.Checkpoint, last.CheckpointWritten
			policy := defaults
			policy.MaxAttempts = 2 // such attempts do not count towards it
			d := Decide(policy, gpt(1), test.history, inv)
			if d.Relaunch != test.goesOn || d.After.Duration() != test.after || !strings.Contains(d.Reason, test.reason) {
				t.Errorf("%s: relaunch %v after %s: %s", test.name, d.Relaunch, d.After, d.Reason)
			}
			if !d.Relaunch && (d.Outcome != Retry || d.Code != CodeRetry) {
				t.Errorf("%s: %s, %d", test.name, d.Outcome, d.Code)
			}
		}
	}
}

// The waits are 0, 10, 30, 60 s and more, at most 5 minutes.
func TestWaitsGrow(t *testing.T) {
	policy := defaults
	policy.TransientRetries = 12
	var got []time.Duration
	var history []Attempt
	for n := range 12 {
		history = append(history, network(n, Stepping{}, ""))
		got = append(got, Decide(policy, gpt(1), history, h100).After.Duration()/time.Second)
	}
	if want := fmt.Sprint([]time.Duration{0, 10, 30, 60, 120, 240, 300, 300, 300, 300, 300, 300}); fmt.Sprint(got) != want {
		t.Errorf("waits %v", got)
	}
}

// The budget for a lost network is separate: it uses up neither max_attempts nor the restarts for
// failures of the job itself.
func TestLostNetworkUsesOnlyItsBudget(t *testing.T) {
	policy := defaults
	policy.MaxAttempts, policy.Restarts = 2, 1
	history := []Attempt{network(0, Stepping{}, ""), network(1, Stepping{}, ""), ended(2, plain, oom(cause.Forward))}
	if d := Decide(policy, gpt(1), history, h100); !d.Relaunch {
		t.Errorf("out of memory: %s", d.Reason)
	}
	history[2] = ended(2, plain, Diagnosis{Cause: cause.UserError, Fatal: true, Rank: 0, Error: "ValueError: no"})
	if d := Decide(policy, gpt(1), history, h100); !d.Relaunch || d.Rule != "restart" {
		t.Errorf("a failure of the job's own: %s", d.Reason)
	}
}

// Steps are counted by their numbers if these rise: a job may print every hundredth, or redraw
// one again and again.
func TestStepping(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var e Evidence
	for rank, p := range []Progress{
		{Steps: 3, First: 100, Last: 300, For: Seconds(time.Minute)},
		{Steps: 900, First: 7, Last: 7, For: 0},
		{Steps: 5, First: 40, Last: 2, For: Seconds(time.Hour)},
	} {
		e.Add(Fact{Time: at, Rank: rank, Source: "stdout", Content: &p})
	}
	if got, want := e.Stepping(), (Stepping{Steps: 201, Last: 300, For: Seconds(time.Hour)}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestEveryRunThatLosesTheNetworkEnds: a run ends unless the job gets further, for any progress
// between two failures, and no budget refills without progress.
func TestEveryRunThatLosesTheNetworkEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := defaults
		policy.TransientRetries = rapid.IntRange(0, 4).Draw(t, "retries")
		further := rapid.IntRange(0, 5).Draw(t, "how often it gets further")
		bound := (further + 1) * (unprovenRefills + 1) * (policy.TransientRetries + 1)
		var history []Attempt
		furthest := 0
		for n := 0; ; n++ {
			if n > bound+1 {
				t.Fatalf("%d attempts, and no end", n)
			}
			a := network(n, Stepping{}, "")
			a.Stepping.Steps = rapid.SampledFrom([]int{0, 5, 99, 100, 5000}).Draw(t, "steps")
			a.Stepping.For = Seconds(time.Duration(rapid.IntRange(0, 1200).Draw(t, "seconds")) * time.Second)
			a.Stepping.Last = rapid.IntRange(0, furthest).Draw(t, "last")
			if further > 0 && rapid.Bool().Draw(t, "gets further") {
				furthest += rapid.IntRange(1, 1000).Draw(t, "further")
				a.Stepping.Last = furthest
				further--
			}
			inv := h100
			if rapid.Bool().Draw(t, "saved") {
				inv.Checkpoint, inv.CheckpointWritten = fmt.Sprint("ckpt-", n), a.Ended
			}
			history = append(history, a)
			d := Decide(policy, gpt(2), history, inv)
			if !d.Relaunch {
				return
			}
			if d.After.Duration() > 5*time.Minute || d.After < 0 {
				t.Fatalf("waits %s", d.After)
			}
			history[n].Checkpoint, history[n].CheckpointWritten = inv.Checkpoint, inv.CheckpointWritten
		}
	})
}
