package report

import (
	"crypto/sha256"
	_ "embed" // the page and its style
	"encoding/base64"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

//go:embed page.css
var styleText string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{"gib": gib}).Parse(pageText))

// policy forbids the browser to fetch or run anything; the one style is named by its hash.
var policy = func() string {
	sum := sha256.Sum256([]byte(style()))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
}()

// style is the style sheet without the spaces that people need.
func style() string {
	var b strings.Builder
	for line := range strings.Lines(styleText) {
		b.WriteString(strings.TrimSpace(line))
	}
	return b.String()
}

// A page is what the template shows, in its order. A part that is nil or empty is left out.
type page struct {
	Policy   string
	Style    template.CSS
	Title    string
	Head     headline
	Error    *ownError
	Timeline timeline
	Stacks   *stacks
	Prices   []price
	Loss     *lossChart
	Attempts []attemptView
	Left     string // says which attempts are not shown in full
	Facts    []fact // of the environment
	Notices  []string
	Files    []files
	Made     string
}

// A fact is a name with its value.
type fact struct{ Name, Value string }

// write writes a report at one level of detail.
func write(w io.Writer, d Data, l level) error {
	shown := shownInFull(len(d.Attempts), l.full)
	say := d.say
	p := page{
		Policy: policy, Style: template.CSS(style()), Title: say.short("gpurun: " + d.Began.Name + ", " + d.outcome()),
		Head: d.headline(), Error: d.ownError(l), Timeline: d.timeline(shown), Stacks: d.stacks(shown), Prices: d.prices(), Loss: d.loss(l),
		Left: d.leftOut(shown), Facts: d.environment(), Notices: d.notices(), Files: d.files(shown),
		Made: "written by gpurun " + say.short(d.Version) + " at " + at(d.Made),
	}
	charts := 0
	for _, i := range shown {
		charts += min(len(d.Attempts[i].Series), mostRanks)
	}
	for _, i := range shown {
		p.Attempts = append(p.Attempts, d.attempt(i, l, charts, len(shown)))
	}
	return pageTemplate.Execute(w, p)
}

// clock is a moment's time of day, for lists whose day is known.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("15:04:05")
}

// A level is how much a report shows, so that it stays below MostBytes whatever the run was.
type level struct {
	full   int // attempts that are shown in full
	points int // of all charts together
	lines  int // of a diff or a traceback
}

var most = level{full: 12, points: 20_000, lines: 160}

// less is the next lower level; one with no attempt in full is the lowest.
func (l level) less() level { return level{l.full / 2, l.points / 2, max(l.lines/2, 10)} }

// Bounds that no level changes: of rows and lists whose entries are short.
const (
	mostRows   = 60 // attempts in the timeline
	mostRanks  = 8  // charts of an attempt
	mostListed = 12 // entries of a list
)

// shownInFull are the indices of so many attempts: the first and the last ones.
func shownInFull(attempts, most int) []int {
	var shown []int
	for i := range attempts {
		if most > 0 && (i == 0 || i > attempts-most) {
			shown = append(shown, i)
		}
	}
	return shown
}
