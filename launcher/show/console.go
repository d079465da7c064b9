// Package show shows runs: their events to people, or as JSON lines to programs; their state while they run (live.go);
// the list of them (runs.go); and a report (report.go).
//
// Messages for people go to stderr, each on one line that starts with "gpurun: ", in lower
// case, without a full stop. The ranks' output does not pass through here. Text from the job is
// shown without its secrets (package mask), and with control characters escaped. With JSON, stdout carries one JSON
// object a line and nothing else; the last one is the verdict.
package show

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

// People prints events as sentences.
type People struct {
	W     io.Writer
	Quiet bool         // show failures and the end only
	Dir   string       // the run directory
	Mask  *mask.Masker // masks the job's secrets; nil: only those known by name or shape
	// Typed is the typed command line without gpurun's name, for hints on what to type next; nil if not
	// known.
	Typed []string
	// Propose returns the words that start the plan of attempt n from the beginning; nil if the job is not
	// known.
	Propose func(plan strategy.Plan, by strategy.Arguments, n int) (strategy.Proposal, error)
	// Report is the path of the run's report, for the summary; empty for none.
	Report string

	state   journal.Run
	diff    string             // last diff that was shown
	before  string             // how far an earlier process of this run came; empty once shown
	plan    strategy.Plan      // plan of the latest attempt; nil before the first
	hints   []string           // hints of the summary
	armed   string             // the remedies in place with which the attempt began
	repeats []launcher.InPlace // of which a line was shown
}

// Warn prints a warning that is not about an attempt.
func (p *People) Warn(format string, args ...any) { p.say("warning: "+format, args...) }

// Recall records the events of an earlier process of the run, without printing them again.
func (p *People) Recall(events []launcher.Event) {
	p.state = journal.Run{Most: journal.Recent}
	for _, e := range events {
		p.state.Add(e)
	}
	if last := p.state.Launched(); last != nil {
		p.plan = last.Plan.With(nil)
	} else if p.state.First.Job.Recalled != nil {
		p.plan = p.state.First.Plan.With(nil)
	}
	p.before = p.resuming()
}

// listed returns the attempts that a summary lists, and how many it omits after the first runstate.First of them.
func (p *People) listed() (attempts []journal.AttemptState, omitted int) {
	attempts, omitted = p.state.Over(), p.state.Omitted.Attempts
	if more := len(attempts) - journal.Recent; more > 0 {
		return slices.Delete(slices.Clone(attempts), journal.First, journal.First+more), omitted + more
	}
	return attempts, omitted
}

// more is the line for attempts that a summary omits.
func (p *People) more(n int) string { return p.line("  … %s", strategy.Count(n, "more attempt")) }

// last returns the latest attempt that is over, nil for none.
func (p *People) last() *journal.AttemptState {
	over := p.state.Over()
	if len(over) == 0 {
		return nil
	}
	return &over[len(over)-1]
}

// ended returns the message that a run has ended, and how to start another one.
func (p *People) ended(o strategy.Outcome) string {
	if o != strategy.Trained {
		return "this run has already ended with the verdict below; --fresh starts the job again, or another --run-dir or --run-id"
	}
	when := ""
	if last := p.last(); last != nil && !last.Evidence.Ended.IsZero() {
		when = ", on " + last.Evidence.Ended.Local().Format("2 Jan 15:04")
	}
	return fmt.Sprintf("job %s has trained in run %s%s: this run has already ended with the verdict below; --if-trained run starts the job again", p.state.Began.Name, filepath.Base(p.Dir), when)
}

// resuming returns the message how far an earlier process of the run came.
func (p *People) resuming() string {
	last, end := p.state.Last(), p.state.End()
	switch {
	case end != nil && end.Outcome.Final():
		return p.ended(end.Outcome)
	case p.state.Verdict != nil:
		return "resuming the run: " + end.Reason
	case last == nil:
		return ""
	case last.Phase < journal.Ended:
		return fmt.Sprintf("resuming the run: attempt %d was interrupted", last.N)
	}
	return fmt.Sprintf("resuming the run after attempt %d", last.N)
}

// Show prints one event.
func (p *People) Show(e launcher.Event) {
	p.state.Add(e)
	switch e := e.(type) {
	case launcher.Began:
		held := ""
		if e.Job.Ceiling > 0 { // gpurun diagnose reads this line in saved output
			held = fmt.Sprintf(", at most %s in each rank", strategy.GiB(e.Job.Ceiling))
		}
		p.chat("job %s: %s, recipe %s, %s%s", e.Name, strategy.Count(e.Job.Ranks, "rank"), e.Recipe, e.Place, held)
		p.chat("run directory: %s", p.Dir)
		p.recall(e)
		p.sayBefore(p.chat)
	case launcher.Started:
		p.start(e)
	case launcher.Decided:
		if e.Decision.Relaunch {
			p.say("%s", e.Decision.Reason)
		}
	case launcher.InPlace:
		if p.shows(e) {
			p.say("%s", e.Sentence())
		}
		if words := e.Tuned(); words != "" {
			p.chat("%s", words)
		}
	case launcher.SpedUp:
		p.say("%s", e.Decision.Reason)
	case launcher.Noticed:
		p.say("%s", e.Text)
	case launcher.Finished:
		p.sayBefore(p.say) // a run that had ended: shown even if quiet
		p.finish(e.Verdict)
	}
}

