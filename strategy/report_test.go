package strategy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func say(rank int, s ProcessReport) Fact { return Fact{Rank: rank, Source: "probe", Content: &s} }

// A process's newer report replaces its older one, and outranks findings in the output, in any
// order of arrival.
func TestProcessReportOutranksOutput(t *testing.T) {
	ev := Evidence{Ranks: 1}
	ev.Add(say(0, ProcessReport{PID: 7, Settings: Plan{MicroBatchSize: "16"}}))
	ev.Add(Fact{Content: &ObservedSetting{Knob: MicroBatchSize, Value: "8"}})
	ev.Add(Fact{Content: &ObservedSetting{Knob: Precision, Value: "bf16"}})
	ev.Add(say(0, ProcessReport{PID: 7, Settings: Plan{MicroBatchSize: "4", Attention: "sdpa"}, Refused: map[Knob]string{ActivationCheckpointing: "the model is compiled"}}))
	if diff := cmp.Diff(Plan{MicroBatchSize: "4", Precision: "bf16", Attention: "sdpa"}, ev.Observed(Job{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[Knob]string{ActivationCheckpointing: "the model is compiled"}, ev.Refused()); diff != "" {
		t.Error(diff)
	}
	if n := len(ev.Facts); n != 3 {
		t.Errorf("%d facts are kept, want 3", n)
	}
}

// A change takes effect in every rank or in none: one that a rank lacks, or does not report, did
// not take effect.
func TestChangeMustTakeEffectInEveryRank(t *testing.T) {
	plan := Plan{ActivationCheckpointing: "full", MicroBatchSize: "4"}
	model := &Model{Class: "GPT"}
	turned := ProcessReport{Model: model, Settings: Plan{ActivationCheckpointing: "full"}, Applied: Changes{ActivationCheckpointing: {"none", "full"}}}
	with := func(s ProcessReport, pid, world int) ProcessReport { s.PID, s.World = pid, world; return s }
	for name, test := range map[string]struct {
		ranks int
		facts []Fact
		want  Value
	}{
		"both":              {2, []Fact{say(0, with(turned, 1, 2)), say(1, with(turned, 2, 2))}, "full"},
		"one has not":       {2, []Fact{say(0, with(turned, 1, 2)), say(1, ProcessReport{PID: 2, Model: model, Settings: Plan{ActivationCheckpointing: "none"}})}, "none"},
		"the first has not": {2, []Fact{say(1, with(turned, 1, 2)), say(0, ProcessReport{PID: 2, Model: model, Settings: Plan{ActivationCheckpointing: "none"}})}, "none"},
		"one is silent":     {2, []Fact{say(0, with(turned, 1, 2))}, "none"},
		"one ended in its first evaluation": {2, []Fact{say(0, with(turned, 1, 2)),
			{Rank: 1, Content: &Measurement{PID: 2, Failed: "evaluation"}}}, "full"},
		"ranks of its own":         {1, []Fact{say(0, with(turned, 1, 2)), say(0, with(turned, 2, 2))}, "full"},
		"one of its own is silent": {1, []Fact{say(0, with(turned, 1, 2))}, "none"},
		"its parent is no rank":    {1, []Fact{say(0, ProcessReport{PID: 9}), say(0, with(turned, 1, 2)), say(0, with(turned, 2, 2))}, "full"},
	} {
		ev := Evidence{Ranks: test.ranks, Plan: plan, Ended: time.Unix(1, 0)}
		for _, f := range test.facts {
			ev.Add(f)
		}
		if got := ev.Observed(Job{})[ActivationCheckpointing]; got != test.want {
			t.Errorf("%s: checkpointing is %s, want %s", name, got, test.want)
		}
		fresh := Evidence{Ranks: test.ranks, Plan: plan, Facts: ev.Facts, Ended: ev.Ended}
		if diff := cmp.Diff(ev.Observed(Job{}), fresh.Observed(Job{})); diff != "" {
			t.Errorf("%s: from the journal: %s", name, diff)
		}
	}
}

func TestWaiting(t *testing.T) {
	for name, test := range map[string]struct {
		ranks int
		said  []Fact
		all   bool
	}{
		"nobody":             {2, nil, false},
		"one of two":         {2, []Fact{say(0, ProcessReport{PID: 1, World: 2, Waiting: true}), say(1, ProcessReport{PID: 2, World: 2})}, false},
		"one silent":         {2, []Fact{say(0, ProcessReport{PID: 1, World: 2, Waiting: true})}, false},
		"both":               {2, []Fact{say(0, ProcessReport{PID: 1, World: 2, Waiting: true}), say(1, ProcessReport{PID: 2, World: 2, Waiting: true})}, true},
		"alone":              {1, []Fact{say(0, ProcessReport{PID: 1, Waiting: true})}, true},
		"one of its own two": {1, []Fact{say(0, ProcessReport{PID: 1, World: 2, Waiting: true})}, false},
		"both of its own":    {1, []Fact{say(0, ProcessReport{PID: 9}), say(0, ProcessReport{PID: 1, World: 2, Waiting: true}), say(0, ProcessReport{PID: 2, World: 2, Waiting: true})}, true},
	} {
		ev := Evidence{Ranks: test.ranks}
		for _, f := range test.said {
			ev.Add(f)
		}
		if _, all := ev.Waiting(); all != test.all {
			t.Errorf("%s: all wait is %v", name, all)
		}
	}
}
