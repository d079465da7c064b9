package strategy

import (
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A ProcessEnd is how a process ended, by its own word, whose exit code a program above it
// may hide: a shell that pipes its output into tee ends with the code of tee. No Python
// program of the job's own stands above it: such a program decides what its children's
// ends mean.
type ProcessEnd struct {
	PID int `json:"pid"`
	// Stream is the one of the finding that the process reported.
	Stream string `json:"stream"`
	// Began and At are when the process began, or imported PyTorch, and when it ended.
	Began time.Time `json:"began"`
	At    time.Time `json:"at"`
	// Trained says that a model was trained in it, or in a process that it started.
	Trained bool `json:"trained,omitempty"`
	// Failed is the cause by the exception that nobody caught, empty for none.
	Failed cause.Code `json:"failed,omitempty"`
}

// meantToTrain reports whether the process trained, or ran out of memory on the way there.
func (p *ProcessEnd) meantToTrain() bool { return p.Trained || p.Failed.OutOfMemory() }

// failures are a rank's processes that ended by an exception and with them the job: no
// later process trained to a good end. One that did not train counts only where no other
// did, and none ended well: it may have been a check before the training.
func (c *fold) failures(rank int) []*ProcessEnd {
	var all []*ProcessEnd
	for _, i := range c.processEnds {
		if c.facts[i].Rank == rank {
			all = append(all, c.facts[i].ProcessEnd)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(p *ProcessEnd) bool {
		return p.Failed == "" || slices.ContainsFunc(all, func(other *ProcessEnd) bool {
			if !p.meantToTrain() {
				return other.Trained || other.Failed == ""
			}
			return other.Failed == "" && other.Trained && other.Began.After(p.At)
		})
	})
}

// masked reports whether a rank's exit code 0 hides that its training failed.
func (c *fold) masked(rank int) bool {
	i, ended := c.exits[rank]
	return ended && !c.facts[i].Exit.Stopped && !failed(c.facts[i].Exit) && len(c.failures(rank)) > 0
}

// maskedText reports whether saved output ends in an exception that nobody caught, though
// the exit code that somebody gave is 0: it may be that of a program around the job.
func (c *fold) maskedText() bool {
	return slices.ContainsFunc(c.findings, func(s found) bool { return s.finding.Last && leaves(s.finding) })
}

// aside reports whether a finding is the word of a process whose end was not that of the
// job.
func (c *fold) aside(s found) bool {
	return s.finding.Beside && !slices.ContainsFunc(c.failures(s.rank), func(p *ProcessEnd) bool { return p.Stream == s.finding.Stream })
}
