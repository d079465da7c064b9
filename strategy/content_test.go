package strategy

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The journals of earlier versions have each content under its name. What is read is written again byte by byte.
func TestFactsKeepTheirFormInJournals(t *testing.T) {
	for line, want := range map[string]Content{
		`"exit":{"code":137,"signal":9,"pid":7}`:                   &Exit{Code: 137, Signal: 9, PID: 7},
		`"driver_event":{"kind":"xid","xid":79,"device":"cuda:1"}`: &DriverEvent{Kind: "xid", XID: 79, Device: "cuda:1"},
		`"asking":{"for_seconds":0}`:                               &Asking{},
		`"memory":{"pid":7,"peak_bytes":5}`:                        &Measurement{PID: 7, Peak: 5},
		`"nodes":["n1","n2"]`:                                      Nodes{"n1", "n2"},
		`"gap":"no NVML on node 3"`:                                Gap("no NVML on node 3"),
		`"of_a_later_version":{}`:                                  nil,
	} {
		text := `{"time":"2026-01-02T03:04:05Z","rank":2,"source":"probe",` + line + `}`
		var f Fact
		if err := json.Unmarshal([]byte(text), &f); err != nil || f.Rank != 2 || f.Time.Year() != 2026 {
			t.Errorf("%s: %+v, %v", line, f, err)
		}
		if diff := cmp.Diff(want, f.Content); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
		written, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			text = strings.Replace(text, ","+line, "", 1)
		}
		if _, sparse := want.(*Measurement); !sparse && string(written) != text {
			t.Errorf("%s was written as %s", text, written)
		}
		(&Evidence{}).Add(f) // of any kind
	}
}

// Each kind of content can be read back, and replaces another where it says so.
func TestEachContentIsReadBack(t *testing.T) {
	for _, kind := range contents {
		content := kind.of
		switch content.(type) {
		case Nodes:
			content = Nodes{"n1"}
		case Gap:
			content = Gap("no NVML")
		default:
			content = reflect.New(reflect.TypeOf(kind.of).Elem()).Interface().(Content)
		}
		text, err := json.Marshal(Fact{Rank: 1, Content: content})
		if err != nil {
			t.Fatal(err)
		}
		var f Fact
		if err := json.Unmarshal(text, &f); err != nil || reflect.TypeOf(f.Content) != reflect.TypeOf(kind.of) {
			t.Errorf("%s: %v, %v", text, f.Content, err)
		}
		var e Evidence
		e.Add(f)
		e.Add(f)
		switch content.(type) {
		case *Sign, *ProcessReport, *Progress, *Measurement, *Snapshot:
			if len(e.Facts) != 1 {
				t.Errorf("%s: the later one did not replace the earlier one", kind.key)
			}
		default:
			if len(e.Facts) != 2 {
				t.Errorf("%s: %d facts of 2", kind.key, len(e.Facts))
			}
		}
	}
}
