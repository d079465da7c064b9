package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// The events that are sent.
const (
	Rescued   = "rescued"   // out of memory, and a relaunch was decided
	Exhausted = "exhausted" // nothing is left to try
	Failed    = "failed"
	Trained   = "trained"
	Stalled   = "stalled" // no rank made a step for launch.stall_timeout
)

// A Notification is one event; its JSON is what is sent.
type Notification struct {
	// ID is the same whenever the event is sent.
	ID    string    `json:"id"`
	Event string    `json:"event"`
	Time  time.Time `json:"time"`
	Run   string    `json:"run"`
	Job   string    `json:"job"`
	Host  string    `json:"host"`
	// Outcome and Code are the verdict's, absent until the run ends.
	Outcome strategy.Outcome `json:"outcome,omitempty"`
	Code    *int             `json:"code,omitempty"`
	Reason  string           `json:"reason"`
	Attempt int              `json:"attempt"`
	// Cause is why that attempt ended.
	Cause cause.Code `json:"cause,omitempty"`
	// Changed has the changes of the next attempt, or at the end, those of the last plan from the job as
	// written.
	Changed strategy.Changes `json:"changed,omitempty"`
	// Summary is a sentence for people.
	Summary string `json:"summary"`
}

// longestReason bounds what a message takes from a job, in characters.
const longestReason = 1000

// encode is the message in JSON, without the job's secrets.
func (m Notification) encode(secrets *mask.Masker) ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the event: %w", err)
	}
	return secrets.JSON(text), nil
}

// identity matches the id of a message.
var identity = lazy.Regexp(`^[0-9a-f]{32}$`)

// decode reads a message from the outbox.
func decode(body []byte) (m Notification, err error) {
	if err := json.Unmarshal(body, &m); err != nil {
		return m, &refusal{"it cannot be read"}
	}
	if !identity().MatchString(m.ID) {
		return m, &refusal{"it has no id"}
	}
	return m, nil
}

// An eventSource is the state of a run by its events.
type eventSource struct {
	dir, host string
	state     journal.Run
}

func newEventSource(dir, host string) eventSource {
	return eventSource{dir: dir, host: host, state: journal.Run{Most: journal.Recent}}
}

// over reports whether the run has its last verdict.
func (s *eventSource) over() bool { return s.state.Verdict != nil && s.state.Verdict.Outcome.Final() }

// take adds one event, and returns its notification, if it has one.
func (s *eventSource) take(e launcher.Event, at time.Time) (m Notification, sent bool) {
	over := s.over()
	s.state.Add(e)
	switch e := e.(type) {
	case launcher.Decided:
		switch d, c := e.Decision, e.Diagnosis.Cause; {
		case !e.Diagnosis.Fatal:
		case d.Relaunch && c.OutOfMemory():
			return s.message(Rescued, at, d.Reason, d.Changed), true
		case c == cause.Hang:
			return s.message(Stalled, at, d.Reason, nil), true
		}
	case launcher.Finished:
		if v := e.Verdict; v.Outcome.Final() && !over {
			m := s.message(string(v.Outcome), at, v.Reason, s.changed())
			m.Outcome, m.Code = v.Outcome, &v.Code
			if v.Outcome == strategy.Trained {
				m.Summary = fmt.Sprintf("%s: trained%s", m.Job, s.course())
			}
			return m, true
		}
	}
	return Notification{}, false
}

// changed is how the plan of the newest attempt differs from the job as written.
func (s *eventSource) changed() strategy.Changes {
	written := s.state.First.Plan
	if w := s.state.First.Job.Written; w != nil {
		written = w
	}
	if last := s.state.Launched(); last != nil {
		return written.Changed(last.Plan)
	}
	return written.Changed(s.state.First.Plan)
}

// course returns how many attempts and which changes the training needed, once it has ended.
func (s *eventSource) course() string {
	words := ""
	if last := s.state.Launched(); last != nil && last.N > 0 {
		words = fmt.Sprintf(" after %d attempts", last.N+1)
		if changed := s.changed(); len(changed) > 0 {
			words += ", with " + changed.String()
		}
	}
	var again []strategy.InPlace
	for _, a := range s.state.Verdict.Attempts {
		again = append(again, a.InPlace...)
	}
	if in := strategy.InPlaceWords(again); in != "" {
		words += "; " + in
	}
	return words
}

func (s *eventSource) message(event string, at time.Time, reason string, changed strategy.Changes) Notification {
	m := Notification{
		Event: event, Time: at, Run: filepath.Base(s.dir), Job: clean(s.state.Began.Name), Host: clean(s.host),
		Reason: clean(reason), Changed: changed,
	}
	if last := s.state.Launched(); last != nil {
		m.Attempt, m.Cause = last.N, s.state.Last().Diagnosis.Cause
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s %d", m.Run, s.state.First.At.UnixNano(), event, m.Attempt))
	m.ID = hex.EncodeToString(sum[:16])
	m.Summary = m.Job + ": " + m.Reason
	if event == string(strategy.Failed) || event == string(strategy.Exhausted) {
		m.Summary = m.Job + ": " + event + ": " + m.Reason
	}
	return m
}

// read reads a journal from its beginning. One that cannot be read has no events: the gpurun that runs there
// reports it.
func (s *eventSource) read(dir string) {
	_ = journal.Walk(dir, func(e launcher.Event, at time.Time) bool {
		s.take(e, at)
		return true
	})
}

// clean is a text of one line that no terminal obeys, and not too long.
func clean(text string) string {
	return mask.CutText(mask.TerminalLine(text), longestReason)
}

// happened is an event in a sentence.
func happened(event string) string {
	switch event {
	case Rescued:
		return "run out of memory and continues"
	case Exhausted:
		return "run out of memory for good"
	case Stalled:
		return "made no step"
	}
	return strings.TrimSpace(clean(event))
}

func hostname() string {
	host, _ := os.Hostname()
	return host
}
