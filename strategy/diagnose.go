package strategy

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A Diagnosis is the reason why an attempt ended, with the facts that support it.
type Diagnosis struct {
	Cause cause.Code  `json:"cause"`
	Fatal bool        `json:"fatal"` // false if the attempt did not fail, or not for Cause
	Phase cause.Phase `json:"phase"`
	// Late: memory ran out after many good steps. Then a long sample, fragmentation or a leak is
	// the reason, rather than a plan that never fitted.
	Late   bool   `json:"late"`
	Rank   int    `json:"rank"`             // where it began; -1: not known
	Node   string `json:"node,omitempty"`   // of that rank, "node 2 (n3)", if there are several
	Ranks  []int  `json:"ranks,omitempty"`  // all ranks with the same cause
	Device string `json:"device,omitempty"` // "cuda:3", "cpu"; empty: not known
	cause.Figures
	// Fragmented: the allocator held enough memory in no tensor to serve the request.
	Fragmented bool `json:"fragmented"`
	// Impossible: one request was larger than the device, or its limit.
	Impossible bool `json:"impossible,omitempty"`
	// Growth is memory use that rose with each step until the end: a leak. Again is the number of
	// steps after which a relaunch runs out of memory again; 0: not known.
	Growth *cause.Growth `json:"growth,omitempty"`
	Again  int           `json:"again_steps,omitempty"`
	// Symptoms are other causes that were found, and that Cause explains.
	Symptoms []cause.Code `json:"symptoms"`
	// Rules are the rules by which the diagnosis was made; the last one chose the cause.
	Rules []Rule `json:"rules,omitempty"`
	// Because indexes the facts that support the diagnosis, the strongest first.
	Because []int `json:"because"`
	// Error is the last line of the failing rank's exception, and Place the line of the job's
	// code that raised it.
	Error    string            `json:"error,omitempty"`
	Place    *cause.SourceLine `json:"place,omitempty"`
	ExitCode int               `json:"exit_code"`          // of the failing rank; 0 where none failed
	Lost     *Lost             `json:"lost,omitempty"`     // the node whose loss ended the attempt
	Hardware *Hardware         `json:"hardware,omitempty"` // GPU trouble that may have ended the attempt
	// Advice is one sentence for the user, for causes that no change of the plan can repair.
	Advice string `json:"advice,omitempty"`
}

// OutOfMemory reports whether the attempt ended because memory ran out.
func (d Diagnosis) OutOfMemory() bool { return d.Fatal && d.Cause.OutOfMemory() }

// Facts returns the facts that support the diagnosis, the strongest first.
func (d Diagnosis) Facts(e *Evidence) (facts []Fact) {
	for _, i := range d.Because {
		if i >= 0 && i < len(e.Facts) { // a journal may have been changed
			facts = append(facts, e.Facts[i])
		}
	}
	return facts
}

// A tier is the strength of a candidate as evidence, the strongest first.
type tier int

const (
	tierCause       tier = iota // a message or a counter that names a cause
	tierOwn                     // the job's own exception, a crash, an unexplained kill
	tierSymptom                 // a consequence of another rank's death
	tierWarning                 // a warning
	tierExit                    // an exit code without a message, or with a message that adds nothing to it
	tierConsequence             // of an end that is a candidate itself
)

// A candidate is one thing that may have ended the attempt.
type candidate struct {
	fact    int // index into the evidence
	code    cause.Code
	tier    tier
	rank    int
	finding *cause.Finding // nil for an exit or a counter
}

// Diagnose returns why an attempt ended. If its output shows several starts of the job, it is the
// diagnosis of the last one.
func Diagnose(ev Evidence) Diagnosis {
	if last := ev.startsIn(); len(last) > 0 {
		d := ev.diagnoseStart(0, last)
		d.Rules = slices.Insert(d.Rules, 0, RuleLastStart)
		return d
	}
	return diagnose(ev)
}

