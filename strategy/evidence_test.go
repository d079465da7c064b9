package strategy

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/strategy/cause"
)

// numberedFact is a finding of a rank's stderr.
func numberedFact(rank, seconds, seq int, text string) Fact {
	return at(rank, seconds, Fact{Source: "stderr", Content: &Finding{Code: cause.CUDAOOM, Rank: -1, Stream: "stderr", Seq: seq, Text: text}})
}

func texts(facts []Fact) []string {
	var all []string
	for _, f := range facts {
		if f.Finding() != nil {
			all = append(all, f.Finding().Text)
		}
	}
	return all
}

func TestNewStateReplacesAFinding(t *testing.T) {
	var ev Evidence
	ev.Add(numberedFact(0, 1, 1, "first"))
	ev.Add(numberedFact(0, 2, 2, "second"))
	ev.Add(numberedFact(1, 3, 1, "another rank's"))
	ev.Add(numberedFact(0, 9, 1, "first, gone on"))
	ev.Add(numberedFact(0, 4, 0, "not numbered"))
	ev.Add(numberedFact(0, 5, 0, "nor this"))
	want := []string{"first, gone on", "second", "another rank's", "not numbered", "nor this"}
	if diff := cmp.Diff(want, texts(ev.Facts)); diff != "" {
		t.Error(diff)
	}
	if f := ev.Facts[0]; !f.Time.Equal(t0.Add(time.Second)) || !f.Again.Equal(t0.Add(9*time.Second)) {
		t.Errorf("it was given at %s and again at %s", f.Time, f.Again)
	}
	if f := ev.Facts[1]; !f.Again.IsZero() {
		t.Errorf("the second was given again at %s", f.Again)
	}
}

// A journal may have each state of a finding: the last one counts, in the place and at the time
// of the first.
func TestJournalWithAllStatesOfAFinding(t *testing.T) {
	handled := numberedFact(0, 9, 1, "CUDA out of memory")
	handled.Finding().Weight = cause.WeightHandled
	kept := Evidence{Facts: []Fact{numberedFact(0, 1, 1, "CUDA out of memory"), at(0, 3, Fact{Source: "exit", Content: &Exit{Code: 1}}), handled}}
	var added Evidence
	for _, f := range kept.Facts {
		added.Add(f)
	}
	if len(added.Facts) != 2 {
		t.Errorf("%d facts, want 2", len(added.Facts))
	}
	if diff := cmp.Diff(Diagnose(kept), Diagnose(added)); diff != "" {
		t.Errorf("(-kept +added):\n%s", diff)
	}
	if d := Diagnose(added); d.Cause != cause.Unknown {
		t.Errorf("cause %s, want that of the exit: the finding was handled", d.Cause)
	}
}

func TestLastSignOfLifeIsKept(t *testing.T) {
	var ev Evidence
	sign := func(rank, seconds int) Fact {
		return at(rank, seconds, Fact{Source: "gpurun", Content: &Sign{Output: t0.Add(time.Duration(seconds) * time.Second)}})
	}
	ev.Add(sign(0, 1))
	ev.Add(sign(1, 2))
	ev.Add(sign(0, 5))
	if diff := cmp.Diff([]Fact{sign(0, 5), sign(1, 2)}, ev.Facts); diff != "" {
		t.Error(diff)
	}
}

func TestFoldOfFacts(t *testing.T) {
	var ev Evidence
	ev.Ranks = 2
	for _, f := range []Fact{
		{Content: &Progress{Steps: 7}}, {Rank: 1, Content: &Progress{Steps: 3}},
		{Content: &ObservedSetting{Fresh: true}}, {Content: &ObservedSetting{Nothing: true, Text: "nothing to do"}},
		{Content: &Stuck{PID: 4}}, {Content: &Stuck{PID: 5}}, {Content: &Exit{}},
	} {
		ev.Add(f)
	}
	if ev.Steps() != 7 || !ev.Fresh() || ev.Nothing() != "nothing to do" || ev.Stuck().PID != 5 || ev.EndedWell() {
		t.Errorf("%d steps, fresh %v, nothing %q, stuck %+v, ended well %v", ev.Steps(), ev.Fresh(), ev.Nothing(), ev.Stuck(), ev.EndedWell())
	}
	ev.Facts = append(ev.Facts, Fact{Rank: 1, Content: &Exit{}}) // not added by Add, like a journal's facts
	if !ev.EndedWell() {
		t.Error("both ranks ended with 0")
	}
	ev.Add(Fact{Rank: 1, Content: &Exit{Stopped: true}})
	if ev.EndedWell() {
		t.Error("one of them was stopped")
	}
}

// Evidence from a journal is equal to the evidence that was seen.
func TestEvidenceInAJournal(t *testing.T) {
	ev := Evidence{Started: t0, Ended: t0.Add(time.Minute), Ranks: 1, HangTimeout: Seconds(1500 * time.Millisecond)}
	for _, f := range says(0, 1, oomForward) {
		ev.Add(f)
	}
	ev.Add(at(0, 2, Fact{Content: &Progress{Steps: 2, Longest: Seconds(12345678901)}}))
	ev.Add(at(0, 3, Fact{Content: &Sign{Step: t0, Longest: Seconds(time.Second)}}))
	ev.Add(exits(0, 4, 1)[0])
	text, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	var got Evidence
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ev, got, cmpopts.IgnoreUnexported(Evidence{})); diff != "" {
		t.Errorf("(-seen +kept):\n%s", diff)
	}
	if diff := cmp.Diff(Diagnose(ev), Diagnose(got)); diff != "" {
		t.Errorf("(-seen +kept):\n%s", diff)
	}
}
