package report

import (
	"html/template"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/terminal"
	"github.com/gpurun/gpurun/strategy"
)

// words makes text from elsewhere fit to be shown: without secrets, visible, and short. The
// template escapes it.
type words struct{ mask *mask.Masker }

// A sentence and a block of lines have at most so many characters, as HTML counts them.
const (
	longSentence = 2400
	longLine     = 700
	shortText    = 160
)

// text is one line of at most so many characters.
func (w words) text(text string, most int) string {
	if enough := 2*most + 1024; len(text) > enough { // far behind what is shown, so that no secret is cut in two there
		text = text[:enough]
	}
	return clip(terminal.Line(w.mask.Text(text)), most)
}

func (w words) sentence(text string) string { return w.text(text, longSentence) }
func (w words) short(text string) string    { return w.text(text, shortText) }

// config is the lines of a diff or a configuration, the first ones that fit.
func (w words) config(text string, lines, most int) (shown []string, left int) {
	for line := range strings.Lines(terminal.Lines(w.mask.Config(text))) {
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

// gib writes bytes for people, and "–" for what is not known or none.
func gib(bytes int64) string {
	if bytes <= 0 {
		return "–"
	}
	return strategy.GiB(bytes)
}

// brief rounds a time to what a person reads: "1h12m", "58s".
func brief(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// at is a moment as the reader's clock has it.
func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}
