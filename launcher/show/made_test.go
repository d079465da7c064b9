package show

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

// copied is a real run's directory, to which a test may add: "lightning", rescued on one
// H200, or "deepspeed", on two.
func copied(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// journaled writes a run directory of events, a second apart.
func journaled(t *testing.T, events ...launcher.Event) string {
	t.Helper()
	dir := t.TempDir()
	var text []byte
	for i, e := range events {
		line, err := launcher.Encode(e, day.Add(time.Duration(i)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, line...), '\n')
	}
	if err := os.WriteFile(filepath.Join(dir, journal.File), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// day is when the made-up runs were.
var day = time.Date(2026, 3, 4, 2, 0, 0, 0, time.UTC)

// page is the report of a run directory as it is written.
func pageOf(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, ReportFile)
	if _, err := MakeReport(dir, "", "v9", nil); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) >= MostReportBytes {
		t.Errorf("the report has %d bytes", len(text))
	}
	return string(text)
}

// A course is how the memory of an attempt is made up to go.
type course struct {
	ranks, steps int
	held, peak   int64 // between steps, and in them
	allowed      int64
	fails        bool // at the end the peak is what is allowed
	loss         float64
}

// sampled writes samples of an attempt as its ranks would: a load, steps, an evaluation and
// a save in between.
func sampled(t *testing.T, dir string, a ReportedAttempt, c course) {
	t.Helper()
	begin, span := a.Begin(), a.lasted()
	var lines []byte
	most := int64(0)
	for i := range c.steps {
		x := float64(i) / float64(c.steps-1)
		for rank := range c.ranks {
			s := strategy.Sample{Time: begin.Add(time.Duration(x*float64(span)) + time.Duration(rank)), Rank: rank, Device: fmt.Sprintf("cuda:%d", rank), Phase: "train", Total: c.steps, Allowed: c.allowed}
			wave := .5 + .5*math.Sin(float64(i)*1.7+float64(rank))
			s.Allocated = c.held + int64(wave*float64(c.peak-c.held))
			switch {
			case x < .2:
				s.Phase, s.Allocated = "load", int64(x*5*float64(c.held))
				if x < .1 { // the process has told nothing of itself yet
					s.Device, s.Allocated = "", 0
				}
			case x > .55 && x < .62:
				s.Phase, s.Allocated = "eval", c.held+(c.peak-c.held)/3
			case x > .75 && x < .78:
				s.Phase, s.Allocated = "save", c.held
			default:
				s.Step = i
				if loss := c.loss*math.Exp(-2*x) + .05*wave; c.loss > 0 && rank == 0 {
					s.Loss = &loss
				}
			}
			if c.fails && x > .9 {
				s.Allocated = c.held + int64((x-.9)*10*float64(c.allowed-c.held))
			}
			most = max(most, s.Allocated)
			s.Peak, s.Reserved, s.Used = most*min(s.Allocated, 1), min(most*21/20, c.allowed), min(most*21/20, c.allowed)+7<<26
			if c.fails && x > .95 {
				s.Retries = 2
			}
			line, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(append(lines, line...), '\n')
		}
	}
	folder := filepath.Join(dir, fmt.Sprintf("attempt-%d", a.N))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, strategy.SamplesFile), lines, 0o600); err != nil {
		t.Fatal(err)
	}
}

// rescued is the DeepSpeed run with samples of both attempts and both ranks.
func rescued(t *testing.T) (dir string, d ReportData) {
	t.Helper()
	dir = copied(t, "deepspeed")
	d, err := LoadReport(dir, "v9", nil)
	if err != nil {
		t.Fatal(err)
	}
	const gib = 1 << 30
	sampled(t, dir, d.Attempts[0], course{ranks: 2, steps: 600, held: 3 * gib, peak: 5 * gib, allowed: 6842909004, fails: true, loss: 9})
	sampled(t, dir, d.Attempts[1], course{ranks: 2, steps: 900, held: 3 * gib, peak: 5019397632, allowed: 6842909004, loss: 7})
	return dir, d
}

// An element is a tag of a page with its attributes of data.
type element map[string]string

var (
	tags       = regexp.MustCompile(`<[a-z]+( [^<>]*data-[^<>]*)>`)
	attributes = regexp.MustCompile(`([a-z-]+)="([^"]*)"`)
)

// elements are those of a page that have all of some attributes.
func elements(page string, with ...string) (all []element) {
	for _, tag := range tags.FindAllStringSubmatch(page, -1) {
		e := element{}
		for _, a := range attributes.FindAllStringSubmatch(tag[1], -1) {
			if strings.HasPrefix(a[1], "data-") {
				e[a[1]] = a[2]
			}
		}
		has := true
		for _, name := range with {
			has = has && e[name] != ""
		}
		if has {
			all = append(all, e)
		}
	}
	return all
}

func (e element) number(name string) int64 {
	n, err := strconv.ParseInt(e[name], 10, 64)
	if err != nil {
		return math.MinInt64
	}
	return n
}
