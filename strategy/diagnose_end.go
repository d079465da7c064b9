package strategy

import (
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// An end is the way in which one rank ended, apart from messages in its output: any text can
// quote an out-of-memory error.
type end struct {
	exit *Exit  // nil: not seen
	word *found // the process's own last report; nil: none
	left *found // the last uncaught traceback in the output; nil: none
}

func (c *fold) ends() map[int]*end {
	all := map[int]*end{}
	at := func(rank int) *end {
		if all[rank] == nil {
			all[rank] = &end{}
		}
		return all[rank]
	}
	for rank, i := range c.exits {
		at(rank).exit = c.exitAt(i)
	}
	for i := range c.findings {
		s := &c.findings[i]
		if s.rank < 0 {
			continue
		}
		e := at(s.rank)
		switch source := c.facts[s.fact].Source; {
		case ownWord(source):
			if !said(s.finding) || c.aside(*s) {
				continue
			}
			if e.word == nil || source == "probe" && (!passedOn(s.finding) || passedOn(e.word.finding)) {
				e.word = s
			}
		case leaves(s.finding) && (e.left == nil || c.facts[e.left.fact].Source != "stderr" || source == "stderr"):
			e.left = s // Python prints it on stderr
		}
	}
	return all
}

// said reports whether the process's own report names the reason of its end: SystemExit and
// KeyboardInterrupt add nothing to the exit code.
func said(f *cause.Finding) bool {
	return f.Weight != cause.WeightSymptom || f.Code != cause.UserError && f.Code != cause.Preempted
}

// ownWord reports whether a source is the process's own report of its end.
func ownWord(source string) bool { return source == "probe" || source == "error.json" }

// leaves reports whether a finding is an uncaught traceback that no other process caused.
func leaves(f *cause.Finding) bool {
	return f.Top && f.Weight == cause.WeightCause && !f.Quoted && !passedOn(f)
}

// passedOn reports whether an exception only reports the failure of another process.
func passedOn(f *cause.Finding) bool {
	return f.Says(cause.SaysElsewhere) || f.Says(cause.SaysWorker)
}

// textOnly reports whether a finding in a rank's output is only text, because the rank ended for
// another reason.
func (c *fold) textOnly(s found, ends map[int]*end) bool {
	e := ends[s.rank]
	if e == nil || s.rank < 0 || ownWord(c.facts[s.fact].Source) || c.event(candidate{fact: s.fact}) {
		return false
	}
	if e.word != nil && !passedOn(e.word.finding) {
		return e.outranks(s.finding)
	}
	if !s.finding.Code.OutOfMemory() {
		return false
	}
	if e.exit == nil && c.saved() {
		return e.word == nil && c.deniedByTraceback(s, e)
	}
	if e.exit == nil || e.exit.Stopped {
		return e.word == nil && c.endedElsewhere(s.rank, ends)
	}
	return c.deniedByExit(s, e)
}

// saved reports whether the evidence is saved output: the ends of single ranks are not known.
func (c *fold) saved() bool {
	for rank := range c.exits {
		if rank >= 0 {
			return false
		}
	}
	return len(c.reported) == 0 && len(c.progress) == 0
}

// outranks reports whether the process's own report rules out a text. A text that explains the
// report stays, such as invalid probabilities before a device's assertion. The report itself
// would name an out-of-memory error.
func (e *end) outranks(text *cause.Finding) bool {
	word := e.word.finding
	switch {
	case text.Code == word.Code:
		return false
	case text.Code.OutOfMemory():
		return true
	case word.Weight != cause.WeightCause || word.Code == cause.Unknown:
		return false
	case text.Code == cause.Driver && word.Says(cause.SaysNoDevice):
		return false
	}
	return !explains(text.Code, word.Code)
}

// deniedByExit reports whether the rank's exit contradicts the message.
func (c *fold) deniedByExit(s found, e *end) bool {
	signal := signalOf(e.exit)
	if s.finding.Says(cause.SaysOOMKill) {
		return !c.killedIn(s.rank, e.exit)
	}
	switch {
	case signal == sigABRT:
		return !c.aborts(s)
	case signal != 0:
		return true
	case e.exit.Code == pythonFails:
		return c.deniedByTraceback(s, e)
	}
	return !c.wrapped(s.rank)
}

// pythonFails is the exit code of a Python process with an uncaught exception, and of most
// launchers above it.
const pythonFails = 1

// deniedByTraceback reports whether another exception was uncaught after the message, and was not
// raised from it.
func (c *fold) deniedByTraceback(s found, e *end) bool {
	left := e.left
	if left == nil || left.finding.Code.OutOfMemory() || left.finding.From.OutOfMemory() {
		return false
	}
	if c.passesOn(s.rank) && explains(s.finding.Code, left.finding.Code) || otherProcess(s.finding, left.finding) {
		return false // it was left behind by the process that ran out
	}
	if s.finding.Quoted || !s.finding.Raised {
		return true
	}
	of, by := c.facts[s.fact].Source, c.facts[left.fact].Source
	if of != by && by == "stderr" {
		return true // stdout may be flushed at the end
	}
	if s.finding.Stream == left.finding.Stream && s.finding.Seq > 0 && left.finding.Seq > 0 {
		return s.finding.Seq < left.finding.Seq
	}
	return s.fact < left.fact
}

// passesOn reports whether several processes write to the rank's streams: the rank is a launcher,
// or a program that starts others.
func (c *fold) passesOn(rank int) bool {
	return slices.ContainsFunc(c.findings, func(s found) bool { return s.rank == rank && passedOn(s.finding) })
}

// otherProcess reports whether the prefixes of two lines name different ranks.
func otherProcess(a, b *cause.Finding) bool { return a.Rank >= 0 && b.Rank >= 0 && a.Rank != b.Rank }

// aborts reports whether a rank ended by SIGABRT for the error in the message: the C++ runtime
// names the same error, or a watchdog ended the rank after it.
func (c *fold) aborts(s found) bool {
	if s.finding.Says(cause.SaysThrown) {
		return true
	}
	for _, other := range c.findings {
		if other.rank != s.rank {
			continue
		}
		if other.finding.Says(cause.SaysWatchdog) && s.finding.Raised && other.fact > s.fact {
			return true
		}
		if other.finding.Says(cause.SaysThrown) && (cause.NamesMemory(other.finding.Text) ||
			below(other.finding, s.finding)) {
			return true
		}
	}
	return false
}

// below reports whether the message is on one of the next lines of the same stream.
func below(thrown, words *cause.Finding) bool {
	const reach = 2
	d := words.Line - thrown.Line
	return thrown.Stream == words.Stream && d >= 0 && d <= reach
}

// killedIn reports whether the kernel killed the rank as it does when memory runs out, or the
// rank reported this of a process below it.
func (c *fold) killedIn(rank int, exit *Exit) bool {
	const slurmOOM = 125 // the code of a step that Slurm ended as out of memory
	if signalOf(exit) == sigKILL || exit.Code == 256-sigKILL || exit.Code == slurmOOM {
		return true
	}
	return slices.ContainsFunc(c.findings, func(s found) bool {
		return s.rank == rank && s.finding.Code != cause.UserError && !s.finding.Says(cause.SaysOOMKill) &&
			(s.finding.Says(cause.SaysKilled) || s.finding.Says(cause.SaysWorker))
	})
}

// wrapped reports whether the rank's exit code comes from a program around the process: make ends
// with 2 for any code.
func (c *fold) wrapped(rank int) bool {
	return slices.ContainsFunc(c.findings, func(s found) bool {
		return s.rank == rank && (s.finding.Says(cause.SaysEnded) || s.finding.Says(cause.SaysElsewhere) &&
			s.finding.Weight == cause.WeightSymptom)
	})
}

// endedElsewhere reports whether another rank failed by itself. Then this rank was stopped
// because of it, and its output was not a failure yet.
func (c *fold) endedElsewhere(rank int, ends map[int]*end) bool {
	for other, e := range ends {
		if other < 0 || other == rank {
			continue
		}
		if e.word != nil {
			if e.word.finding.Weight == cause.WeightCause && !passedOn(e.word.finding) {
				return true
			}
			continue
		}
		if e.exit != nil && failed(e.exit) && c.endsItself(other, e) {
			return true
		}
	}
	return false
}

// endsItself reports whether a rank's exit is not a consequence of another rank's failure.
func (c *fold) endsItself(rank int, e *end) bool {
	switch signalOf(e.exit) {
	case 0:
	case sigSEGV, sigBUS, sigILL, sigFPE:
		return true
	default:
		return false
	}
	if e.left != nil {
		return true
	}
	victim := slices.ContainsFunc(c.findings, func(s found) bool {
		return s.rank == rank && s.finding.Weight == cause.WeightSymptom
	})
	return !victim && e.exit.Code != pythonFails
}

// endsWith reports whether the rank, or the whole job, ended with a code by itself.
func (c *fold) endsWith(rank, code int) bool {
	e := c.exitOf(rank)
	return e != nil && !e.Stopped && e.Code == code && signalOf(e) == 0
}
