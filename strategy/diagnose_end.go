package strategy

import (
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// An end is what is known of how one rank ended beside the words in its output: words
// are not failures, and any text can hold those of an out-of-memory error.
type end struct {
	exit *Exit  // nil where nobody saw it
	word *found // what the process itself told last, nil for nothing
	// left is the last traceback that left the program, as the output shows it, nil for
	// none: where the process ended as an exception ends it, this is the one.
	left *found
}

// ends are the ranks' ends.
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

// said reports whether the process's own report names why it ended: one that leaves by
// SystemExit or KeyboardInterrupt says no more than its exit.
func said(f *cause.Finding) bool {
	return f.Weight != cause.WeightSymptom || f.Code != cause.UserError && f.Code != cause.Preempted
}

// ownWord reports whether a source is the process's own report of its end.
func ownWord(source string) bool { return source == "probe" || source == "error.json" }

// leaves reports whether a finding is a traceback that leaves the program and that
// nobody else's end brought about.
func leaves(f *cause.Finding) bool {
	return f.Top && f.Weight == cause.WeightCause && !f.Quoted && !passedOn(f)
}

// passedOn reports whether an exception only tells that another process failed.
func passedOn(f *cause.Finding) bool {
	return f.Says(cause.SaysElsewhere) || f.Says(cause.SaysWorker)
}

// textOnly reports whether a finding in a rank's output is no more than text, because
// the rank's end has another cause.
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
	if e.exit == nil || e.exit.Stopped {
		return e.word == nil && c.endedElsewhere(s.rank, ends)
	}
	return c.deniedByExit(s, e)
}

// outranks reports whether the process's own last word rules a text out. A text that
// tells why the word came to be said stays: the numbers that became no probabilities
// behind a device's assertion. That memory ran out, the word would say itself.
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

// deniedByExit reports whether the rank's exit says that it did not end for what the
// words say.
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

// pythonFails is the exit code by which an exception ends a Python process, and most
// launchers that were told of one.
const pythonFails = 1

// deniedByTraceback reports whether another exception left the program after the words,
// and was not raised from what they say.
func (c *fold) deniedByTraceback(s found, e *end) bool {
	left := e.left
	if left == nil || left.finding.Code.OutOfMemory() || left.finding.From.OutOfMemory() {
		return false
	}
	if c.passesOn(s.rank) && explains(s.finding.Code, left.finding.Code) || otherProcess(s.finding, left.finding) {
		return false // the one that was left behind by the one that ran out
	}
	if s.finding.Quoted || !s.finding.Raised {
		return true
	}
	of, by := c.facts[s.fact].Source, c.facts[left.fact].Source
	if of != by && by == "stderr" {
		return true // what a process printed on stdout may come when it ends
	}
	if s.finding.Stream == left.finding.Stream && s.finding.Seq > 0 && left.finding.Seq > 0 {
		return s.finding.Seq < left.finding.Seq
	}
	return s.fact < left.fact
}

// passesOn reports whether the rank is a launcher, or a program that starts others, and
// several processes write to its streams.
func (c *fold) passesOn(rank int) bool {
	return slices.ContainsFunc(c.findings, func(s found) bool { return s.rank == rank && passedOn(s.finding) })
}

// otherProcess reports whether the prefixes of two lines name different ranks.
func otherProcess(a, b *cause.Finding) bool { return a.Rank >= 0 && b.Rank >= 0 && a.Rank != b.Rank }

// explains reports whether a cause brings another one's marks about.
func explains(code, other cause.Code) bool {
	entry, _ := cause.Lookup(code)
	return slices.Contains(entry.Explains, other)
}

// aborts reports whether a rank that ended by SIGABRT did so by the error that the words
// tell: the runtime of C++ tells of the same one, or a watchdog ended the rank after it.
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
		if other.finding.Says(cause.SaysThrown) && (cause.NamesMemory(other.finding.Text) || below(other.finding, s.finding)) {
			return true
		}
	}
	return false
}

// below reports whether the words stand on one of the next lines of the same stream.
func below(thrown, words *cause.Finding) bool {
	const reach = 2
	d := words.Line - thrown.Line
	return thrown.Stream == words.Stream && d >= 0 && d <= reach
}

// killedIn reports whether a process of the rank was killed, as the kernel kills one for
// memory: the rank itself, or one whose parent says so.
func (c *fold) killedIn(rank int, exit *Exit) bool {
	const slurmOOM = 125 // the code of a step that Slurm ended as out of memory
	if signalOf(exit) == sigKILL || exit.Code == 256-sigKILL || exit.Code == slurmOOM {
		return true
	}
	return slices.ContainsFunc(c.findings, func(s found) bool {
		return s.rank == rank && s.finding.Code != cause.UserError && !s.finding.Says(cause.SaysOOMKill) && (s.finding.Says(cause.SaysKilled) || s.finding.Says(cause.SaysWorker))
	})
}

// wrapped reports whether the rank's exit code is that of a program around the process:
// make ends with 2 whatever the code was.
func (c *fold) wrapped(rank int) bool {
	return slices.ContainsFunc(c.findings, func(s found) bool {
		return s.rank == rank && (s.finding.Says(cause.SaysEnded) || s.finding.Says(cause.SaysElsewhere) && s.finding.Weight == cause.WeightSymptom)
	})
}

// endedElsewhere reports whether another rank ended first, for a cause of its own: then
// this one was stopped for it, and what it had printed was no failure yet.
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

// endsItself reports whether a rank's exit is not what another rank's failure brings
// about.
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
