package strategy

import (
	"cmp"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// candidates lists everything that may have ended the attempt.
func (c *fold) candidates(ev Evidence) []candidate {
	var all []candidate
	ends := c.ends()
	for _, s := range c.findings {
		if c.outlived(s) || c.aside(s) {
			continue
		}
		if s.finding.Says(cause.SaysComplaint) && !c.endsWith(s.rank, pythonFails) {
			continue
		}
		t := tierOf(s.finding)
		if c.textOnly(s, ends) {
			if s.finding.Code.OutOfMemory() {
				continue
			}
			t = max(t, tierWarning)
		}
		all = append(all, candidate{fact: s.fact, code: s.finding.Code, tier: t, rank: s.rank, finding: s.finding})
	}
	for rank, i := range c.exits {
		if exit := c.exitAt(i); failed(exit) {
			code, t := c.exitMeans(exit)
			all = append(all, candidate{fact: i, code: code, tier: t, rank: rank})
		}
	}
	for _, i := range c.kills {
		k := candidate{fact: i, code: cause.HostOOM, tier: tierWarning, rank: c.facts[i].Rank}
		if rank, ok := c.killed(); ok {
			k.tier = tierCause
			if k.rank < 0 {
				k.rank = rank
			}
		}
		all = append(all, k)
	}
	if h, stalled := c.hangs(); stalled {
		all = append(all, h)
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.fact, b.fact) })
	for i := range all {
		all[i].order = i
	}
	return c.unfit(c.ownEvents(c.warnedOf(all)))
}

// outlived reports whether the job went on after a finding: by its own words,
// by its steps, or because the rank ended well.
func (c *fold) outlived(s found) bool {
	if s.finding.Weight.Dismissed() {
		return true
	}
	if exit, ok := c.exits[s.rank]; ok && s.rank >= 0 {
		// The stream is this rank's own, so the steps are too.
		if s.finding.Weight == cause.WeightOutlived {
			return true
		}
		e := c.exitAt(exit)
		return !e.Stopped && !failed(e)
	}
	return false
}

// tierOf is what a finding proves by its weight and its code.
func tierOf(s *cause.Finding) tier {
	switch {
	case s.Weight == cause.WeightSymptom && s.Says(cause.SaysEnded):
		return tierExit
	case s.Weight == cause.WeightWarning:
		return tierWarning
	case s.Weight == cause.WeightSymptom:
		return tierSymptom
	case s.Code == cause.UserError || s.Code == cause.Unknown:
		return tierOwn
	}
	return tierCause
}

// exitMeans tells what an exit says by itself.
func (c *fold) exitMeans(e *Exit) (cause.Code, tier) {
	switch signalOf(e) {
	case 0:
		if e.Code == 2 {
			return cause.UserError, tierExit // how argument parsers give up
		}
		return cause.Unknown, tierExit
	case sigSEGV, sigBUS, sigILL, sigFPE:
		return cause.Segfault, tierOwn
	case sigKILL:
		return cause.Unknown, tierOwn
	case sigABRT, sigTRAP, sigSYS, sigXCPU, sigXFSZ, sigPIPE, sigALRM:
		return cause.Unknown, tierExit // the process brought it upon itself; the output may explain it
	default:
		return cause.Preempted, tierSymptom // somebody sent it
	}
}

// killed reports whether something of the job died by SIGKILL: a rank, or a
// loader's worker whose parent says so.
func (c *fold) killed() (rank int, ok bool) {
	for _, i := range c.exitFacts() {
		if e := c.exitAt(i); !e.Stopped && signalOf(e) == sigKILL {
			return c.facts[i].Rank, true
		}
	}
	for _, s := range c.findings {
		if s.finding.Says(cause.SaysWorker) {
			return s.rank, true
		}
	}
	return -1, false
}
