package strategy

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/strategy/memory"
)

// An Ascent is what there is to say of a faster plan than the one that runs.
type Ascent struct {
	// Decision is to stop the attempt and to go on with that plan; it is zero where that
	// is not to be done now.
	Decision Decision
	// Proposal says of that plan that it would fit; empty where none would.
	Proposal string
	// Refused says why it is not gone up to, empty where Decision says that it is. Later:
	// the attempt may still bring what is missing.
	Refused string
	Later   bool
}

// A faster plan is one that is likely to fit, by what was measured of the one that runs.
type faster struct {
	plan     Plan
	expected memory.Prediction
	// gain is how many times as fast it is.
	gain float64
	// peak is what was measured of the plan that runs, and room what there is for it, in
	// bytes of the device's allocator.
	peak, room int64
}

// Climb says whether to go up to a faster plan, once in a run, while the attempt now runs
// after those of the history. The inventory has the newest checkpoint, the time, and the
// deadline. The rules are those of a plan that loses nothing: numerics and data stay as
// they are, and the time that is saved is worth the relaunch.
func Climb(p Policy, j Job, history []Attempt, now Attempt, inv Inventory) Ascent {
	s := &situation{policy: p, job: j, inventory: inv}
	s.look(ran(append(slices.Clone(history), now)))
	return s.ascend()
}

// ascend is Climb, for the last attempt of the situation. Where that has ended, it says
// why its plan was kept.
func (s *situation) ascend() Ascent {
	if s.unmeasured() {
		return Ascent{Refused: "the first steps have not been measured", Later: true}
	}
	best, ok := s.scouted(s.higher())
	if !ok {
		return Ascent{Refused: "no faster plan is likely to fit"}
	}
	changed := s.plan.Changed(best.plan)
	a := Ascent{Proposal: fmt.Sprintf("%s would fit and be about %.1f times as fast", changed.wanted(), best.gain)}
	over := !s.last.Ended.IsZero()
	if a.Refused = s.last.Kept; over && a.Refused != "" {
		return a
	}
	for _, c := range conditions {
		if why := c.lacks(s, best); why != "" {
			a.Refused, a.Later = why, c.later
			return a
		}
	}
	if over {
		a.Refused = "the attempt had ended before"
		return a
	}
	a.Decision = s.climbTo(best)
	return a
}

// unmeasured: the attempt's processes have not told of three good steps.
func (s *situation) unmeasured() bool {
	const enough = 3 // the first two of them are unlike the rest
	return len(s.last.Measured) == 0 || slices.ContainsFunc(s.last.Measured, func(m memory.Measurement) bool { return m.Failed != "" || m.Steps < enough })
}

// climbTo is the decision to go on with a faster plan.
func (s *situation) climbTo(f faster) Decision {
	changes := Plan{}
	changed := s.plan.Changed(f.plan)
	for k := range changed {
		changes[k] = f.plan[k]
	}
	d := Decision{
		Relaunch: true, Rule: "climb", Next: s.without(f.plan, changes), Changed: changed, Resume: s.inventory.Checkpoint, Expected: &f.expected,
	}
	at := s.last.Stepping
	d.Reason = fmt.Sprintf("attempt %d: step %d of %d%s → %s%s, about %.1f times as fast, saves about %s; from %s",
		s.last.N, at.Last, at.Total, f.level(), changed, s.kept(changed), f.gain, about(s.saving(f)), path.Base(d.Resume))
	return d
}

// level is the measured peak beside the room, as a part of a sentence; empty where the
// room is not known.
func (f faster) level() string {
	if f.room <= 0 {
		return ""
	}
	return fmt.Sprintf(", peak %s of %s GiB", inGiB(f.peak), inGiB(f.room))
}

// summary is the proposal with the reason why it was not taken, for the end of a run;
// empty without one.
func (a Ascent) summary() string {
	if a.Proposal == "" || a.Refused == "" {
		return ""
	}
	return a.Proposal + "; gpurun did not go up to it, since " + a.Refused
}

// wanted says what would be set: "micro batch 8, checkpointing none". The accumulation
// follows from the micro batch.
func (c Changes) wanted() string {
	var words []string
	for _, k := range Knobs {
		if pair, ok := c[k]; ok && (k != GradientAccumulationSteps || len(c) == 1) {
			words = append(words, k.Short()+" "+string(pair[1]))
		}
	}
	return strings.Join(words, ", ")
}

// about is a time as a person estimates it: "40 min", "3 h".
func about(d time.Duration) string {
	if d < 90*time.Minute {
		return fmt.Sprintf("%.0f min", math.Max(d.Minutes(), 0))
	}
	return fmt.Sprintf("%.0f h", d.Hours())
}
