package launcher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// saves are the checkpoints of a job, by the time since the beginning of the test.
type saves struct {
	begin time.Time
	every time.Duration
	gone  bool // whether they are missing when looked for again
}

func (s saves) Saved(ctx context.Context, since time.Time) (string, bool) {
	next := since.Sub(s.begin).Truncate(s.every) + s.every
	select {
	case <-time.After(time.Until(s.begin.Add(next))):
		return "ckpt-" + next.String(), true
	case <-ctx.Done():
		return "", false
	}
}

func (s saves) Complete(string) bool               { return !s.gone }
func (s saves) Deadline(context.Context) time.Time { return s.begin.Add(20 * time.Hour) }

var (
	low  = plan0.With(strategy.Plan{strategy.ActivationCheckpointing: "full"})
	high = strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "2", strategy.ActivationCheckpointing: "none"}
)

func measures(after time.Duration) act {
	return act{after, strategy.Fact{Rank: 0, Source: "probe", Content: &strategy.Measurement{Steps: 3, Peak: 10 << 30}}}
}

// speedupSearch decides like strategy.FindSpeedup if there is a faster plan: at the first new checkpoint.
type speedupSearch struct {
	asked []strategy.Inventory
	now   []strategy.Attempt
}

func (c *speedupSearch) decide(_ strategy.Policy, _ strategy.Job, history []strategy.Attempt, now strategy.Attempt, inv strategy.Inventory) strategy.Speedup {
	if slices.ContainsFunc(history, func(a strategy.Attempt) bool { return a.Speedup != nil }) {
		return strategy.Speedup{Refused: "a run speeds up once"}
	}
	c.asked, c.now = append(c.asked, inv), append(c.now, now)
	if inv.Checkpoint == "" {
		return strategy.Speedup{Proposal: "micro batch 4 would fit", Refused: "no checkpoint", Later: true}
	}
	return strategy.Speedup{Proposal: "micro batch 4 would fit", Decision: strategy.Decision{
		Relaunch: true, Rule: "climb", Next: high, Changed: now.Plan.Changed(high), Resume: inv.Checkpoint, Reason: "attempt 1: up",
	}}
}

// speedupRun is a run in which attempt 0 runs out of memory, and attempt 1 trains until it is stopped; then come
// the given scripts.
func speedupRun(t *testing.T, then ...script) (*stage, *speedupSearch, *Launcher) {
	acts := []act{measures(time.Minute), exit(9*time.Hour, 0, 0), exit(9*time.Hour, 1, 0)}
	s := &stage{t: t, inv: strategy.Inventory{Checkpoint: "ckpt-newest"}, scripts: append([]script{
		{acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1)}},
		{acts: acts, steps: func(since time.Duration) *strategy.Progress {
			return &strategy.Progress{Steps: int(since.Seconds()), First: 1, Last: int(since.Seconds()), Total: 30000, For: strategy.Seconds(since - time.Second)}
		}},
	}, then...)}
	c, l := &speedupSearch{}, newLauncher(s)
	l.Policy.Mode, l.Policy.Speedup = strategy.Predict, true
	l.Checkpoints, l.decideSpeedup = saves{begin: s.begin, every: 10 * time.Minute}, c.decide
	return s, c, l
}

func trains(after time.Duration) script {
	return script{acts: []act{measures(time.Minute), exit(after, 0, 0), exit(after, 1, 0)}}
}

func TestSpeedUpAtACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, l := speedupRun(t, trains(3*time.Hour))
		v, err := l.Run(t.Context(), first())
		if err != nil || v.Outcome != strategy.Trained {
			t.Fatalf("verdict %+v, %v", v, err)
		}
		if diff := cmp.Diff([]strategy.Plan{plan0, low, high}, s.applied); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"", "ckpt-newest", "ckpt-10m0s"}, s.from); diff != "" {
			t.Error(diff)
		}
		want := []string{"started", "ended", "decided", "started", "climbed", "ended", "decided", "started", "exited", "ended", "decided", "finished"}
		if diff := cmp.Diff(want, kinds(s.events)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]stop{{1, int(syscall.SIGTERM), 9 * time.Minute}}, s.stops, cmp.AllowUnexported(stop{})); diff != "" {
			t.Error(diff)
		}
		if n := len(c.asked); n != 2 || c.asked[1].Checkpoint != "ckpt-10m0s" || c.asked[1].Deadline.IsZero() || !c.asked[1].CheckpointWritten.After(c.now[1].Started) {
			t.Errorf("asked %d times: %+v", n, c.asked)
		}
		if at := c.now[1].Stepping; at.Last != 540 || at.Total != 30000 || at.Before.Duration() != time.Second || c.now[1].From != "ckpt-newest" || len(c.now[1].Measured) != 1 {
			t.Errorf("decided by %+v", c.now[1])
		}
		if up := v.Attempts[1]; up.Cause != cause.None || up.Changed[strategy.MicroBatchSize] != [2]strategy.Value{"8", "4"} || up.Remedy != "" {
			t.Errorf("%+v", up)
		}
		if err := CheckOrder(append([]Event{Began{}}, s.events...)); err != nil {
			t.Error(err)
		}
	})
}

// A decision that only waits for time to pass is made again then, before there is a checkpoint.
func TestSpeedUpAfterATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, l := speedupRun(t, trains(3*time.Hour))
		const after = 5 * time.Minute
		var at []time.Duration
		l.decideSpeedup = func(_ strategy.Policy, _ strategy.Job, history []strategy.Attempt, now strategy.Attempt, _ strategy.Inventory) strategy.Speedup {
			if history[len(history)-1].Speedup != nil {
				return strategy.Speedup{Refused: "a run speeds up once"}
			}
			at = append(at, now.Stepping.For.Duration())
			up := strategy.Speedup{Proposal: "micro batch 4 would fit", Refused: "it does not pay yet", Later: true, Again: after}
			if now.Stepping.For.Duration() >= after {
				up = strategy.Speedup{Decision: strategy.Decision{Relaunch: true, Rule: "climb", Next: high, Changed: now.Plan.Changed(high), Reason: "attempt 1: up"}}
			}
			return up
		}
		v, err := l.Run(t.Context(), first())
		if err != nil || v.Outcome != strategy.Trained {
			t.Fatalf("verdict %+v, %v", v, err)
		}
		if len(at) != 2 || at[1] < after || at[1] > after+time.Minute || len(s.applied) != 3 {
			t.Errorf("asked at %s, %d attempts", at, len(s.applied))
		}
	})
}

// If a faster plan fails, the run goes back to the plan that trained, and tries no second speed-up.
func TestFailedSpeedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, l := speedupRun(t, script{acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1)}}, trains(3*time.Hour))
		l.Policy.MaxAttempts = 2
		v, err := l.Run(t.Context(), first())
		if err != nil || v.Outcome != strategy.Trained || len(c.asked) != 2 {
			t.Fatalf("asked %d times, verdict %+v, %v", len(c.asked), v, err)
		}
		if diff := cmp.Diff([]strategy.Plan{plan0, low, high, low}, s.applied); diff != "" {
			t.Error(diff)
		}
		if s.from[3] != "ckpt-newest" {
			t.Errorf("goes back to %s", s.from[3])
		}
		if d := only[Decided](s.events)[2].Decision; d.Rule != "climb-back" {
			t.Errorf("%+v", d)
		}
	})
}

