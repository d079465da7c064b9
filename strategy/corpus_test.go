package strategy

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A labelled log is one line of a corpus: the output of a failed job, with the known facts about
// it.
type labelled struct {
	ID                  string      `json:"id"`
	Cause               cause.Code  `json:"cause"`
	Fatal               bool        `json:"fatal"`
	Phase               cause.Phase `json:"phase"`
	ExitCode            *int        `json:"exit_code"`
	Requested           *int64      `json:"requested_bytes"`
	Total               *int64      `json:"total_bytes"`
	Free                *int64      `json:"free_bytes"`
	Allocated           *int64      `json:"allocated_bytes"`
	ReservedUnallocated *int64      `json:"reserved_unallocated_bytes"`
	OtherProcess        *int64      `json:"other_process_bytes"`
	// Command is the command that produced the log, if it was provoked.
	Command string `json:"command"`
	Log     string `json:"log"`
}

// readCorpus reads the labelled logs of files, one JSON object per line.
func readCorpus(t *testing.T, pattern string) []labelled {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var all []labelled
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			var l labelled
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all = append(all, l)
		}
		if err := lines.Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		f.Close()
	}
	return all
}

// near allows for rounding in the label's last digit.
func near(got, want *int64) bool {
	if got == nil || want == nil {
		return got == want
	}
	d := *got - *want
	return d >= -1 && d <= 1
}

// A tally counts how the diagnoses of one cause compare with the labels.
type tally struct {
	right, wrongly, missed int
	// phases of the logs that have this cause by their label.
	phaseRight, phaseWrong, phaseUnknown int
}

func (c tally) precision() float64 { return share(c.right, c.right+c.wrongly) }
func (c tally) recall() float64    { return share(c.right, c.right+c.missed) }
func (c tally) f1() float64        { return share(2*c.right, 2*c.right+c.wrongly+c.missed) }

// share is a/b, and 1 for b = 0.
func share(a, b int) float64 {
	if b == 0 {
		return 1
	}
	return float64(a) / float64(b)
}

// A report compares the diagnoses of a corpus with its labels.
type report struct {
	causes  map[cause.Code]*tally
	fatal   int // logs whose Fatal is wrong
	phases  struct{ labelled, wrong, unknown int }
	figures struct{ labelled, wrong int }
	logs    int
}

func measure(t *testing.T, logs []labelled) report {
	r := report{causes: map[cause.Code]*tally{}, logs: len(logs)}
	for _, c := range cause.All() {
		r.causes[c.Code] = &tally{}
	}
	for _, l := range logs {
		d := Diagnose(EvidenceFromLog(cause.Scan("log", l.Log), l.ExitCode))
		if d.Cause == l.Cause {
			r.causes[l.Cause].right++
		} else {
			r.causes[d.Cause].wrongly++
			r.causes[l.Cause].missed++
			t.Logf("%s: cause %s, labelled %s: %q", l.ID, d.Cause, l.Cause, d.Error)
		}
		if d.Fatal != l.Fatal {
			r.fatal++
			t.Logf("%s: fatal %v (%s), labelled %v", l.ID, d.Fatal, d.Cause, l.Fatal)
		}
		r.phase(t, l, d)
		if l.Fatal && l.Requested != nil {
			r.figures.labelled++
			if !sameFigures(t, l, d) {
				r.figures.wrong++
			}
		}
	}
	return r
}

// phase counts a phase as right, unknown or wrong. If the label has none, any phase is wrong.
func (r *report) phase(t *testing.T, l labelled, d Diagnosis) {
	of := r.causes[l.Cause]
	if l.Phase != cause.NoPhase {
		r.phases.labelled++
	}
	switch d.Phase {
	case l.Phase:
		of.phaseRight++
	case cause.NoPhase:
		of.phaseUnknown++
		r.phases.unknown++
		t.Logf("%s: phase unknown, labelled %s", l.ID, l.Phase)
	default:
		of.phaseWrong++
		r.phases.wrong++
		t.Logf("%s: phase %s, labelled %s", l.ID, d.Phase, l.Phase)
	}
}

