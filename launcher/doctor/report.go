package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/gpurun/gpurun/launcher/mask"
)

// A Report has the results of all checks, in the format of --json.
type Report struct {
	Checks   []Result `json:"checks"`
	Problems int      `json:"problems"`
	Warnings int      `json:"warnings"`
}

// newReport makes a report of the results. It makes texts from other programs safe to show, and masks
// secrets.
func newReport(results []Result, secrets *mask.Masker) Report {
	r := Report{Checks: results}
	for i := range r.Checks {
		c := &r.Checks[i]
		c.Found, c.Fix = secrets.Sprintf("%s", c.Found), secrets.Sprintf("%s", c.Fix)
		switch c.State {
		case Problem:
			r.Problems++
		case Warning:
			r.Warnings++
		}
	}
	return r
}

// Code is the exit code: 1 if there is a problem.
func (r Report) Code() int {
	if r.Problems > 0 {
		return 1
	}
	return 0
}

// Summary is the last line: "2 problems, 1 warning".
func (r Report) Summary() string {
	text := "no problems"
	if r.Problems > 0 {
		text = counted(r.Problems, "problem")
	}
	if r.Warnings > 0 {
		text += ", " + counted(r.Warnings, "warning")
	}
	return text
}

func counted(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return fmt.Sprintf("%d %s", n, word)
}

// WriteJSON writes the report as one document.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// A style is how a report is shown.
type style struct{ colour, ascii bool }

// styleOf is the style for a file, in an environment.
func styleOf(out *os.File, getenv func(string) string) style {
	locale := cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG"))
	locale = strings.ToLower(strings.ReplaceAll(locale, "-", ""))
	return style{
		colour: term.IsTerminal(int(out.Fd())) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb",
		ascii:  !strings.Contains(locale, "utf8"),
	}
}

// Write writes the report for people: on a terminal in colour, and in ASCII if the locale is not UTF-8.
func (r Report) Write(out *os.File, getenv func(string) string) error {
	_, err := io.WriteString(out, r.text(styleOf(out, getenv)))
	return err
}

const (
	width = 80
	// indent is the column of the finding, after the sign and the name.
	indent = 19
)

var (
	marks  = map[CheckStatus]string{OK: "✓", Warning: "!", Problem: "✗", Skipped: "–"}
	paints = map[CheckStatus]string{Warning: "\x1b[33m", Problem: "\x1b[31m"}
	plain  = strings.NewReplacer("✓", "+", "✗", "x", "–", "-", "→", ">", "×", "x", "…", "...", "≥", ">=")
)

// text returns the report as lines. If all checks of a group are skipped for the same reason, the group is
// one line.
func (r Report) text(s style) string {
	var b strings.Builder
	for _, g := range groups {
		var results []Result
		for _, c := range r.Checks {
			if c.Group == g.name {
				results = append(results, c)
			}
		}
		switch {
		case len(results) == 0:
			continue
		case !slices.ContainsFunc(results, func(c Result) bool { return c.State != Skipped || c.Found != results[0].Found }):
			fmt.Fprintf(&b, "%s\n", wrap(g.title+" – "+results[0].Found, 2))
			continue
		}
		fmt.Fprintf(&b, "%s\n", g.title)
		for _, c := range results {
			mark := marks[c.State]
			if paint := paints[c.State]; paint != "" && s.colour {
				mark = paint + mark + "\x1b[0m"
			}
			fmt.Fprintf(&b, "  %s %-*s%s\n", mark, indent-4, c.Name, wrap(c.Found, indent))
			if c.Fix != "" {
				fmt.Fprintf(&b, "    → %s\n", wrap(c.Fix, 6))
			}
		}
	}
	fmt.Fprintf(&b, "%s\n", r.Summary())
	if s.ascii {
		return plain.Replace(b.String())
	}
	return b.String()
}

// wrap breaks a text at blanks so that each line, indented, fits the width; a word that
// does not fit is on a line alone.
func wrap(text string, indent int) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width-indent {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n"+strings.Repeat(" ", indent))
}
