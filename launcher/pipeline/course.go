package pipeline

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/terminal"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A course is how a run went so far, in words that are fit to be shown.
type course struct {
	job, host string
	run       string
	began     time.Time // the run's first process
	mask      *mask.Masker

	cases   []outcome // an attempt each
	left    int       // attempts that are too many to be told of
	open    *launcher.Started
	ended   strategy.Evidence // of the attempt that is to be decided upon
	verdict *launcher.Verdict // nil: there is none
}

// An outcome is how an attempt, or the run, ended.
type outcome struct {
	name string
	took time.Duration
	fate fate
	kind string // the cause, or the run's outcome where nothing failed
	// message is one sentence, and text the evidence and the traceback.
	message, text string
	traceback     []string
}

// A fate is what a reader makes of an outcome.
type fate int

const (
	passed fate = iota
	// skipped: it failed, or was stopped, and the run went on or can go on.
	skipped
	// failed: the job did; broken: something else.
	failed
	broken
)

// Bounds of what is told, in bytes, lines and attempts.
const (
	longMessage = 1 << 10
	longLine    = 1 << 10
	mostLines   = 80
	mostCases   = 500
)

// take takes an event in.
func (c *course) take(e launcher.Event) {
	switch e := e.(type) {
	case launcher.Began:
		if c.run == "" && !e.At.IsZero() {
			c.began = e.At
		}
		c.run, c.verdict = e.Run, nil
		c.cutOff()
	case launcher.Started:
		c.cutOff()
		c.goOn()
		c.open = &e
	case launcher.Ended:
		c.ended, c.open = e.Evidence, nil
	case launcher.Decided:
		c.decide(e.Diagnosis, e.Decision)
	case launcher.Finished:
		c.verdict = &e.Verdict
		if e.Verdict.Run != "" {
			c.run = e.Verdict.Run
		}
	}
}

// cutOff takes in an attempt that ended together with an earlier gpurun.
func (c *course) cutOff() {
	if c.open != nil {
		c.add(outcome{name: attemptName(c.open.N), fate: skipped, kind: string(cause.Unknown), message: "cut off together with gpurun"})
	}
	c.open = nil
}

// goOn takes in that the run goes on: what its attempts ended with was not its end.
func (c *course) goOn() {
	for i := range c.cases {
		if c.cases[i].fate != passed {
			c.cases[i].fate = skipped
		}
	}
}

func (c *course) decide(d strategy.Diagnosis, next strategy.Decision) {
	e := c.ended
	o := outcome{name: attemptName(e.Attempt), took: max(e.Ended.Sub(e.Started), 0), kind: string(d.Cause), fate: fateOf(d, next), message: c.line(next.Reason, longMessage)}
	if o.fate == failed && !d.Fatal {
		o.kind = string(next.Outcome)
	}
	lines := []string{next.Reason}
	for _, i := range d.Because {
		if i >= 0 && i < len(e.Facts) && len(lines) < mostLines/4 {
			lines = append(lines, "because "+launcher.Describe(e.Facts[i]))
		}
	}
	for _, line := range launcher.Traceback(e, d) {
		if line = c.line(line, longLine); strings.TrimSpace(line) != "" {
			o.traceback = append(o.traceback, line)
		}
	}
	o.text = c.lines(lines, o.traceback)
	if n := len(c.cases); n > 0 && c.cases[n-1].name == o.name {
		c.cases = c.cases[:n-1] // decided anew
	}
	c.add(o)
}

// fateOf is what becomes of an attempt. One that was rescued is not the run's failure.
func fateOf(d strategy.Diagnosis, next strategy.Decision) fate {
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

// add keeps the latest attempts.
func (c *course) add(o outcome) {
	if c.cases = append(c.cases, o); len(c.cases) > mostCases {
		c.cases, c.left = c.cases[1:], c.left+1
	}
}

// end is how the run ended.
func (c *course) end(err error) outcome {
	c.cutOff()
	switch {
	case err != nil:
		o := c.unfinished(err.Error())
		o.kind = fmt.Sprintf("exit code %d", errext.Code(err, strategy.CodeUsage))
		o.text = c.lines([]string{err.Error(), errext.Hint(err)}, nil)
		return o
	case c.verdict == nil:
		return c.unfinished("gpurun ended without a verdict")
	}
	v := c.verdict
	o := outcome{name: runName, took: c.took(), kind: string(v.Outcome), message: c.line(v.Reason, longMessage), fate: failed}
	if n := len(c.cases); n > 0 {
		o.traceback = c.cases[n-1].traceback
		o.text = c.cases[n-1].text
		if v.Outcome == strategy.Failed || v.Outcome == strategy.Exhausted {
			o.kind = c.cases[n-1].kind
		}
	}
	switch v.Outcome {
	case strategy.Trained:
		o.fate = passed
	case strategy.Retry, strategy.Stopped:
		o.fate = broken
	}
	return o
}

// unfinished is the run as it stands without a verdict.
func (c *course) unfinished(why string) outcome {
	return outcome{name: runName, took: c.took(), fate: broken, kind: "unfinished", message: c.line(why, longMessage)}
}

// took is how long the attempts ran.
func (c *course) took() time.Duration {
	sum := time.Duration(0)
	for _, o := range c.cases {
		sum += o.took
	}
	return sum
}

// runName is the case of the run.
const runName = "run"

func attemptName(n int) string { return fmt.Sprintf("attempt %d", n) }

// line is one line of at most so many bytes.
func (c *course) line(text string, most int) string {
	if enough := 4 * most; len(text) > enough { // far behind what is shown, so that no secret is cut in two there
		text = text[:enough]
	}
	text = terminal.Line(c.mask.Text(text))
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// lines are what is not empty of some lines, and then of some that are fit to be shown.
func (c *course) lines(raw, fit []string) string {
	var all []string
	for _, text := range raw {
		for line := range strings.Lines(text) {
			if line = c.line(strings.TrimRight(line, "\r\n"), longLine); line != "" {
				all = append(all, line)
			}
		}
	}
	all = append(all, fit...)
	return strings.Join(all[:min(len(all), mostLines)], "\n")
}
