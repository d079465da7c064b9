package strategy

import (
	"encoding/json"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// trainedWith is an attempt that made steps, with its peak and the time of a step.
func trainedWith(n int, plan Plan, peak int64, seconds float64) Attempt {
	a := ended(n, plan, Diagnosis{})
	micro, _ := plan.Number(MicroBatchSize)
	m := ranOutInForward(micro, 200<<30)
	m.Failed, m.Allocated, m.Requested, m.Allowed = "", 0, 0, 0
	m.Peak, m.Steps, m.StepSeconds = peak, 20, seconds
	m.Second.OptimizerPeak = peak
	a.Measured = []memory.Measurement{m}
	return a
}

// A price has the measured figures if there are any, and marks the others.
func TestPrices(t *testing.T) {
	full := sixteen.With(Plan{ActivationCheckpointing: "full"})
	halved := sixteen.With(Plan{MicroBatchSize: "8", GradientAccumulationSteps: "2"})
	counted := oom(cause.Forward)
	counted.Allocated, counted.Requested = bytes(20*gib), bytes(2*gib)
	unheard := ended(0, sixteen, counted)
	host := ended(0, sixteen, Diagnosis{Cause: cause.HostOOM, Fatal: true})
	for name, test := range map[string]struct {
		history []Attempt
		want    string // the last price
	}{
		"both measured":                    {[]Attempt{trainedWith(0, sixteen, 22*gib, 1), trainedWith(1, full, 9*gib, 1.2)}, "checkpointing none→full saved 13.0 GiB (22.0→9.0) for 1.2 times the step time"},
		"up again":                         {[]Attempt{trainedWith(0, full, 9*gib, 1.2), trainedWith(1, sixteen, 22*gib, 1)}, "checkpointing full→none took 13.0 GiB more (9.0→22.0) for 0.83 times the step time"},
		"another global batch":             {[]Attempt{trainedWith(0, sixteen, 22*gib, 1), trainedWith(1, sixteen.With(Plan{MicroBatchSize: "8"}), 12*gib, .5)}, "micro batch 16→8 saved 10.0 GiB (22.0→12.0) for the same step time"},
		"nothing was heard before":         {[]Attempt{unheard, trainedWith(1, halved, 12*gib, 1)}, "micro batch 16→8, accumulation 1→2 saved at least 10.0 GiB (22.0→12.0)"},
		"nothing was heard after":          {[]Attempt{unheard, ended(1, halved, Diagnosis{})}, ""},
		"it ran out":                       {[]Attempt{failedAt(0, sixteen, 24*gib), trainedWith(1, full, 9*gib, 1.2)}, "checkpointing none→full saved at least 15.0 GiB (24.0→9.0)"},
		"it ran out before it needed more": {[]Attempt{failedAt(0, sixteen, 8*gib), trainedWith(1, full, 9*gib, 1.2)}, ""},
		"it ran out twice":                 {[]Attempt{failedAt(0, sixteen, 9*gib), failedAt(1, full, 5*gib)}, ""},
		"no difference":                    {[]Attempt{trainedWith(0, sixteen, 9*gib, 1), trainedWith(1, halved, 9*gib-50<<20, 1.02)}, "micro batch 16→8, accumulation 1→2 for the same step time"},
		"the same plan":                    {[]Attempt{failedAt(0, sixteen, 24*gib), trainedWith(1, sixteen, 30*gib, 1)}, ""},
		"the host's memory":                {[]Attempt{host, trainedWith(1, full, 9*gib, 1)}, ""},
		"the allocator alone":              {[]Attempt{unheard, trainedWith(1, sixteen.With(Plan{Allocator: "expandable"}), 23*gib, 1)}, ""},
		"one attempt":                      {[]Attempt{trainedWith(0, full, 9*gib, 1)}, ""},
		"one that did not start is none": {[]Attempt{trainedWith(0, sixteen, 22*gib, 1), {N: 1, Plan: full, Unstarted: &Unstarted{}}, trainedWith(2, full, 9*gib, 1.2)},
			"checkpointing none→full saved 13.0 GiB (22.0→9.0) for 1.2 times the step time"},
	} {
		prices := Prices(gpt(1), test.history)
		if len(prices) != len(test.history) || prices[0] != nil {
			t.Errorf("%s: %v", name, prices)
			continue
		}
		got := ""
		if last := prices[len(prices)-1]; last != nil {
			got = last.String()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A plan that ran out of memory before its peak needed at least what it held and requested.
func TestPriceOfAPlanThatRanOut(t *testing.T) {
	full := sixteen.With(Plan{ActivationCheckpointing: "full"})
	p := Prices(gpt(1), []Attempt{failedAt(0, sixteen, 24*gib), trainedWith(1, full, 9*gib, 1.2)})[1]
	if !p.AtLeast || p.BytesBefore < 23*gib || p.BytesAfter != 9*gib {
		t.Errorf("the plan before held and requested 24 GiB: %+v", p)
	}
	if p.SecondsAfter != 1.2 || p.SecondsBefore != 0 {
		t.Errorf("only the step after was measured: %+v", p)
	}
	if len(p.Remedies) != 1 || p.Remedies[0] != RemedyCheckpointing {
		t.Errorf("%v", p.Remedies)
	}
	after := trainedWith(1, Plan{MicroBatchSize: "8"}, 9*gib, 1)
	after.Observed = Plan{ActivationCheckpointing: "none"} // it reported this once it trained
	if told := Prices(gpt(1), []Attempt{failedAt(0, Plan{MicroBatchSize: "16"}, 24*gib), after})[1]; told == nil || len(told.Remedies) != 1 || told.Remedies[0] != RemedyMicroBatch {
		t.Errorf("what a process tells of itself is no change: %+v", told)
	}
	text, err := json.Marshal(Price{})
	if want := `{"rungs":null,"changed":null}`; err != nil || string(text) != want {
		t.Errorf("what is not known is absent: %s, %v", text, err)
	}
}

// A small size has its own unit. A time that was not measured, and a difference within the error, is not printed.
func TestPriceWords(t *testing.T) {
	for want, p := range map[string]Price{
		"checkpointing none→full saved 0.23 GiB (1.20→0.96)":                             {BytesBefore: 1224 << 20, BytesAfter: 986 << 20, SecondsAfter: 4.82},
		"checkpointing none→full took 2.0 GiB more (4.0→6.0) for 14 times the step time": {BytesBefore: 4 << 30, BytesAfter: 6 << 30, SecondsBefore: 1, SecondsAfter: 14.47},
		"checkpointing none→full saved 63 MiB (900→837)":                                 {BytesBefore: 900 << 20, BytesAfter: 837 << 20},
		"checkpointing none→full saved at least 1.0 GiB (6.0→5.0)":                       {BytesBefore: 6 << 30, AtLeast: true, BytesAfter: 5 << 30},
		"checkpointing none→full for the same step time":                                 {BytesBefore: 2200 << 20, BytesAfter: 2190 << 20, SecondsBefore: 1, SecondsAfter: 1.02},
		"": {BytesBefore: 4 << 30, AtLeast: true, BytesAfter: 5 << 30},
	} {
		p.Changed = Changes{ActivationCheckpointing: {"none", "full"}}
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
