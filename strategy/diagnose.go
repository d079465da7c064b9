package strategy

import (
	"cmp"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// Diagnose says why an attempt ended. It ranks what the facts of all ranks show:
// a cause that the words prove before an exception of the job's own, that before
// the symptoms that a dying rank brings about in the others, and those before
// warnings and bare exits; within a kind, the first in time. A cause that brings
// about another's marks goes before it.
func Diagnose(ev Evidence) Diagnosis {
	if ev.Unstarted != nil {
		return ev.Unstarted.diagnosis()
	}
	c := ev.folded()
	if c.fine(ev) {
		d := Diagnosis{Cause: cause.None, Phase: cause.NoPhase, Rank: -1, Symptoms: []cause.Code{}, Because: c.exitFacts()}
		c.handled(&d)
		return d
	}
	all := c.candidates(ev)
	if len(all) == 0 {
		return c.undetermined()
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.tier, b.tier), cmp.Compare(c.saidBetter(a), c.saidBetter(b)), a.compareTime(ev, b))
	})
	best := c.attribute(before(deeper(all), all), all)
	d := Diagnosis{Cause: best.code, Fatal: true, Phase: cause.NoPhase, Rank: best.rank, Symptoms: symptoms(all, best)}
	if best.tier == tierWarning && len(c.exits) == 0 && !slices.ContainsFunc(all, func(a candidate) bool { return a.tier == tierExit }) {
		d.Fatal = false // a warning, and nobody saw the job fail
		if best.code.OutOfMemory() {
			d.Cause = cause.None
		}
	}
	c.describe(&d, ev, all, best)
	return d
}

// A tier is how much a candidate proves, the strongest first.
type tier int

const (
	tierCause   tier = iota // words or counters that name a cause
	tierOwn                 // the job's own exception, a crash, a kill by nobody knows whom
	tierSymptom             // what the death of another rank brings about
	tierWarning             // a warning
	tierExit                // an exit code and no word, or words that tell no more
)

// A candidate is one thing that may have ended the attempt.
type candidate struct {
	fact    int // index into the evidence
	code    cause.Code
	tier    tier
	rank    int
	finding *cause.Finding // nil for an exit or a counter
	order   int
}

// saidBetter is 1 for words that announce what further words say better.
func (c *fold) saidBetter(a candidate) int {
	if c.vague(a) {
		return 1
	}
	if a.finding != nil && a.tier == tierExit {
		return 1 // the exit itself knows better
	}
	if a.finding != nil && a.tier == tierSymptom && a.finding.Says(cause.SaysElsewhere) {
		return 1
	}
	return 0
}

func (a candidate) compareTime(ev Evidence, b candidate) int {
	ta, tb := ev.Facts[a.fact].Time, ev.Facts[b.fact].Time
	if !ta.IsZero() && !tb.IsZero() {
		if n := ta.Compare(tb); n != 0 {
			return n
		}
	}
	return cmp.Compare(a.order, b.order)
}

// fine reports whether nothing failed: every rank ended with 0, or somebody
// stopped the attempt and no rank had failed before.
func (c *fold) fine(ev Evidence) bool {
	if len(c.exits) == 0 || len(c.lost) > 0 {
		return ev.wanted()
	}
	stopped := false
	for rank, i := range c.exits {
		exit := c.exitAt(i)
		if failed(exit) || rank < 0 && c.maskedText() {
			return false
		}
		stopped = stopped || exit.Stopped
	}
	return !stopped || ev.wanted()
}

// wanted reports whether ranks were stopped that nothing was wrong with: somebody asked
// for it, or there is a faster plan.
func (e *Evidence) wanted() bool { return e.StopSignal != 0 || e.Climb != nil }

// undetermined is the diagnosis where nothing was seen to fail, or nothing says why.
func (c *fold) undetermined() Diagnosis {
	d := Diagnosis{Cause: cause.None, Phase: cause.NoPhase, Rank: -1, Symptoms: []cause.Code{}, Because: c.exitFacts()}
	c.handled(&d)
	if len(c.exits) > 0 {
		d.Cause, d.Fatal = cause.Unknown, true
		d.Advice = advice(cause.Unknown)
	}
	return d
}

// deeper returns the first candidate, or the one of the same tier that brings
// about what the first one shows.
func deeper(all []candidate) candidate {
	best := all[0]
	for _, other := range all[1:] {
		if other.tier != best.tier || best.tier > tierOwn {
			break
		}
		if entry, ok := cause.Lookup(other.code); ok && slices.Contains(entry.Explains, best.code) {
			if back, _ := cause.Lookup(best.code); !slices.Contains(back.Explains, other.code) {
				best = other
			}
		}
	}
	return best
}

// symptoms are the other causes' marks that the chosen one brings about.
func symptoms(all []candidate, best candidate) []cause.Code {
	entry, _ := cause.Lookup(best.code)
	found := []cause.Code{}
	for _, c := range all {
		mark := c.tier == tierSymptom || c.tier <= tierOwn && slices.Contains(entry.Explains, c.code)
		if mark && c.code != best.code && c.code != cause.Unknown && c.code != cause.UserError && !slices.Contains(found, c.code) {
			found = append(found, c.code)
		}
	}
	return found
}
