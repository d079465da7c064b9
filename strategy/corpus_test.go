package strategy

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
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

// scan returns the sightings of a log.
func scan(log string) []cause.Sighting {
	var all []cause.Sighting
	s := cause.NewScanner("log")
	s.OnSighting = func(at cause.Sighting) { all = append(all, at) }
	if _, err := s.Write([]byte(log)); err != nil {
		panic(err)
	}
	s.Close()
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

func TestCorpus(t *testing.T) {
	logs := corpus(t)
	var tp, fp, fn = map[cause.Code]int{}, map[cause.Code]int{}, map[cause.Code]int{}
	phaseWrong, phaseUnknown, phaseLabelled, figures, figuresWrong, falseFatal := 0, 0, 0, 0, 0, 0
	for _, l := range logs {
		d := Diagnose(EvidenceFromLog(scan(l.Log), l.ExitCode))
		if d.Cause == l.Cause {
			tp[l.Cause]++
		} else {
			fp[d.Cause]++
			fn[l.Cause]++
			t.Logf("%s: cause %s, want %s (%q)", l.ID, d.Cause, l.Cause, d.Error)
		}
		if d.Fatal != l.Fatal {
			t.Logf("%s: fatal %v, want %v (%s)", l.ID, d.Fatal, l.Fatal, d.Cause)
			if d.Fatal && (d.Cause == cause.CUDAOOM || d.Cause == cause.HostOOM) {
				falseFatal++
			}
		}
		if l.Phase != cause.NoPhase {
			phaseLabelled++
		}
		if d.Phase != l.Phase {
			if d.Phase != cause.NoPhase {
				phaseWrong++
			} else {
				phaseUnknown++
			}
			t.Logf("%s: phase %s, want %s", l.ID, d.Phase, l.Phase)
		}
		if l.Requested != nil && l.Fatal {
			figures++
			pairs := []struct {
				name      string
				got, want *int64
			}{{"requested", d.Requested, l.Requested}, {"total", d.Capacity, l.Total}, {"free", d.Free, l.Free},
				{"allocated", d.Allocated, l.Allocated}, {"reserved", d.ReservedUnallocated, l.ReservedUnallocated},
				{"other", d.OtherProcess, l.OtherProcess}}
			ok := true
			for _, p := range pairs {
				if !near(p.got, p.want) {
					ok = false
					t.Logf("%s: %s differs: %v, want %v", l.ID, p.name, deref(p.got), deref(p.want))
				}
			}
			if !ok {
				figuresWrong++
			}
		}
	}
	for _, c := range cause.All() {
		code := c.Code
		if tp[code]+fn[code]+fp[code] == 0 {
			continue
		}
		t.Logf("%-16s tp %d fp %d fn %d", code, tp[code], fp[code], fn[code])
	}
	t.Logf("phase wrong %d of %d, unknown %d of %d; figures wrong %d of %d; false fatal %d", phaseWrong, len(logs), phaseUnknown, phaseLabelled, figuresWrong, figures, falseFatal)
}

func deref(p *int64) any {
	if p == nil {
		return nil
	}
	return *p
}
