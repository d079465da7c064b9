package launcher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// recollection is a PlanMemory in RAM.
type recollection struct {
	recalled *strategy.Recalled
	asked    int
	kept     []string // rule and plan of each attempt
	full     error
}

func (r *recollection) Recall(_ context.Context, _ strategy.Policy, j strategy.Job, inventory func() strategy.Inventory) (strategy.Job, []string) {
	r.asked++
	inventory()
	j.Recalled, j.Remembered = r.recalled, []memory.Measurement{{Peak: 1}}
	return j, []string{"said"}
}

func (r *recollection) Keep(_ context.Context, j strategy.Job, history []strategy.Attempt, d strategy.Decision, _ strategy.Inventory) error {
	r.kept = append(r.kept, d.Rule+" "+history[len(history)-1].Plan.String())
	if len(j.Remembered) != 1 {
		r.kept = append(r.kept, "the job is not the one that was recalled")
	}
	return r.full
}

var rememberedPlan = plan0.With(strategy.Plan{strategy.ActivationCheckpointing: "full"})

// begun runs a job from its first event, as cmd/gpurun does.
func begun(t *testing.T, l *Launcher, s *stage, earlier []Event) (Verdict, []string, error) {
	t.Helper()
	now := Began{Run: "r", Policy: l.Policy, Job: l.Job, Plan: plan0}
	now.Job.Written = plan0
	l.Job = now.Job
	state, _, err := GoOn("run", now, earlier)
	if err != nil {
		t.Fatal(err)
	}
	words := l.Recall(t.Context(), &state)
	now.Job = l.Job
	if err := s.Append(now); err != nil {
		t.Fatal(err)
	}
	v, err := l.Run(t.Context(), state)
	return v, words, err
}

func TestAttempt0RunsWithTheRememberedPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, scripts: []script{{acts: []act{exit(time.Second, 0, 0), exit(time.Second, 1, 0)}}}}
		l, m := newLauncher(s), &recollection{recalled: &strategy.Recalled{Plan: rememberedPlan}}
		l.Memory = m
		v, words, err := begun(t, l, s, nil)
		if err != nil || v.Outcome != strategy.Trained || v.Recalled == nil || !maps.Equal(v.Attempts[0].Plan, rememberedPlan) {
			t.Errorf("%+v, %v", v, err)
		}
		if m.asked != 1 || !slices.Equal(words, []string{"said"}) || !slices.Equal(m.kept, []string{"trained " + rememberedPlan.String()}) {
			t.Errorf("asked %d times, said %v, kept %v", m.asked, words, m.kept)
		}
		b := only[Began](s.events)[0]
		if b.Job.Recalled == nil || len(b.Job.Remembered) != 1 || !maps.Equal(b.Plan, plan0) {
			t.Errorf("the journal has %+v", b)
		}
		for _, r := range Replay(s.events, b.Version) {
			if !r.Same {
				t.Errorf("replayed otherwise: %s", r.Decision.Reason)
			}
		}
	})
}

func TestResumedRunRecallsNoPlan(t *testing.T) {
	old := Began{Run: "r", Plan: plan0, Job: strategy.Job{Written: plan0, Recalled: &strategy.Recalled{Plan: rememberedPlan}, Remembered: []memory.Measurement{{Peak: 1}}}}
	for name, earlier := range map[string][]Event{
		"before its first attempt": {old},
		"in its first attempt":     {old, Started{Plan: rememberedPlan}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{t: t, scripts: slices.Repeat([]script{{acts: []act{exit(time.Second, 0, 0), exit(time.Second, 1, 0)}}}, 2)}
			l, m := newLauncher(s), &recollection{recalled: &strategy.Recalled{Plan: strategy.Plan{strategy.MicroBatchSize: "1"}}}
			l.Memory = m
			v, words, err := begun(t, l, s, earlier)
			last := v.Attempts[len(v.Attempts)-1]
			if err != nil || m.asked != 0 || len(words) != 0 || !maps.Equal(last.Plan, rememberedPlan) || v.Recalled == nil || !maps.Equal(v.Recalled.Plan, rememberedPlan) {
				t.Errorf("%s: asked %d times, said %v: %+v, %v", name, m.asked, words, v, err)
			}
			if b := only[Began](s.events)[0]; b.Job.Recalled == nil || len(b.Job.Remembered) != 1 {
				t.Errorf("%s: the journal has %+v", name, b.Job)
			}
		})
	}
}

func TestARememberedPlanThatFailsIsFollowedByTheJobAsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, scripts: []script{
			{acts: []act{raised(time.Second, 0, cause.UserError), exit(time.Second, 0, 1), exit(time.Second, 1, 1)}},
			{acts: []act{exit(time.Second, 0, 0), exit(time.Second, 1, 0)}},
		}}
		l, m := newLauncher(s), &recollection{recalled: &strategy.Recalled{Plan: rememberedPlan}, full: errors.New("no space\nleft")}
		l.Memory = m
		v, _, err := begun(t, l, s, nil)
		if err != nil || v.Outcome != strategy.Trained || len(v.Attempts) != 2 || !maps.Equal(v.Attempts[1].Plan, plan0) {
			t.Errorf("%+v, %v", v, err)
		}
		if !slices.Equal(m.kept, []string{"remembered-failed " + rememberedPlan.String(), "trained " + plan0.String()}) {
			t.Errorf("kept %v", m.kept)
		}
		told := 0
		for _, n := range only[Noticed](s.events) {
			if strings.Contains(n.Text, "warning: no space; left") {
				told++
			}
		}
		if told != 1 {
			t.Errorf("that nothing can be kept is told %d times", told)
		}
		if fault := CheckOrder(s.events); fault != nil {
			t.Error(fault)
		}
	})
}