// gpurun looks for no checkpoints if the run cannot speed up.
func TestNoSpeedUp(t *testing.T) {
	for name, change := range map[string]func(*Launcher, *stage){
		"recovery.climb":      func(l *Launcher, _ *stage) { l.Policy.Speedup = false },
		"recovery.mode":       func(l *Launcher, _ *stage) { l.Policy.Mode = strategy.Ladder },
		"unknown checkpoints": func(l *Launcher, _ *stage) { l.Checkpoints = nil },
		"nothing measured":    func(_ *Launcher, s *stage) { s.scripts[1].acts = s.scripts[1].acts[1:] },
		"a failure measured":  func(_ *Launcher, s *stage) { s.scripts[1].acts[0].fact.Memory().Failed = "backward" },
	} {
		synctest.Test(t, func(t *testing.T) {
			s, c, l := speedupRun(t)
			change(l, s)
			v, err := l.Run(t.Context(), first())
			if err != nil || v.Outcome != strategy.Trained || len(v.Attempts) != 2 || len(c.asked) > 0 {
				t.Errorf("%s: asked %d times, verdict %+v, %v", name, len(c.asked), v, err)
			}
		})
	}
}

// A final refusal ends the search for checkpoints, and the summary has it.
func TestFinalRefusalEndsTheSpeedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, l := speedupRun(t)
		asked := 0
		l.decideSpeedup = func(strategy.Policy, strategy.Job, []strategy.Attempt, strategy.Attempt, strategy.Inventory) strategy.Speedup {
			asked++
			return strategy.Speedup{Proposal: "micro batch 4 would fit", Refused: "the time here ends within the hour"}
		}
		if v, err := l.Run(t.Context(), first()); err != nil || v.Outcome != strategy.Trained || asked != 1 {
			t.Errorf("asked %d times, verdict %+v, %v", asked, v, err)
		}
		if e := only[Ended](s.events)[1].Evidence; e.Kept != "the time here ends within the hour" || e.Speedup != nil {
			t.Errorf("%q, %+v", e.Kept, e.Speedup)
		}
	})
}

// A notice that the time ends takes precedence over a speed-up.
func TestNoSpeedUpAfterANotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, l := speedupRun(t)
		time.AfterFunc(5*time.Minute, func() { s.announce("SIGUSR1") })
		if _, err := l.Run(t.Context(), first()); err != nil || len(c.asked) != 1 || slices.Contains(kinds(s.events), "climbed") {
			t.Errorf("asked %d times, %v, %v", len(c.asked), kinds(s.events), err)
		}
	})
}

// refusesSpeedups is a store whose disk is full when a speed-up is journaled.
type refusesSpeedups struct{ *stage }

func (s refusesSpeedups) Append(e Event) error {
	if _, speedups := e.(SpedUp); speedups {
		return errors.New("no space left on device")
	}
	return s.stage.Append(e)
}

func TestUnjournaledSpeedUpIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, l := speedupRun(t)
		l.Store = refusesSpeedups{s}
		v, err := l.Run(t.Context(), first())
		if err != nil || v.Outcome != strategy.Trained || len(s.stops) > 0 || len(s.applied) != 2 {
			t.Errorf("%+v, %v, stops %+v", v, err, s.stops)
		}
	})
}