// recall names the remembered plan that attempt 0 runs with, if any; attempt 0 is compared
// with it.
func (p *People) recall(e launcher.Began) {
	if e.Job.Recalled == nil || p.plan != nil {
		return
	}
	p.plan = e.Plan.With(nil)
	p.say("%s; --fresh for the job as written", e.Job.Recalled)
}

// sayBefore prints once how far an earlier process of the run came.
func (p *People) sayBefore(say func(format string, args ...any)) {
	if p.before != "" {
		say("%s", p.before)
	}
	p.before = ""
}

func (p *People) start(e launcher.Started) {
	from := ""
	if e.Checkpoint != "" {
		from = ", from checkpoint " + e.Checkpoint
	}
	if p.armed = e.InPlace.ArmedWords(); p.armed != "" {
		from += ", in place " + p.armed
	}
	files, changed := "", []string(nil)
	if e.Diff != p.diff && strings.Contains(e.Diff, "\n+++ ") {
		files, changed = fmt.Sprintf("; diff: attempt-%d/diff.patch", e.N), p.fileChanges(e.Diff)
	}
	p.chat("attempt %d: %s%s%s%s", e.N, p.describe(e.Plan), from, predicted(e.Expected), files)
	if !p.Quiet && len(changed) > 0 {
		fmt.Fprintln(p.W, strings.Join(changed, "\n"))
	}
	p.plan, p.diff = e.Plan.With(nil), e.Diff
}

// describe returns the plan of the first attempt, or the changes of a later one.
func (p *People) describe(plan strategy.Plan) string {
	switch changed := p.plan.Changed(plan); {
	case len(plan) == 0:
		return "the job as written"
	case p.plan == nil:
		return plan.String()
	case len(changed) == 0:
		return "the same plan"
	default:
		return changed.String()
	}
}

// morePartsShown is by how many times as many parts are worth another line: a step that runs out in 2 parts is
// repeated in 4, 8 and so on.
const morePartsShown = 16

// shows reports whether a step that was done again gets a line: the first of its kind in any rank. The summary has
// all of them.
func (p *People) shows(e launcher.InPlace) bool {
	for i, last := range p.repeats {
		if last.N == e.N && last.Remedy == e.Remedy && last.Phase == e.Phase &&
			(e.Parts == 0 || e.Parts < morePartsShown*last.Parts || last.Parts == 0) {
			return false
		}
		if last.N == e.N && last.Remedy == e.Remedy && last.Phase == e.Phase {
			p.repeats[i] = e
			return true
		}
	}
	p.repeats = append(p.repeats, e)
	return true
}

// say prints one line, even if the arguments have several. chat does so unless quiet.
func (p *People) say(format string, args ...any) {
	fmt.Fprintf(p.W, "gpurun: %s\n", p.line(format, args...))
}

func (p *People) line(format string, args ...any) string { return p.Mask.Sprintf(format, args...) }

func (p *People) chat(format string, args ...any) {
	if !p.Quiet {
		p.say(format, args...)
	}
}

// JSON writes events as JSON lines, the verdict last.
type JSON struct {
	W    io.Writer    // only for events
	Mask *mask.Masker // as for People
}

// Show writes one event as a line, in the journal's encoding.
func (j *JSON) Show(e launcher.Event) {
	if f, last := e.(launcher.Finished); last {
		j.verdict(f.Verdict)
		return
	}
	line, err := launcher.Encode(e, time.Now().UTC())
	if err != nil {
		return // the journal has reported the error
	}
	fmt.Fprintf(j.W, "%s\n", j.Mask.JSON(line))
}

// A LastLine is the last line of a run with --json, whose kind is VerdictKind.
type LastLine struct {
	Version int    `json:"v"`
	Kind    string `json:"kind"`
	launcher.Verdict
}

// VerdictKind is the kind of the last line.
const VerdictKind = "verdict"

// verdict writes the last line: the verdict's fields and the line's kind.
func (j *JSON) verdict(v launcher.Verdict) {
	line, err := json.Marshal(LastLine{1, VerdictKind, v})
	if err != nil {
		return // the journal has reported the error
	}
	fmt.Fprintf(j.W, "%s\n", j.Mask.JSON(line))
}
