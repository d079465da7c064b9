package notify

import (
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/jstemmer/go-junit-report/v2/junit"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

var start = time.Date(2026, 5, 4, 1, 30, 0, 0, time.UTC)

// attempt are the events of attempt n, which took a minute and ended with a traceback.
func attempt(n int, traceback []string, d strategy.Diagnosis, next strategy.Decision) []launcher.Event {
	began := start.Add(time.Duration(n) * time.Hour)
	e := strategy.Evidence{Attempt: n, Started: began, Ended: began.Add(time.Minute)}
	if d.Fatal {
		last := traceback[len(traceback)-1]
		e.Facts = []strategy.Fact{{Rank: 0, Source: "stderr", Content: &strategy.Finding{Code: d.Cause, Text: last, Line: 7, Traceback: traceback}}}
		d.Because = []int{0}
	}
	return []launcher.Event{launcher.Started{N: n, At: began}, launcher.Ended{Evidence: e}, launcher.Decided{Diagnosis: d, Decision: next}}
}

var (
	frames  = []string{"Traceback (most recent call last):", `  File "/ci/repo/src/train.py", line 10, in <module>`, `  File "/ci/repo/.venv/lib/python3.12/site-packages/torch/_tensor.py", line 522, in backward`, "torch.OutOfMemoryError: CUDA out of memory."}
	oom     = strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Phase: cause.Backward, ExitCode: 1}
	lost    = strategy.Diagnosis{Cause: cause.GPUHardware, Fatal: true}
	wrong   = strategy.Diagnosis{Cause: cause.UserError, Fatal: true}
	well    = strategy.Diagnosis{Cause: cause.None, Rank: -1}
	smaller = strategy.Decision{Relaunch: true, Reason: "attempt 0: CUDA out of memory → micro batch 8→4"}
)

func stopped(o strategy.Outcome, code int, reason string) strategy.Decision {
	return strategy.Decision{Outcome: o, Code: code, Reason: reason}
}

// finished is how a run ends that decided so.
func finished(d strategy.Decision) launcher.Event {
	return launcher.Finished{Verdict: launcher.Verdict{Outcome: d.Outcome, Code: d.Code, Reason: d.Reason, Run: "night"}}
}

