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

// A labelled log is one line of the corpus: an excerpt of a public training log
// with what a careful reader makes of it.
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
	Log                 string      `json:"log"`
}

// corpus reads the labelled logs, which are kept outside of the repository.
func corpus(t *testing.T) []labelled {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "shared", "corpus", "failures.jsonl"))
	if err != nil {
		t.Skip("the corpus of labelled logs is not here")
	}
	defer f.Close()
	var all []labelled
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var l labelled
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// near allows for a rounding of the label's last byte.
func near(got, want *int64) bool {
	if got == nil || want == nil {
		return got == want
	}
	d := *got - *want
	return d >= -1 && d <= 1
}

// A tally counts how the diagnoses of one cause compare with the labels.
type tally struct{ right, wrongly, missed int }

func (c tally) precision() float64 { return share(c.right, c.right+c.wrongly) }
func (c tally) recall() float64    { return share(c.right, c.right+c.missed) }
func (c tally) f1() float64        { return share(2*c.right, 2*c.right+c.wrongly+c.missed) }

// share is a/b, and 1 of nothing.
func share(a, b int) float64 {
	if b == 0 {
		return 1
	}
	return float64(a) / float64(b)
}

// TestCorpus asserts what the rules reach on real logs, a little below what they
// reach today, and prints the rest.
func TestCorpus(t *testing.T) {
	logs := corpus(t)
	causes := map[cause.Code]*tally{}
	for _, c := range cause.All() {
		causes[c.Code] = &tally{}
	}
	var phases struct{ labelled, wrong, unknown int }
	var figures struct{ labelled, wrong int }
	for _, l := range logs {
		d := Diagnose(EvidenceFromLog(cause.Scan("log", l.Log), l.ExitCode))
		if d.Cause == l.Cause {
			causes[l.Cause].right++
		} else {
			causes[d.Cause].wrongly++
			causes[l.Cause].missed++
			t.Logf("%s: cause %s, labelled %s: %q", l.ID, d.Cause, l.Cause, d.Error)
		}
		if d.Fatal != l.Fatal {
			t.Errorf("%s: fatal %v (%s), labelled %v", l.ID, d.Fatal, d.Cause, l.Fatal)
		}
		if l.Phase != cause.NoPhase {
			phases.labelled++
		}
		switch d.Phase {
		case l.Phase:
		case cause.NoPhase:
			phases.unknown++
			t.Logf("%s: phase unknown, labelled %s", l.ID, l.Phase)
		default:
			phases.wrong++
			t.Logf("%s: phase %s, labelled %s", l.ID, d.Phase, l.Phase)
		}
		if l.Fatal && l.Requested != nil {
			figures.labelled++
			if !sameFigures(t, l, d) {
				figures.wrong++
			}
		}
	}
	for _, c := range cause.All() {
		n := causes[c.Code]
		t.Logf("%-16s precision %.2f recall %.2f (right %d, wrongly %d, missed %d)", c.Code, n.precision(), n.recall(), n.right, n.wrongly, n.missed)
		if n.right+n.missed >= 4 && n.f1() < 0.9 {
			t.Errorf("%s: F1 %.2f, want 0.9", c.Code, n.f1())
		}
	}
	if n := causes[cause.CUDAOOM]; n.precision() < 0.99 || n.recall() < 0.97 {
		t.Errorf("cuda-oom: precision %.3f recall %.3f, want 0.99 and 0.97", n.precision(), n.recall())
	}
	t.Logf("phases: %d wrong of %d; %d unknown of %d labelled", phases.wrong, len(logs), phases.unknown, phases.labelled)
	// Two labels call a recomputation within backward the forward phase. It is
	// backward here: what is freed there is backward's.
	if 1-share(phases.wrong, len(logs)) < 0.97 || share(phases.unknown, phases.labelled) > 0.15 {
		t.Errorf("%d phases are wrong and %d unknown", phases.wrong, phases.unknown)
	}
	t.Logf("figures: %d wrong of %d", figures.wrong, figures.labelled)
	if 1-share(figures.wrong, figures.labelled) < 0.98 {
		t.Errorf("figures of %d logs are wrong", figures.wrong)
	}
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
