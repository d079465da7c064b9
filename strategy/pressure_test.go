package strategy

import "testing"

// A warning about memory pressure names what would end it.
func TestMemoryPressureNamesWhatWouldEndIt(t *testing.T) {
	job := codeOnly()
	plan := Plan{Allocator: "default", ActivationCheckpointing: "none"}
	gpu := Inventory{Accelerator: "cuda"}
	for want, test := range map[string]struct {
		never []string
		plan  Plan
	}{
		"allocator default→expandable, or checkpointing none→full": {nil, plan},
		"checkpointing none→full":                                  {nil, plan.With(Plan{Allocator: "expandable"})},
		"allocator default→expandable, or activation offload none→cpu": {
			[]string{"checkpointing"}, plan.With(Plan{OffloadActivations: "none"}),
		},
		"": {[]string{"allocator", "checkpointing", "offload-activations"}, plan.With(Plan{Precision: "fp32"})},
	} {
		test.plan = test.plan.With(Plan{Attention: "sdpa"})
		if got := EndsPressure(Policy{Numerics: MixedPrecision, NumericsSaid: true, Never: test.never}, job, test.plan, gpu); got != want {
			t.Errorf("never %v: %q, want %q", test.never, got, want)
		}
	}
	p := RankPressure{1, Pressure{Retries: 24, Steps: 20, Step: 40}}
	stays := p
	stays.Why = "all that is done in place to need less memory is done already"
	common := "rank 1: the allocator had to free and retry 24 times in 20 steps up to step 40; this slows training"
	for want, got := range map[string]string{
		common: p.Sentence(""),
		common + "; all that is done in place to need less memory is done already; what would end it: a smaller micro batch":                                                               stays.Sentence("a smaller micro batch"),
		"rank 1: the allocator had to free and retry 24 times in 20 steps up to step 40; this slows training; what would end it: allocator default→expandable, or checkpointing none→full": p.Sentence("allocator default→expandable, or checkpointing none→full"),
	} {
		if got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// The ranks under pressure are those whose latest report says so.
func TestMemoryPressureIsOfTheLatestReport(t *testing.T) {
	var e Evidence
	for _, f := range []Fact{
		{Rank: 1, Content: &ProcessReport{PID: 7, Pressure: &Pressure{Retries: 20, Steps: 20, Step: 30}}},
		{Rank: 0, Content: &ProcessReport{PID: 6}},
		{Rank: 2, Content: &ProcessReport{PID: 8, Pressure: &Pressure{}}},
		{Rank: 1, Content: &ProcessReport{PID: 7, Pressure: &Pressure{Retries: 20, Steps: 20, Step: 40}}},
	} {
		e.Add(f)
	}
	if got := e.Pressure(); len(got) != 1 || got[0].Rank != 1 || got[0].Step != 40 {
		t.Errorf("%+v", got)
	}
}