// The report is that of the gpurun that has the run directory.
func TestAReportOfAnothersRunIsLeftAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "junit.xml")
	if err := os.WriteFile(file, []byte("the other's"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{errors.New("no such script"), fmt.Errorf("in use: %w", journal.ErrLocked)} {
		p, wrong := OpenPipeline(PipelineSetup{JUnit: file, Held: true, Stderr: t.Output()})
		if wrong != nil {
			t.Fatal(wrong)
		}
		p.End(err)
		if text, _ := os.ReadFile(file); string(text) != "the other's" {
			t.Errorf("%v: %s", err, text)
		}
	}
	p, err := OpenPipeline(PipelineSetup{JUnit: file, Held: true, Stderr: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	p.Events(func(launcher.Event) {})(launcher.Began{Run: "night"}) // the other has ended meanwhile
	p.End(nil)
	if text, _ := os.ReadFile(file); !strings.Contains(string(text), "night") {
		t.Errorf("%s", text)
	}
}

// over is a run of events, whose last decision is its verdict.
func over(parts ...[]launcher.Event) []launcher.Event {
	events := []launcher.Event{launcher.Began{Run: "night", At: start}}
	for _, p := range parts {
		events = append(events, p...)
	}
	return append(events, finished(events[len(events)-1].(launcher.Decided).Decision))
}

// The case of an attempt has the steps that were done again in place, also if it failed later.
func TestRepeatsInPlaceAreReported(t *testing.T) {
	events := over(attempt(0, frames, oom, smaller), attempt(1, nil, well, stopped(strategy.Trained, 0, "attempt 1: trained")))
	again := launcher.InPlace{InPlace: strategy.InPlace{Remedy: strategy.RemedyCheckpointing, Phase: "forward", Times: 1}}
	events = slices.Insert(events, 2, launcher.Event(again))
	suites := reportOf(t, "gpt", events, nil)
	if text := suites.Suites[0].Testcases[0].Skipped.Data; !strings.Contains(text, "1 step repeated in place with activation checkpointing") {
		t.Errorf("%q", text)
	}
}

// reportOf is the report of a run, as a reader of such reports reads it.
func reportOf(t *testing.T, job string, events []launcher.Event, err error) junit.Testsuites {
	t.Helper()
	path := filepath.Join(t.TempDir(), "junit.xml")
	p, bad := OpenPipeline(PipelineSetup{JUnit: path, Job: job, Stderr: os.Stderr})
	if bad != nil {
		t.Fatal(bad)
	}
	show := p.Events(func(launcher.Event) {})
	for i, e := range events {
		if i == len(events)-1 { // a run that is done: the rest was an earlier gpurun's
			p.Recall(events[:i])
			show(e)
		}
	}
	p.End(err)
	return readPipeline(t, path)
}

func readPipeline(t *testing.T, path string) (suites junit.Testsuites) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = xml.Unmarshal(text, &suites)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(suites.Suites) != 1 {
		t.Fatalf("%d suites", len(suites.Suites))
	}
	return suites
}

// brief says how the cases of a report ended: "attempt 0 skipped, run passed".
func brief(s junit.Testsuites) string {
	var all []string
	counted := junit.Testsuite{}
	for _, c := range s.Suites[0].Testcases {
		word := "passed"
		counted.Tests++
		switch {
		case c.Failure != nil:
			counted.Failures++
			word = "failed by " + c.Failure.Type
		case c.Error != nil:
			counted.Errors++
			word = "broken by " + c.Error.Type
		case c.Skipped != nil:
			counted.Skipped++
			word = "skipped"
		}
		all = append(all, c.Name+" "+word)
	}
	if got := s.Suites[0]; got.Tests != counted.Tests || got.Failures != counted.Failures || got.Errors != counted.Errors || got.Skipped != counted.Skipped ||
		s.Tests != counted.Tests || s.Failures != counted.Failures || s.Errors != counted.Errors {
		return fmt.Sprintf("counted wrongly: %+v", got)
	}
	return strings.Join(all, ", ")
}

// A report has a case for each attempt and one for the run. An attempt that was rescued
// makes nothing red; the cause of what was not is the failure's type.
func TestReport(t *testing.T) {
	trained := stopped(strategy.Trained, 0, "attempt 1: trained")
	exhausted := stopped(strategy.Exhausted, 12, "attempt 1: CUDA out of memory; every remedy was tried")
	failed := stopped(strategy.Failed, 1, "attempt 0: ValueError; no change of its settings can fix that")
	retry := stopped(strategy.Retry, 75, "attempt 0: the GPU failed")
	cut := stopped(strategy.Retry, 75, "attempt 0: stopped after the notice deadline")
	late := smaller
	late.Late = "not enough time before the deadline: 1m0s left"
	interrupted := stopped(strategy.Stopped, 143, "attempt 0: stopped by SIGTERM")
	for name, test := range map[string]struct {
		events []launcher.Event
		err    error
		want   string
	}{
		"trained":    {over(attempt(0, nil, well, stopped(strategy.Trained, 0, "attempt 0: trained"))), nil, "attempt 0 passed, run passed"},
		"rescued":    {over(attempt(0, frames, oom, smaller), attempt(1, nil, well, trained)), nil, "attempt 0 skipped, attempt 1 passed, run passed"},
		"exhausted":  {over(attempt(0, frames, oom, smaller), attempt(1, frames, oom, exhausted)), nil, "attempt 0 skipped, attempt 1 failed by cuda-oom, run failed by cuda-oom"},
		"failed":     {over(attempt(0, frames, wrong, failed)), nil, "attempt 0 failed by user-error, run failed by user-error"},
		"did naught": {over(attempt(0, nil, well, failed)), nil, "attempt 0 failed by failed, run failed by failed"},
		"GPU lost":   {over(attempt(0, frames, lost, retry)), nil, "attempt 0 broken by gpu-hardware, run broken by retry"},
		"no time":    {over(attempt(0, nil, well, cut)), nil, "attempt 0 skipped, run broken by retry"},
		"postponed":  {append(over(attempt(0, frames, oom, late)), finished(strategy.Postponed(late))), nil, "attempt 0 skipped, run broken by retry"},
		"stopped":    {over(attempt(0, nil, well, interrupted)), nil, "attempt 0 skipped, run broken by stopped"},
		"no verdict": {nil, nil, "run broken by unfinished"},
		"not begun":  {nil, errext.WithCode(errors.New("no GPU is usable"), 75), "run broken by exit code 75"},
		"bad usage":  {nil, errors.New("the run directory belongs to another job"), "run broken by exit code 2"},
		"unwritten": {over(attempt(0, nil, well, stopped(strategy.Trained, 0, "attempt 0: trained"))), errext.WithCode(errors.New("no space left"), 74),
			"attempt 0 passed, run broken by exit code 74"},
		"a later start": {over(attempt(0, frames, lost, retry), attempt(1, nil, well, trained)), nil, "attempt 0 skipped, attempt 1 passed, run passed"},
		"gone on with": {append([]launcher.Event{launcher.Began{Run: "night", At: start}, launcher.Started{N: 0}}, over(attempt(1, nil, well, trained))...), nil,
			"attempt 0 skipped, attempt 1 passed, run passed"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := brief(reportOf(t, "gpt", test.events, test.err)); got != test.want {
				t.Errorf("%s\nwant %s", got, test.want)
			}
		})
	}
	suite := reportOf(t, "gpt", over(attempt(0, frames, oom, smaller), attempt(1, nil, well, trained)), nil).Suites[0]
	host, _ := os.Hostname()
	if suite.Name != "gpt" || suite.Hostname != host || suite.Timestamp != "2026-05-04T01:30:00" || suite.Time != "120.000" {
		t.Errorf("suite %q of host %q at %q, which took %q", suite.Name, suite.Hostname, suite.Timestamp, suite.Time)
	}
	first := suite.Testcases[0]
	if first.Time != "60.000" || first.Skipped.Message != smaller.Reason || first.Classname != "gpurun.gpt" {
		t.Errorf("attempt 0: %+v", first)
	}
	if want := strings.Join(append([]string{smaller.Reason, "because rank 0, stderr, line 7: " + frames[3]}, frames...), "\n"); first.Skipped.Data != want {
		t.Error(cmp.Diff(want, first.Skipped.Data))
	}
}

// Whatever a job writes, the report is XML without a secret, and not long.
func TestReportOfHostileText(t *testing.T) {
	evil := "\x00\x1b[31m\xff\ufffe]]></failure>&lt;<b> hf_abcdefghijklmnopqrstuvwxyzABCDEFGH" + strings.Repeat("x", 1<<20)
	lines := []string{evil, "", "  ", evil}
	for range 200 {
		lines = append(lines, evil)
	}
	d := wrong
	d.Error = evil
	events := over(attempt(0, lines, d, stopped(strategy.Failed, 1, evil)))
	suites := reportOf(t, evil, events, nil)
	if got := brief(suites); got != "attempt 0 failed by user-error, run failed by user-error" {
		t.Error(got)
	}
	for _, c := range suites.Suites[0].Testcases {
		text := c.Failure.Message + c.Failure.Data + c.Classname
		if len(text) > 200<<10 || strings.Contains(text, "hf_abc") || !utf8.ValidString(text) {
			t.Errorf("%s: %d bytes, UTF-8 %t, %.200q", c.Name, len(text), utf8.ValidString(text), text)
		}
		if at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 {
			t.Errorf("%s: %.20q at %d", c.Name, text[at:], at)
		}
	}
	long := []launcher.Event{launcher.Began{At: start}}
	for n := range mostCases + 50 {
		long = append(long, attempt(n, frames, oom, smaller)...)
	}
	if got := reportOf(t, "gpt", long, nil).Suites[0]; got.Tests != mostCases+1 || got.Testcases[0].Name != "attempt 50" {
		t.Errorf("%d cases, the first %q", got.Tests, got.Testcases[0].Name)
	}
}

// A report that cannot be written is an error before anything is started, and one that lies
// there is of this run from the beginning on.
func TestReportIsOfThisRunFromTheBeginning(t *testing.T) {
	dir := t.TempDir()
	elsewhere := filepath.Join(dir, "elsewhere")
	if err := errors.Join(os.Symlink(elsewhere, filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "folder"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"missing/junit.xml", "folder", "link", "/dev/null"} {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, name)
		}
		if _, err := OpenPipeline(PipelineSetup{JUnit: path}); errext.Code(err, 0) != strategy.CodeUsage || !strings.Contains(err.Error(), "--junit "+path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(elsewhere); err == nil {
		t.Error("a link was followed")
	}
	path := filepath.Join(dir, "junit.xml")
	if err := os.WriteFile(path, []byte("of the night before"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := OpenPipeline(PipelineSetup{JUnit: path, Job: "gpt", Stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	if got := brief(readPipeline(t, path)); got != "run broken by unfinished" {
		t.Error(got)
	}
	show := p.Events(func(launcher.Event) {})
	for _, e := range attempt(0, frames, oom, smaller) {
		show(e)
	}
	if got := brief(readPipeline(t, path)); got != "attempt 0 skipped, run broken by unfinished" {
		t.Error("killed now, it says", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != reportMode {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	var words strings.Builder
	p.setup.Stderr = &words
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	if os.Geteuid() != 0 { // whom no mode keeps out
		if p.End(nil); !strings.HasPrefix(words.String(), "gpurun: warning: --junit: ") {
			t.Errorf("%q", words.String())
		}
	}
}

// What is secret by the job's own words is so in a pipeline, too.
func TestSecretsOfTheJob(t *testing.T) {
	dir := t.TempDir()
	p, err := OpenPipeline(PipelineSetup{JUnit: filepath.Join(dir, "junit.xml"), Job: "gpt", Stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	p.Mask(mask.New([]string{"train.py", "--api-token", "correct-horse-battery"}, nil))
	show := p.Events(func(launcher.Event) {})
	for _, e := range over(attempt(0, []string{"ValueError: correct-horse-battery"}, wrong, stopped(strategy.Failed, 1, "it is correct-horse-battery"))) {
		show(e)
	}
	p.End(nil)
	report, _ := os.ReadFile(filepath.Join(dir, "junit.xml"))
	if text := string(report); strings.Contains(text, "horse") || !strings.Contains(text, "***") {
		t.Error(text)
	}
}

// A disk that hangs does not keep gpurun from ending.
func TestHangingWriteIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		defer close(back)
		if err := system.InTime(func() error { <-back; return nil }); err == nil || !strings.Contains(err.Error(), "longer than 15s") {
			t.Error(err)
		}
	})
	if err := system.InTime(func() error { return os.ErrNotExist }); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
