package strategy

import (
	"cmp"
	"fmt"
	"maps"
	"path"
)

// climb carries out what was decided while the attempt ran.
func climb(s *situation) Decision {
	d := *s.last.Climb
	d.Resume = cmp.Or(s.inventory.Checkpoint, d.Resume)
	d.Reason = fmt.Sprintf("attempt %d: stopped for a faster plan → %s, from %s", s.last.N, d.Changed, path.Base(d.Resume))
	return d
}

// proven is the attempt that was stopped for a faster plan, where the attempt with an
// index runs with that one.
func (s *situation) proven(i int) (from Attempt, up bool) {
	for n := i - 1; n >= 0; n-- {
		a := s.history[n]
		if a.Climb != nil {
			return a, maps.Equal(a.Climb.Next, s.history[i].Plan)
		}
		if !maps.Equal(a.Plan, s.history[i].Plan) {
			return Attempt{}, false
		}
	}
	return Attempt{}, false
}

// wentUp reports whether an attempt of the history runs with a plan that was gone up to.
func (s *situation) wentUp(i int) bool {
	_, up := s.proven(i)
	return up
}

// climbFailed: the plan that was gone up to runs out of memory, does not take effect,
// cannot be started, or dies sooner than the one before and of something new.
func (s *situation) climbFailed() bool {
	if !s.wentUp(len(s.history)-1) || s.last.Climb != nil || s.last.Stuck != nil {
		return false
	}
	if u := s.last.Unstarted; u != nil {
		return !u.Wait && !u.RunDir
	}
	return s.notTaken() || s.diagnosis.Fatal && (s.outOfMemory() || s.diesAnew())
}

// climbBack goes back to the plan that trained, from the newest checkpoint.
func climbBack(s *situation) Decision {
	from, _ := s.proven(len(s.history) - 1)
	changed := s.last.Plan.Changed(from.Plan)
	return Decision{
		Relaunch: true, Next: from.Plan, Expected: from.Expected, Changed: changed, Resume: s.inventory.Checkpoint,
		Reason: fmt.Sprintf("attempt %d: %s%s → back to the plan of attempt %d, which trained: %s", s.last.N, s.diagnosis.Sentence(), s.lost(), from.N, changed),
	}
}