// diagnose ranks the candidates of all ranks by tier, and within a tier by time. A cause that
// explains another precedes it.
func diagnose(ev Evidence) Diagnosis {
	if ev.Unstarted != nil {
		return ev.Unstarted.diagnosis()
	}
	c := ev.folded()
	var all []candidate
	fine := c.fine(ev)
	if !fine {
		all = c.candidates(ev)
	}
	if len(all) == 0 {
		d := Diagnosis{Cause: cause.None, Phase: cause.NoPhase, Rank: -1, Symptoms: []cause.Code{}, Because: c.exitFacts()}
		d.Rules = append(c.omissions(), RuleNothing)
		c.handled(&d)
		if !fine && len(c.exits) > 0 {
			d.Cause, d.Fatal, d.Advice = cause.Unknown, true, hint(cause.Unknown)
		}
		return d
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.tier, b.tier), cmp.Compare(c.vagueness(a), c.vagueness(b)), c.compareTime(a, b))
	})
	best := c.attribute(before(deeper(all), all), all)
	d := Diagnosis{Cause: best.code, Fatal: true, Phase: cause.NoPhase, Rank: best.rank, Symptoms: symptoms(all, best)}
	if best.tier == tierWarning && len(c.exits) == 0 &&
		!slices.ContainsFunc(all, func(a candidate) bool { return a.tier == tierExit }) {
		d.Fatal = false // a warning, and nothing failed
		if best.code.OutOfMemory() {
			d.Cause = cause.None
		}
	}
	d.Rules = append(append(d.Rules, c.omissions()...), overrules(all, best)...)
	d.Rules = append(d.Rules, c.rule(best))
	c.describe(&d, ev, all, best)
	return d
}

// vagueness is 1 for a message if other messages in the same tier are more exact.
func (c *fold) vagueness(a candidate) int {
	f := a.finding
	if c.vague(a) || f != nil && (a.tier == tierOwn && f.Says(cause.SaysPrinted) || f.Says(cause.SaysResult) ||
		f.Says(cause.SaysOrchestrator) || a.tier == tierExit || a.tier == tierSymptom && f.Says(cause.SaysElsewhere)) {
		return 1
	}
	return 0
}

func (c *fold) compareTime(a, b candidate) int {
	ta, tb := c.facts[a.fact].Time, c.facts[b.fact].Time
	if ta.IsZero() || tb.IsZero() {
		return a.fact - b.fact
	}
	return cmp.Or(ta.Compare(tb), a.fact-b.fact)
}

// fine reports whether nothing failed: every rank ended with 0, or a user stopped the attempt
// before any rank failed.
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

// wanted reports whether healthy ranks were stopped: by a user, or for a faster plan.
func (e *Evidence) wanted() bool { return e.StopSignal != 0 || e.Speedup != nil }

// explains reports whether a cause can bring about another one.
func explains(code, other cause.Code) bool {
	entry, _ := cause.Lookup(code)
	return slices.Contains(entry.Explains, other)
}

// deeper returns the first candidate, or one of the same tier that explains it.
func deeper(all []candidate) candidate {
	best := all[0]
	for _, other := range all[1:] {
		if other.tier != best.tier || best.tier > tierOwn {
			break
		}
		if explains(other.code, best.code) && !explains(best.code, other.code) {
			best = other
		}
	}
	return best
}

// symptoms lists the other causes that the chosen one explains.
func symptoms(all []candidate, best candidate) []cause.Code {
	found := []cause.Code{}
	for _, c := range all {
		symptom := c.tier == tierSymptom || c.tier <= tierOwn && explains(best.code, c.code)
		if symptom && c.code != best.code && c.code != cause.Unknown && c.code != cause.UserError &&
			!slices.Contains(found, c.code) {
			found = append(found, c.code)
		}
	}
	return found
}

