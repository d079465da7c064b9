package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A headline is what somebody wants to know first: how it ended, why, what was changed,
// and what to do.
type headline struct {
	Class, Outcome, Job, Run, Line, When string
	Reason                               string
	Why                                  []string
	Changed, Result                      string
	Hints                                []hint
}

// A hint is what to do next; Words are what can be pasted, empty for none.
type hint struct{ Text, Words string }

// outcome is the run's in a word.
func (d *Data) outcome() string {
	switch {
	case d.Verdict != nil:
		return string(d.Verdict.Outcome)
	case d.Running:
		return "running"
	}
	return "cut off"
}

// classes are the colours of outcomes.
var classes = map[string]string{"trained": "good", "running": "run", "failed": "bad", "exhausted": "oom"}

func (d *Data) headline() headline {
	say := d.say
	h := headline{Outcome: say.short(strategy.Outcome(d.outcome()).Words()), Class: classes[d.outcome()], Job: say.short(d.Began.Name), Run: say.short(d.Began.Run), When: at(d.First.At)}
	if h.Class == "" {
		h.Class = "stop"
	}
	h.Line = d.line()
	if d.Verdict != nil && d.Verdict.Outcome != strategy.Trained {
		h.Reason = say.sentence(d.Verdict.Reason)
	}
	for i := range d.Attempts {
		if a := &d.Attempts[i]; a.Diagnosis.Fatal && (h.Reason == "" || i+1 < len(d.Attempts)) {
			h.Why = append(h.Why, say.sentence(fmt.Sprintf("attempt %d: %s", a.N, a.Diagnosis.Sentence())))
		}
	}
	if n := len(h.Why); n > 4 {
		h.Why = append(h.Why[:2:2], fmt.Sprintf("… and %s more", strategy.Count(n-3, "attempt")), h.Why[n-1])
	}
	if n := len(d.Attempts); n > 0 {
		last := &d.Attempts[n-1]
		h.Changed = say.sentence(d.Began.Plan.Changed(last.Used()).String())
		if room := last.Decision.Headroom; room != nil {
			h.Result = say.sentence(room.Words())
		}
	}
	for i, text := range d.Hints {
		if i == mostListed {
			break
		}
		h.Hints = append(h.Hints, hintOf(say.sentence(text)))
	}
	return h
}

// line is the outcome with its figures: "trained after 2 attempts in 58s".
func (d *Data) line() string {
	var sum time.Duration
	for i := range d.Attempts {
		sum += d.Attempts[i].lasted()
	}
	n := len(d.Attempts)
	switch {
	case n == 0:
		return "no attempt was started"
	case d.Verdict != nil:
		return fmt.Sprintf("after %s in %s", strategy.Count(n, "attempt"), brief(sum))
	case !d.Running:
		return fmt.Sprintf("in attempt %d, together with gpurun: gpurun resume %s goes on with it", d.Attempts[n-1].N, d.say.text(d.Dir, longLine))
	}
	last := &d.Attempts[n-1]
	said := fmt.Sprintf("attempt %d", last.N)
	if last.ended() {
		return said + " has ended, and the next is about to start"
	}
	if b := last.Begin(); !b.IsZero() {
		said += ", for " + brief(d.Made.Sub(b))
	}
	if s := latest(last.Series); s.Step > 0 {
		said += fmt.Sprintf(", step %d", s.Step)
		if s.Total > 0 {
			said += fmt.Sprintf(" of %d", s.Total)
		}
	}
	return said
}

// hintOf finds the words in a hint that are to be pasted.
func hintOf(text string) hint {
	if before, words, found := strings.Cut(text, ": "); found && (strings.HasPrefix(text, "to start with this plan next time") || strings.HasPrefix(text, "the next start begins with this plan by itself")) {
		return hint{before, words}
	}
	return hint{text, ""}
}

// notices are what gpurun told while it ran, the last ones.
func (d *Data) notices() []string {
	var said []string
	for i, text := range d.Notices {
		if i >= len(d.Notices)-mostListed {
			said = append(said, d.say.text(text, longLine))
		}
	}
	return said
}
