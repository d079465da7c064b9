package strategy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

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
	// Bug says that gpurun itself failed as it wrote the plan into the job's command.
	Bug bool `json:"bug,omitempty"`
}

// diagnosis is that of an attempt of which no rank has run.
func (u Unstarted) diagnosis() Diagnosis {
	code := cause.UserError
	if u.Wait || u.RunDir || u.Bug {
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
	case s.last.Unstarted.Bug:
		d.Code = CodeBug
		if n := len(s.history); n > 1 {
			d.Reason += "; " + s.history[n-2].Diagnosis.Sentence() + " in attempt " + strconv.Itoa(s.history[n-2].N)
		}
	}
	return d
}

// unwritable are the knobs that plans changed which gpurun failed to write into the job's
// command by a bug, and why they are left alone.
func unwritable(history []Attempt) map[Knob]string {
	doubts := map[Knob]string{}
	var before Plan
	for _, a := range history {
		switch {
		case a.Unstarted == nil:
			before = a.Plan
		case a.Unstarted.Bug:
			for k := range before.Changed(a.Plan) {
				doubts[k] = fmt.Sprintf("gpurun could not set %s in attempt %d: %s", k.Short(), a.N, a.Unstarted.Reason)
			}
		}
	}
	return doubts
}

// unwritten: gpurun failed to write the changes of the last attempt's plan by a bug. Others
// may be possible.
func (s *situation) unwritten() bool {
	n := len(s.history)
	return s.last.Unstarted != nil && s.last.Unstarted.Bug && n > 1 && len(s.history[n-2].Plan.Changed(s.last.Plan)) > 0
}

// ran leaves the attempts before the last out that could not be started: they say
// nothing of their plans, and use up no budget.
func ran(history []Attempt) []Attempt {
	before := slices.DeleteFunc(slices.Clone(history[:len(history)-1]), func(a Attempt) bool { return a.Unstarted != nil })
	return append(before, history[len(history)-1])
}
