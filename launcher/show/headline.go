package show

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// A hint says what to do next; Paste is the command in it, and Diff the lines of the change that it makes; empty
// for none.
type hint struct {
	Text, Paste string
	Diff        []string
}

// mostDiff is how many lines of a diff are shown, and longDiff how many characters.
const mostDiff, longDiff = 60, 6000

// Outcome is how the run ended, or its state, in a word or two.
func (d *ReportData) Outcome() string {
	switch {
	case d.Verdict != nil:
		return string(d.Verdict.Outcome)
	case d.Running:
		return "running"
	}
	return "cut off"
}

// OutcomeWords is the outcome for people.
func (d *ReportData) OutcomeWords() string { return strategy.Outcome(d.Outcome()).Words() }

// Class is the colour of the outcome.
func (d *ReportData) Class() string {
	classes := map[string]string{"trained": "good", "running": "run", "failed": "bad", "exhausted": "oom"}
	return cmp.Or(classes[d.Outcome()], "stop")
}

// Reason is why the run ended; empty where it trained, or has not ended.
func (d *ReportData) Reason() string {
	if d.Verdict == nil || d.Verdict.Outcome == strategy.Trained {
		return ""
	}
	return d.Verdict.Reason
}

// Why returns why attempts failed, without the last attempt if Reason covers it.
func (d *ReportData) Why() (why []string) {
	for i := range d.Attempts {
		if a := &d.Attempts[i]; a.Diagnosis.Fatal && (d.Reason() == "" || i+1 < len(d.Attempts)) {
			why = append(why, fmt.Sprintf("attempt %d: %s", a.N, a.Diagnosis.Sentence()))
		}
	}
	if n := len(why); n > 4 {
		why = append(why[:2:2], fmt.Sprintf("… and %s more", strategy.Count(n-3, "attempt")), why[n-1])
	}
	return why
}

// LastAttempt is the latest attempt, nil for none.
func (d *ReportData) LastAttempt() *ReportedAttempt {
	if len(d.Attempts) == 0 {
		return nil
	}
	return &d.Attempts[len(d.Attempts)-1]
}

// Line is the outcome with its figures: "after 2 attempts in 58s".
func (d *ReportData) Line() string {
	last := d.LastAttempt()
	switch {
	case last == nil:
		return "no attempt was started"
	case d.Verdict != nil:
		var sum time.Duration
		for i := range d.Attempts {
			sum += d.Attempts[i].lasted()
		}
		return fmt.Sprintf("after %s in %s", strategy.Count(len(d.Attempts), "attempt"), brief(sum))
	case !d.Running:
		return fmt.Sprintf("in attempt %d, together with gpurun: %s", last.N,
			d.say.clip(launcher.ContinueHint(d.Began.Scheduler, d.Dir), longLine))
	case last.ended():
		return fmt.Sprintf("attempt %d has ended, and the next is about to start", last.N)
	}
	words := fmt.Sprintf("attempt %d", last.N)
	if b := last.Begin(); !b.IsZero() {
		words += ", for " + brief(d.Made.Sub(b))
	}
	if s := last.latest(); s.Step > 0 {
		words += fmt.Sprintf(", step %d", s.Step)
		if s.Total > 0 {
			words += fmt.Sprintf(" of %d", s.Total)
		}
	}
	return words
}

// Next are the hints, with the commands in them that can be pasted.
func (d *ReportData) Next() (hints []hint) {
	if d.Verdict != nil && d.Verdict.Next != nil {
		for _, step := range d.Verdict.Next[:min(len(d.Verdict.Next), mostListed)] {
			h := hint{Text: d.say.clip(step.Reason, longSentence), Paste: d.say.clip(step.Command, longSentence)}
			h.Diff, _ = d.say.config(step.Diff, mostDiff, longDiff)
			hints = append(hints, h)
		}
		return hints
	}
	for _, words := range d.Hints[:min(len(d.Hints), mostListed)] {
		words = d.say.clip(words, longSentence)
		h := hint{Text: words}
		if before, paste, found := strings.Cut(words, ": "); found &&
			(strings.HasPrefix(words, "to start with this plan next time") ||
				strings.HasPrefix(words, "the next start begins with this plan by itself")) {
			h = hint{Text: before, Paste: paste}
		}
		hints = append(hints, h)
	}
	return hints
}
