package strategy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A score counts the right answers of one kind of joined logs.
type score struct{ right, all int }

func (s *score) add(right bool) {
	s.all++
	if right {
		s.right++
	}
}

func (s score) share() float64 { return share(s.right, s.all) }

// fatalLogs are the labelled failures whose own log shows the labelled cause.
func fatalLogs(logs []labelled) []labelled {
	return slices.DeleteFunc(slices.Clone(logs), func(l labelled) bool {
		d := Diagnose(EvidenceFromLog(cause.Scan("log", l.Log), l.ExitCode))
		return !l.Fatal || d.Cause != l.Cause
	})
}

// closed returns the log with a line end.
func closed(log string) string {
	if strings.HasSuffix(log, "\n") {
		return log
	}
	return log + "\n"
}

func diagnoseText(log string, exitCode *int) Diagnosis {
	return Diagnose(EvidenceFromLog(cause.Scan("log", log), exitCode))
}

// joined returns a log that holds two starts.
func joined(first, second string) string { return closed(first) + second }

// exitCodes are the codes with which a job can end by each cause: a launcher's or an exception's,
// and those of the signals that the cause brings about.
var exitCodes = map[cause.Code][]int{
	cause.CUDAOOM: {1}, cause.GPUOccupied: {1}, cause.HostOOM: {1, 137, -9}, cause.SharedMemory: {1, 135}, cause.DiskFull: {1},
	cause.KernelResources: {1}, cause.IllegalAccess: {1, 134, -6}, cause.DeviceAssert: {1, 134, -6}, cause.NCCLTimeout: {1, 134, -6},
	cause.NCCLError: {1, 134}, cause.GPUHardware: {1, 134}, cause.Driver: {1}, cause.PortInUse: {1}, cause.Preempted: {1, 143, -15, 130},
	cause.Segfault: {1, 139, -11, 135}, cause.Diverged: {1}, cause.UserError: {1, 2}, cause.Unknown: {1, 134, 137},
}

// A joinedReport has the scores of logs that hold several starts, and of single logs with each
// exit code and without one.
type joinedReport struct{ visible, bare, good, failed, coded, uncoded score }

// measureJoined joins every share-th pair of failures of different causes, and each failure with
// good logs.
func measureJoined(t *testing.T, logs []labelled, share int) (r joinedReport) {
	of, n := fatalLogs(logs), 0
	say := func(right bool, to *score, what string, d Diagnosis, a, b string) {
		if to.add(right); !right {
			t.Logf("%s: %s, then %s: %s", what, a, b, d.Cause)
		}
	}
	for i, a := range of {
		for j, b := range of {
			if n++; a.Cause == b.Cause || (i*31+j)%share != 0 {
				continue
			}
			d := diagnoseText(joined(a.Log, beginnings[n%len(beginnings)]+b.Log), b.ExitCode)
			say(d.Cause == b.Cause, &r.visible, "visible", d, a.ID, b.ID)
			d = diagnoseText(joined(a.Log, b.Log), b.ExitCode)
			say(d.Cause == b.Cause, &r.bare, "bare", d, a.ID, b.ID)
		}
		for j, g := range goodLogs {
			if (i+j)%share != 0 {
				continue
			}
			d := diagnoseText(joined(a.Log, g.log), nil)
			say(!d.Fatal, &r.good, "good", d, a.ID, g.name)
			d = diagnoseText(joined(g.log, a.Log), a.ExitCode)
			say(d.Cause == a.Cause, &r.failed, "failed", d, g.name, a.ID)
		}
		for _, code := range exitCodes[a.Cause] {
			d := diagnoseText(a.Log, &code)
			say(d.Cause == a.Cause, &r.coded, "code", d, a.ID, string(a.Cause))
		}
		d := diagnoseText(a.Log, nil)
		say(d.Cause == a.Cause, &r.uncoded, "no code", d, a.ID, string(a.Cause))
	}
	return r
}

// hold prints the scores and checks the lower limits.
func (r joinedReport) hold(t *testing.T, bare, coded, uncoded float64) {
	for _, row := range []struct {
		name  string
		of    score
		least float64
	}{
		{"a failure, then one with a visible beginning", r.visible, 0.98}, {"a failure, then one without", r.bare, bare},
		{"a failure, then a good run", r.good, 0.98}, {"a good run, then a failure", r.failed, 0.98},
		{"a failure with each exit code of its cause", r.coded, coded}, {"a failure without an exit code", r.uncoded, uncoded},
	} {
		t.Logf("%-45s %.3f of %d", row.name, row.of.share(), row.of.all)
		if row.of.share() < row.least {
			t.Errorf("%s: %.3f are right, want %.3f", row.name, row.of.share(), row.least)
		}
	}
}

// everyPair is the share of the pairs that the tests join: all of them take a minute, and make
// corpus-report asks for them.
func everyPair(share int) int {
	if os.Getenv("CORPUS_REPORT") != "" {
		return 1
	}
	return share
}

func TestCorpusStartsProvoked(t *testing.T) {
	measureJoined(t, readCorpus(t, filepath.Join("testdata", "corpus", "*.jsonl")), everyPair(41)).hold(t, 0.85, 0.9, 0.9)
}

func TestCorpusStartsPublic(t *testing.T) {
	logs := readCorpus(t, filepath.Join("..", "..", "shared", "corpus", "failures.jsonl"))
	if len(logs) == 0 {
		t.Skip("the corpus of published logs is not here")
	}
	measureJoined(t, logs, everyPair(11)).hold(t, 0.85, 0.9, 0.9)
}
