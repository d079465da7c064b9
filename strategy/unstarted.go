package strategy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// Unstarted is why the ranks of an attempt could not be started.
type Unstarted struct {
	Reason string `json:"reason"`
	// Hint is what the user can do about it, empty where nobody knows.
	Hint string `json:"hint,omitempty"`
	// Wait says that what was missing may be there later: processes, memory,
	// descriptors, a port that another process has.
	Wait bool `json:"wait,omitempty"`
	// RunDir says that the system refused the run directory.
	RunDir bool `json:"run_dir,omitempty"`
}

// diagnosis is that of an attempt of which no rank has run.
func (u Unstarted) diagnosis() Diagnosis {
	code := cause.UserError
	if u.Wait || u.RunDir {
		code = cause.Unknown
	}
	return Diagnosis{
		Cause: code, Fatal: true, Phase: cause.NoPhase, Rank: -1, Symptoms: []cause.Code{}, Because: []int{}, Error: u.Reason,
		Advice: cmp.Or(u.Hint, "restore what the job needs to start, or repair it, and start a new run"),
	}
}

// unstarted ends the run: no other plan would start either. Where waiting helps, or
// the run directory is at fault, the run goes on when it is started again.
func unstarted(s *situation) Decision {
	d := Decision{Outcome: Failed, Code: CodeFailed, Reason: fmt.Sprintf("attempt %d could not be started: %s", s.last.N, s.last.Unstarted.Reason)}
	switch {
	case s.last.Unstarted.RunDir:
		d.Outcome, d.Code = Retry, CodeRunDir
	case s.last.Unstarted.Wait:
		d.Outcome, d.Code = Retry, CodeRetry
	}
	return d
}

// ran leaves the attempts before the last out that could not be started: they say
// nothing of their plans, and use up no budget.
func ran(history []Attempt) []Attempt {
	before := slices.DeleteFunc(slices.Clone(history[:len(history)-1]), func(a Attempt) bool { return a.Unstarted != nil })
	return append(before, history[len(history)-1])
}
