package notify

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"github.com/gpurun/gpurun/launcher/system"
	"io/fs"
	"os"
	"strconv"
	"time"
)

// reportMode lets others read the report: the system that collects it often runs as another
// user, outside of the job's container.
const reportMode fs.FileMode = 0o644

// The report follows Jenkins' schema (junit-10.xsd), and, but for the attributes of the suite,
// Maven's Surefire.
type (
	testsuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Name    string       `xml:"name,attr"`
		Time    junitSeconds `xml:"time,attr"`
		counts
		Suite testsuite `xml:"testsuite"`
	}
	testsuite struct {
		Name string       `xml:"name,attr"`
		Time junitSeconds `xml:"time,attr"`
		counts
		Skipped    int        `xml:"skipped,attr"`
		Hostname   string     `xml:"hostname,attr"`
		Timestamp  string     `xml:"timestamp,attr"`
		Properties []property `xml:"properties>property"`
		Cases      []testcase `xml:"testcase"`
	}
	counts struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
	}
	property struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	testcase struct {
		Classname string       `xml:"classname,attr"`
		Name      string       `xml:"name,attr"`
		Time      junitSeconds `xml:"time,attr"`
		Failure   *result      `xml:"failure"`
		Skipped   *result      `xml:"skipped"`
		Error     *result      `xml:"error"`
		Out       string       `xml:"system-out,omitempty"`
	}
	result struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",cdata"`
	}
	junitSeconds time.Duration
)

// MarshalText writes seconds with their thousandths.
func (s junitSeconds) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', 3, 64), nil
}

// write writes the whole report of a run with this outcome, or leaves the old file.
func (p *Pipeline) write(run outcome) error {
	text, err := xml.MarshalIndent(p.history.report(run), "", " ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	return system.InTime(func() error {
		if info, err := os.Lstat(p.setup.JUnit); err == nil && !info.Mode().IsRegular() {
			return errors.New("it is not a regular file")
		}
		return system.WriteCopy(p.setup.JUnit, append([]byte(xml.Header), append(text, '\n')...), reportMode)
	})
}

// report has a case for each attempt, and one for the run.
func (c *history) report(run outcome) testsuites {
	job := c.mask.Line(c.job, longLine)
	cases, left := c.cases()
	s := testsuite{
		Name: job, Time: junitSeconds(c.took()), Hostname: c.mask.Line(c.host, longLine),
		Timestamp: cmp.Or(c.state.First.At, c.opened).UTC().Format("2006-01-02T15:04:05"),
	}
	s.Properties = append(s.Properties, property{"run", c.mask.Line(c.run(), longLine)})
	if v := c.state.Verdict; v != nil {
		s.Properties = append(s.Properties,
			property{"outcome", string(v.Outcome)}, property{"code", strconv.Itoa(v.Code)})
	}
	if left > 0 {
		s.Properties = append(s.Properties, property{"earlier attempts", strconv.Itoa(left)})
	}
	for _, o := range append(cases, run) {
		s.add(o.testcase("gpurun." + job))
	}
	return testsuites{Name: "gpurun", Time: s.Time, counts: s.counts, Suite: s}
}

func (s *testsuite) add(c testcase) {
	s.Cases = append(s.Cases, c)
	s.Tests++
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
}

// testcase makes a case of an outcome. A rescued attempt is skipped: no reader counts that as a
// failure of the run, and all show the reason.
func (o outcome) testcase(class string) testcase {
	t := testcase{Classname: class, Name: o.name, Time: junitSeconds(o.took)}
	r := &result{Message: o.message, Type: o.kind, Text: o.text}
	switch o.status {
	case passed:
		t.Out = o.message
	case skipped:
		r.Type, t.Skipped = "", r
	case failed:
		t.Failure = r
	case broken:
		t.Error = r
	}
	return t
}
