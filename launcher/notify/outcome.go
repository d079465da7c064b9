package notify

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A history is the history of a run, as text that is safe to show.
type history struct {
	job, host string
	opened    time.Time // when this process began
	mask      *mask.Masker
	state     journal.Run
}

// run returns the run's name, empty if it has none yet.
func (c *history) run() string {
	if v := c.state.Verdict; v != nil && v.Run != "" {
		return v.Run
	}
	return c.state.Began.Run
}

// An outcome is how an attempt, or the run, ended.
type outcome struct {
	name   string
	took   time.Duration
	status outcomeStatus
	kind   string // the cause, or the run's outcome where nothing failed
	// message is one sentence, and text the evidence and the traceback.
	message, text string
}

// An outcomeStatus is the class in which a reader counts an outcome.
type outcomeStatus int

const (
	passed  outcomeStatus = iota
	skipped               // it failed, or was stopped, and the run continued or can continue
	failed                // the job failed
	broken                // something else failed
)

// Bounds of the report, in characters, lines and attempts.
const (
	longMessage = 1 << 10
	longLine    = 1 << 10
	mostLines   = 80
	mostCases   = 500
)

// cases returns the outcomes of the latest attempts; left is the number of earlier ones. An attempt that
// another one followed is not a failure of the run.
func (c *history) cases() (all []outcome, left int) {
	attempts := c.state.Over()
	for i := range attempts {
		a := &attempts[i]
		o := outcome{
			name: fmt.Sprintf("attempt %d", a.N), status: skipped, kind: string(cause.Unknown),
			message: "cut off together with gpurun",
		}
		switch a.Phase {
		case journal.CutOff:
		case journal.Decided:
			o = c.decided(o.name, a)
		default:
			continue
		}
		if o.status != passed && i+1 < len(c.state.Attempts) {
			o.status = skipped
		}
		all = append(all, o)
	}
	more := max(len(all)-mostCases, 0)
	return all[more:], c.state.Omitted.Attempts + more
}

// decided returns the outcome of an attempt that a decision followed.
func (c *history) decided(name string, a *journal.AttemptState) outcome {
	d, e, next := a.Diagnosis, a.Evidence, a.Decision
	o := outcome{
		name: name, took: a.Lasted(), kind: string(d.Cause), status: statusOf(d, next),
		message: c.mask.Line(next.Reason, longMessage),
	}
	if o.status == failed && !d.Fatal {
		o.kind = string(next.Outcome)
	}
	lines := []string{next.Reason}
	if again := strategy.InPlaceWords(a.Again); again != "" && next.Outcome != strategy.Trained { // whose reason has it
		lines = append(lines, again)
	}
	facts := d.Facts(&e)
	for _, f := range facts[:min(len(facts), mostLines/4-1)] {
		lines = append(lines, "because "+launcher.Describe(f))
	}
	var traceback []string
	for _, line := range launcher.Traceback(e, d) {
		if line = c.mask.Line(line, longLine); strings.TrimSpace(line) != "" {
			traceback = append(traceback, line)
		}
	}
	o.text = c.lines(lines, traceback)
	return o
}

// statusOf returns the class of an attempt. A rescued one is not a failure of the run.
func statusOf(d strategy.Diagnosis, next strategy.Decision) outcomeStatus {
	switch {
	case next.Outcome == strategy.Trained:
		return passed
	case next.Relaunch, next.Outcome == strategy.Stopped, !d.Fatal && next.Outcome == strategy.Retry:
		return skipped
	case next.Outcome == strategy.Retry:
		return broken
	}
	return failed
}

// end returns the run's outcome.
func (c *history) end(err error) outcome {
	c.state.CutOff()
	v := c.state.Verdict
	switch {
	case err != nil:
		o := c.unfinished(err.Error())
		o.kind = fmt.Sprintf("exit code %d", errext.Code(err, strategy.CodeUsage))
		o.text = c.lines([]string{err.Error(), errext.Hint(err)}, nil)
		return o
	case v == nil:
		return c.unfinished("gpurun ended without a verdict")
	}
	o := outcome{
		name: runName, took: c.took(), kind: string(v.Outcome), status: failed,
		message: c.mask.Line(v.Reason, longMessage),
	}
	if cases, _ := c.cases(); len(cases) > 0 {
		last := cases[len(cases)-1]
		o.text = last.text
		if v.Outcome == strategy.Failed || v.Outcome == strategy.Exhausted {
			o.kind = last.kind
		}
	}
	switch v.Outcome {
	case strategy.Trained:
		o.status = passed
	case strategy.Retry, strategy.Stopped:
		o.status = broken
	}
	return o
}

// unfinished returns the outcome of a run without a verdict.
func (c *history) unfinished(why string) outcome {
	return outcome{
		name: runName, took: c.took(), status: broken, kind: "unfinished", message: c.mask.Line(why, longMessage),
	}
}

// took returns the total time of the attempts.
func (c *history) took() time.Duration {
	sum := c.state.Omitted.Lasted
	for i := range c.state.Attempts {
		sum += c.state.Attempts[i].Lasted()
	}
	return sum
}

// runName is the name of the run's case.
const runName = "run"

// lines joins the lines of some texts that are not empty, and then lines that are safe to show.
func (c *history) lines(raw, safe []string) string {
	var all []string
	for _, text := range raw {
		for line := range strings.Lines(text) {
			if line = c.mask.Line(strings.TrimRight(line, "\r\n"), longLine); line != "" {
				all = append(all, line)
			}
		}
	}
	all = append(all, safe...)
	return strings.Join(all[:min(len(all), mostLines)], "\n")
}
