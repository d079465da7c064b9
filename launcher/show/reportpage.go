package show

import (
	"crypto/sha256"
	_ "embed" // the page and its style
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"

	"github.com/gpurun/gpurun/strategy"
)

//go:embed report.html
var pageText string

//go:embed report.css
var styleText string

// pageTemplate is parsed on first use: a run that is not reported does not need it.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Funcs(text{}.functions()).Parse(pageText))
})

// policy forbids the browser to fetch or run anything; the one style is named by its hash.
func policy() string {
	sum := sha256.Sum256([]byte(style()))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'"
}

// style is the style sheet without its indentation and line breaks.
func style() string {
	var b strings.Builder
	for line := range strings.Lines(styleText) {
		b.WriteString(strings.TrimSpace(line))
	}
	return b.String()
}

// A reportPage is a report at one level of detail, as the template shows it. The template
// omits what is nil or empty.
type reportPage struct {
	*ReportData
	Policy string
	Style  template.CSS
	Full   []attemptView
	level  pageLevel
	shown  []int // the attempts that are shown in full
}

// write writes a report at one level of detail.
func write(w io.Writer, d ReportData, l pageLevel) error {
	p := &reportPage{ReportData: &d, Policy: policy(), Style: template.CSS(style()), level: l,
		shown: shownInFull(len(d.Attempts), l.full)}
	for _, i := range p.shown {
		p.Full = append(p.Full, attemptView{ReportedAttempt: &d.Attempts[i], page: p, i: i})
	}
	page, err := pageTemplate().Clone()
	if err != nil {
		return err
	}
	return page.Funcs(d.say.functions()).Execute(w, p)
}

// Left says which attempts are not shown in full.
func (p *reportPage) Left() string {
	n := len(p.Attempts) - len(p.shown)
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("%s in between are not shown in full: the journal has them, and gpurun explain shows the decisions.", strategy.Count(n, "attempt"))
}

// Priced are the attempts for which the price of the changes before them is known.
func (p *reportPage) Priced() (priced []*ReportedAttempt) {
	for i := range p.Attempts {
		if p.Attempts[i].Price != nil && len(priced) < mostRows {
			priced = append(priced, &p.Attempts[i])
		}
	}
	return priced
}

// LastNotices are the last messages that gpurun printed while it ran.
func (p *reportPage) LastNotices() []string { return p.Notices[max(len(p.Notices)-mostListed, 0):] }

// A fact is a name with its value.
type fact struct{ Name, Value string }

// factList lists named values, without those that are empty.
type factList []fact

func (f *factList) add(name, value string) {
	if value != "" {
		*f = append(*f, fact{name, value})
	}
}

// A pageLevel is how much a report shows, so that it stays below MostReportBytes for every run.
type pageLevel struct {
	full  int // attempts that are shown in full
	lines int // of a diff or a traceback
}

var most = pageLevel{full: 12, lines: 160}

// less is the next lower level; one with no attempt in full is the lowest.
func (l pageLevel) less() pageLevel { return pageLevel{l.full / 2, max(l.lines/2, 10)} }

// Bounds that no level changes: of rows and lists whose entries are short.
const (
	mostRows   = 60 // attempts in the timeline
	mostRanks  = 8  // ranks whose logs are linked
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