// candidates lists everything that may have ended the attempt.
func (c *fold) candidates(ev Evidence) []candidate {
	var all []candidate
	ends := c.ends()
	for _, s := range c.findings {
		if c.outlived(s) || c.aside(s) || s.finding.Says(cause.SaysComplaint) && !c.endsWith(s.rank, pythonFails) {
			continue
		}
		t := tierOf(s.finding)
		if c.textOnly(s, ends) {
			if s.finding.Code.OutOfMemory() {
				continue
			}
			t = max(t, tierWarning)
		}
		all = append(all, candidate{fact: s.fact, code: c.code(s.finding), tier: t, rank: s.rank, finding: s.finding})
	}
	all = append(all, c.unrecovered(all)...)
	for rank, i := range c.exits {
		if exit := c.exitAt(i); failed(exit) {
			code, t := exitMeans(exit)
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
	return consequences(c.unfit(c.ownEvents(confirmWarnings(c.starved(ev, all)))))
}

// recoveryReach is the largest number of lines between a handled error and the exception that
// shows that it was not.
const recoveryReach = 8

// unrecovered lists the out-of-memory errors that the job reports as handled, though an exception
// without another cause ended it at once: a skipped batch leaves no gradients, for example.
func (c *fold) unrecovered(all []candidate) (more []candidate) {
	for _, s := range c.findings {
		f := s.finding
		if !f.Weight.Dismissed() || !f.Code.OutOfMemory() || f.Weight == cause.WeightHarmless && f.Figures.Requested == nil {
			continue
		}
		if slices.ContainsFunc(all, func(a candidate) bool {
			e := a.finding
			if e == nil || !e.Raised || !e.Top || e.Stream != f.Stream || e.Start != f.Start || a.rank != s.rank ||
				e.Code != cause.UserError && e.Code != cause.Unknown {
				return false
			}
			begins := e.Line - len(e.Traceback) + 1
			return f.Line < begins && begins-f.Line <= recoveryReach
		}) {
			more = append(more, candidate{fact: s.fact, code: f.Code, tier: tierCause, rank: s.rank, finding: f})
		}
	}
	return more
}

// outlived reports whether the job continued after a finding: by the finding's weight, or because
// the rank ended well.
func (c *fold) outlived(s found) bool {
	if s.finding.Weight.Dismissed() {
		return true
	}
	exit, ok := c.exits[s.rank]
	if !ok || s.rank < 0 {
		return false
	}
	e := c.exitAt(exit)
	return s.finding.Weight == cause.WeightOutlived || !e.Stopped && !failed(e)
}

// tierOf returns the tier of a finding by its weight and its code.
func tierOf(s *cause.Finding) tier {
	switch {
	case s.Weight == cause.WeightSymptom && s.Says(cause.SaysEnded):
		return tierExit
	case s.Weight == cause.WeightWarning:
		return tierWarning
	case s.Weight == cause.WeightSymptom:
		return tierSymptom
	case s.Code == cause.UserError || s.Code == cause.Unknown, s.Code == cause.Storage && !s.Raised:
		return tierOwn // a line about the storage may be one of a write that is tried again
	}
	return tierCause
}

// exitMeans returns the cause and the tier of an exit.
func exitMeans(e *Exit) (cause.Code, tier) {
	switch signalOf(e) {
	case 0:
		if e.Code == 2 {
			return cause.UserError, tierExit // argument parsers exit with it
		}
		return cause.Unknown, tierExit
	case sigSEGV, sigBUS, sigILL, sigFPE:
		return cause.Segfault, tierOwn
	case sigKILL:
		return cause.Unknown, tierOwn
	case sigABRT, sigTRAP, sigSYS, sigXCPU, sigXFSZ, sigPIPE, sigALRM:
		return cause.Unknown, tierExit // the process caused it; the output may explain it
	default:
		return cause.Preempted, tierSymptom // another process sent it
	}
}

// starved turns crashes of processes in which memory had run out before, and a step was done again, into want of
// memory. Under a limit of the process's data, native code that does not check its allocations crashes.
func (c *fold) starved(ev Evidence, all []candidate) []candidate {
	if ev.Accelerator != "cpu" {
		return all
	}
	short, _ := c.reporting(func(r *ProcessReport) bool { return len(r.InPlace) > 0 })
	for i, a := range all {
		if a.code == cause.Segfault && slices.Contains(short, a.rank) {
			all[i].code = cause.HostOOM
		}
	}
	return all
}

// killed returns a rank that died by SIGKILL, or that reports that SIGKILL ended a worker of its
// data loader.
func (c *fold) killed() (rank int, ok bool) {
	for _, i := range c.exitFacts() {
		if e := c.exitAt(i); !e.Stopped && signalOf(e) == sigKILL {
			return c.facts[i].Rank, true
		}
	}
	for _, s := range c.findings {
		if s.finding.Says(cause.SaysWorker) && s.finding.Code != cause.Segfault {
			return s.rank, true
		}
	}
	return -1, false
}

// confirmWarnings raises warnings that later errors confirm to causes. A driver that is too old
// only causes a warning, and then a request for a GPU fails. An exception that the output does not
// name has the cause of the warning before it.
func confirmWarnings(all []candidate) []candidate {
	for i, warning := range all {
		if warning.finding == nil || warning.tier != tierWarning {
			continue
		}
		confirmed := slices.ContainsFunc(all, func(failure candidate) bool {
			f := failure.finding
			if f == nil || !f.Raised || failure.rank != warning.rank || failure.tier > tierSymptom {
				return false
			}
			if f.Says(cause.SaysCut) && f.Stream == warning.finding.Stream {
				return warning.code == cause.SharedMemory || warning.code == cause.DiskFull || warning.code == cause.Storage ||
					warning.code == cause.Driver
			}
			denied := f.Code == cause.UserError && (warning.code == cause.Driver && f.Says(cause.SaysNoDevice) ||
				warning.code.LeavesNoGroup() && f.Says(cause.SaysNoGroup))
			return denied || warning.finding.Says(cause.SaysMismatch) && f.Code == cause.NCCLError
		})
		if confirmed {
			all[i].tier = tierCause
			if warning.finding.Says(cause.SaysMismatch) {
				all[i].code = cause.Driver
			}
		}
	}
	return all
}

// consequences lowers what a scheduler or a launcher reports after a task has ended: it ends what
// is left of the job.
func consequences(all []candidate) []candidate {
	for i, a := range all {
		if a.finding == nil || !a.finding.Says(cause.SaysConsequence) {
			continue
		}
		if slices.ContainsFunc(all, func(b candidate) bool {
			return b.finding != nil && b.fact < a.fact && b.code != cause.Preempted && b.tier != tierWarning
		}) {
			all[i].tier = tierConsequence
		}
	}
	return all
}

// before returns an earlier candidate that caused the chosen one, though their codes alone do not
// show it.
func before(best candidate, all []candidate) candidate {
	for _, other := range all {
		switch {
		case other.finding == nil || best.finding == nil || other.fact >= best.fact || other.tier > tierOwn:
		case mistake(other, best), lost(other, best):
			return other
		}
	}
	return best
}

// mistake reports whether an uncaught index error preceded a library's assertion in the same
// process.
func mistake(index, assertion candidate) bool {
	return assertion.code == cause.DeviceAssert && index.finding.Top && index.finding.Says(cause.SaysIndex) &&
		index.rank == assertion.rank && index.finding.Stream == assertion.finding.Stream
}

// lost reports whether a GPU error preceded the scheduler's cancellation of the job, which hung
// in between.
func lost(device, cancel candidate) bool {
	return cancel.code == cause.Preempted && cancel.finding.Says(cause.SaysCancelled) && !cancel.finding.Raised &&
		device.finding.Says(cause.SaysDevice) && device.finding.Weight == cause.WeightCause
}

// event reports whether a candidate is an event of the GPU driver.
func (c *fold) event(a candidate) bool { return c.facts[a.fact].DriverEvent() != nil }

// vague reports whether a candidate is an event that the job itself caused. The driver reports a
// failed assertion like an illegal access, so the job's messages precede it.
func (c *fold) vague(a candidate) bool { return c.event(a) && a.code == cause.IllegalAccess }

// ownEvents lowers the events that the job itself caused. A process that is killed inside a
// kernel also causes such events. They explain nothing if no rank has exited, and are mere hints
// after one has begun to fail. A genuine event precedes any message of its process.
func (c *fold) ownEvents(all []candidate) []candidate {
	var failing time.Time
	exited := false
	for _, a := range all {
		at := c.facts[a.fact].Time
		if !c.event(a) && (a.tier <= tierOwn || a.finding == nil) && (failing.IsZero() || at.Before(failing)) {
			failing = at
		}
		exited = exited || c.facts[a.fact].Exit() != nil
	}
	if !exited {
		all = slices.DeleteFunc(all, c.vague)
	}
	for i, a := range all {
		if c.vague(a) && !failing.IsZero() && c.facts[a.fact].Time.After(failing) {
			all[i].tier = tierWarning
		}
	}
	return all
}

// attribute returns the message of a rank with the same cause as an event of the driver, if there
// is one: the event names the device, the message the rank.
func (c *fold) attribute(best candidate, all []candidate) candidate {
	if c.event(best) {
		for _, other := range all {
			if other.code == best.code && other.tier == best.tier && other.finding != nil && other.rank >= 0 {
				return other
			}
		}
	}
	return best
}

// firstExitCode is the exit code of the rank that failed first; 0 if none failed.
func (c *fold) firstExitCode() int {
	code, first := 0, time.Time{}
	for _, i := range c.exitFacts() {
		if f, exit := c.facts[i], c.exitAt(i); failed(exit) && (code == 0 || f.Time.Before(first)) {
			code, first = exit.Code, f.Time
		}
	}
	return code
}
