package show

import (
	"fmt"
	"html/template"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

// A text makes words from a job safe to show: without secrets, visible, and short. The
// template escapes them.
type text struct{ mask *mask.Masker }

// The longest texts of the page, in characters as HTML counts them.
const (
	longSentence = 2400
	longLine     = 700
	shortText    = 160
)

// functions are what the template calls.
func (w text) functions() template.FuncMap {
	return template.FuncMap{
		"gib": gibText, "at": at, "clock": clock, "stepTime": stepTime, "joined": joined,
		"sentence": func(value any) string { return w.clip(value, longSentence) },
		"line":     func(value any) string { return w.clip(value, longLine) },
		"quote":    func(value any) string { return w.clip(value, longLine/2) },
		"short":    func(value any) string { return w.clip(value, shortText) },
	}
}

// clip is one line of at most so many characters.
func (w text) clip(value any, most int) string {
	return clip(w.mask.Line(fmt.Sprint(value), most), most)
}

// config is the lines of a diff or a configuration, the first ones that fit.
func (w text) config(text string, lines, most int) (shown []string, left int) {
	for line := range strings.Lines(mask.TerminalLines(w.mask.Config(text))) {
		line = clip(strings.TrimRight(line, "\r\n"), longLine)
		if most -= cost(line); len(shown) == lines || most < 0 {
			left++
			continue
		}
		shown = append(shown, line)
	}
	return shown, left
}

// cost is the bytes of a text as HTML.
func cost(text string) int { return len(template.HTMLEscapeString(text)) }

// clip shortens a text to so many bytes of HTML.
func clip(text string, most int) string {
	if len(text) <= most && cost(text) <= most {
		return text
	}
	spent := 0
	for i, r := range text {
		if spent += cost(string(r)); spent > most {
			return text[:i] + "…"
		}
		if r == utf8.RuneError {
			spent += 2
		}
	}
	return text
}

// gibText writes bytes for people, and "–" for none.
func gibText(bytes int64) string {
	if bytes <= 0 {
		return "–"
	}
	return strategy.GiB(bytes)
}

// brief writes a time as the summary on the console does, without seconds from an hour on: "1h12m", "58s".
func brief(d time.Duration) string {
	if d < time.Hour {
		return Brief(max(d, 0)).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// at is a time in the reader's zone, empty for none.
func at(t time.Time) string { return formatted(t, "2006-01-02 15:04:05 MST") }

// clock is a time of day, for lists whose day is known.
func clock(t time.Time) string { return formatted(t, time.TimeOnly) }

func formatted(t time.Time, layout string) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(layout)
}

func joined(remedies []strategy.Remedy) string {
	words := make([]string, len(remedies))
	for i, r := range remedies {
		words[i] = string(r)
	}
	return strings.Join(words, ", ")
}

// stepTime describes how long a step takes after a change.
func stepTime(p *strategy.Price) string {
	switch after := fmt.Sprintf("%.3g s", p.SecondsAfter); {
	case p.SecondsAfter <= 0:
		return "not known"
	case p.Time() == "":
		return after + "; before, no step was measured"
	default:
		return fmt.Sprintf("%s: %.3g → %s", p.Time(), p.SecondsBefore, after)
	}
}