// print is the table of make corpus-report.
func (r *report) print(t *testing.T) {
	t.Logf("%-16s %9s %6s %5s  %s", "cause", "precision", "recall", "logs", "phase right/unknown/wrong")
	for _, c := range cause.All() {
		n := r.causes[c.Code]
		if n.right+n.wrongly+n.missed == 0 {
			continue
		}
		t.Logf("%-16s %9.2f %6.2f %5d  %d/%d/%d", c.Code, n.precision(), n.recall(), n.right+n.missed, n.phaseRight, n.phaseUnknown, n.phaseWrong)
	}
	t.Logf("phase right or unknown in %.1f %% of %d logs; unknown in %d of %d that have one", 100*(1-share(r.phases.wrong, r.logs)), r.logs, r.phases.unknown, r.phases.labelled)
	t.Logf("figures exact in %.1f %% of %d logs; fatal wrong in %d", 100*(1-share(r.figures.wrong, r.figures.labelled)), r.figures.labelled, r.fatal)
}

// hold checks the lower limits.
func (r *report) hold(t *testing.T) {
	for _, c := range cause.All() {
		if n := r.causes[c.Code]; n.right+n.missed >= 4 && n.f1() < 0.9 {
			t.Errorf("%s: F1 %.2f, want 0.9", c.Code, n.f1())
		}
	}
	if n := r.causes[cause.CUDAOOM]; n.precision() < 0.99 || n.recall() < 0.97 {
		t.Errorf("cuda-oom: precision %.3f recall %.3f, want 0.99 and 0.97", n.precision(), n.recall())
	}
	if r.fatal > 0 {
		t.Errorf("fatal is wrong in %d logs", r.fatal)
	}
	if 1-share(r.phases.wrong, r.logs) < 0.98 || share(r.phases.unknown, r.phases.labelled) > 0.15 {
		t.Errorf("%d phases are wrong and %d unknown", r.phases.wrong, r.phases.unknown)
	}
	if 1-share(r.figures.wrong, r.figures.labelled) < 0.98 {
		t.Errorf("figures of %d logs are wrong", r.figures.wrong)
	}
}

// TestCorpusProvoked covers failures that testdata/corpus/make.py provoked with real software.
func TestCorpusProvoked(t *testing.T) {
	logs := readCorpus(t, filepath.Join("testdata", "corpus", "*.jsonl"))
	if len(logs) < 100 {
		t.Fatalf("%d labelled logs", len(logs))
	}
	r := measure(t, logs)
	r.print(t)
	r.hold(t)
	missed := 0
	for _, n := range r.causes {
		missed += n.missed
	}
	if share(missed, r.logs) > 0.02 || share(r.phases.unknown, r.phases.labelled) > 0.05 {
		t.Errorf("%d causes of %d are wrong, %d phases are unknown", missed, r.logs, r.phases.unknown)
	}
}

// TestCorpusPublic covers published logs, which are kept outside the repository. Two of its
// labels count a recomputation during backward as the forward phase, others of the same kind as
// backward. Here it is backward, because memory that is freed then belongs to backward.
func TestCorpusPublic(t *testing.T) {
	logs := readCorpus(t, filepath.Join("..", "..", "shared", "corpus", "failures.jsonl"))
	if len(logs) == 0 {
		t.Skip("the corpus of published logs is not here")
	}
	r := measure(t, logs)
	r.print(t)
	r.hold(t)
}

// sameFigures compares the figures of the first message with the labels.
func sameFigures(t *testing.T, l labelled, d Diagnosis) bool {
	t.Helper()
	same := true
	for _, f := range []struct {
		name      string
		got, want *int64
	}{
		{"requested", d.Requested, l.Requested}, {"capacity", d.Capacity, l.Total}, {"free", d.Free, l.Free}, {"allocated", d.Allocated, l.Allocated},
		{"reserved unallocated", d.ReservedUnallocated, l.ReservedUnallocated}, {"other process", d.OtherProcess, l.OtherProcess},
	} {
		if !near(f.got, f.want) {
			same = false
			t.Logf("%s: %s is %s, labelled %s", l.ID, f.name, bytesOf(f.got), bytesOf(f.want))
		}
	}
	return same
}

func bytesOf(p *int64) string {
	if p == nil {
		return "not known"
	}
	return strconv.FormatInt(*p, 10)
}