// If gpurun is killed between the journal and the stop, the run continues with the decided plan, and still
// knows the plan that trained. Killed at any other time, it continues as without a speed-up.
func TestKilledDuringASpeedUp(t *testing.T) {
	var events []Event
	synctest.Test(t, func(t *testing.T) {
		s, _, l := speedupRun(t, script{acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1)}}, trains(time.Hour))
		if _, err := l.Run(t.Context(), first()); err != nil {
			t.Fatal(err)
		}
		events = s.events
	})
	at := slices.IndexFunc(events, func(e Event) bool { _, speedups := e.(SpedUp); return speedups })
	for _, cut := range []int{at + 1, at + 2, at + 3} { // with the speed-up, with the end, with what was decided then
		state, done := Resume(plan0, "r", events[:cut])
		if done {
			t.Fatal("done")
		}
		synctest.Test(t, func(t *testing.T) {
			s, c, l := speedupRun(t)
			s.scripts = []script{{}, {}, {acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1)}}, trains(time.Hour)}
			if !state.undecided {
				next, notice, err := state.Restart(l.Job, func(decided string) strategy.Checkpoints {
					return strategy.Checkpoints{Decided: true, Newest: "ckpt-later"}
				})
				if err != nil || notice != "" {
					t.Error(notice, err)
				}
				state = next
			}
			s.events = slices.Clone(events[:cut])
			s.events = append(s.events, Began{})
			v, err := l.Run(t.Context(), state)
			if err != nil || v.Outcome != strategy.Trained || len(v.Attempts) != 4 || len(c.asked) > 0 {
				t.Errorf("cut at %d: asked %d times, %+v, %v", cut-at, len(c.asked), v, err)
			}
			if diff := cmp.Diff([]strategy.Plan{high, low}, s.applied); diff != "" || s.from[0] != "ckpt-10m0s" {
				t.Errorf("cut at %d, from %v: %s", cut-at, s.from, diff)
			}
			if v.Attempts[1].Changed[strategy.MicroBatchSize] != [2]strategy.Value{"8", "4"} || v.Attempts[1].Error != "" {
				t.Errorf("cut at %d: %+v", cut-at, v.Attempts[1])
			}
			if err := CheckOrder(append([]Event{Began{}}, s.events...)); err != nil {
				t.Error(err)
			}
		})
	}
	before, _ := Resume(plan0, "r", events[:at])
	if !maps.Equal(before.Next.Plan, low) || len(before.History) != 1 {
		t.Errorf("%+v", before.Next)
	}
}

// A stop by the user, while ranks are being stopped for a speed-up, stops the run. The next start continues
// with the plan that trained.
func TestStoppedDuringASpeedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, l := speedupRun(t)
		s.scripts[1].deaf = true
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Minute+time.Second, func() { cancel(&Signal{Number: syscall.SIGTERM}) })
		v, err := l.Run(ctx, first())
		if err != nil || v.Outcome != strategy.Stopped || len(s.applied) != 2 {
			t.Errorf("%+v, %v", v, err)
		}
		if again, done := Resume(plan0, "r", s.events); done || !maps.Equal(again.Next.Plan, low) || again.Next.N != 2 || again.History[1].Speedup != nil {
			t.Errorf("%+v", again.Next)
		}
	})
}

// If the decided checkpoint is gone, the run continues from the newest.
func TestLostCheckpointOfASpeedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, l := speedupRun(t, trains(time.Hour))
		l.Checkpoints = saves{begin: s.begin, every: 10 * time.Minute, gone: true}
		if _, err := l.Run(t.Context(), first()); err != nil || s.from[2] != "ckpt-newest" {
			t.Errorf("from %v, %v", s.from, err)
		}
	})
}

func TestMisplacedSpeedUps(t *testing.T) {
	up := SpedUp{Attempt: strategy.Attempt{N: 0, Plan: plan0}, Decision: strategy.Decision{Relaunch: true, Next: high}}
	started := Started{N: 0, Plan: plan0}
	for name, events := range map[string][]Event{
		"no attempt runs":       {Began{}, up},
		"of another attempt":    {Began{}, started, SpedUp{Attempt: strategy.Attempt{N: 1}, Decision: up.Decision}},
		"twice":                 {Began{}, started, up, up},
		"without a relaunch":    {Began{}, started, SpedUp{Attempt: up.Attempt}},
		"after another gpurun":  {Began{}, started, Began{}, up},
		"with a plan of no use": {Began{}, started, SpedUp{Attempt: up.Attempt, Decision: strategy.Decision{Relaunch: true, Next: strategy.Plan{"size": "1"}}}},
	} {
		if err := CheckOrder(events); err == nil {
			t.Errorf("%s: in order", name)
		}
	}
	if err := CheckOrder([]Event{Began{}, started, up, Began{}, Started{N: 1, Plan: high}}); err != nil {
		t.Error(err)
	}
}
