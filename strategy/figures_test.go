package strategy

import (
	"testing"

	"github.com/gpurun/gpurun/strategy/memory"
)

// A peak is written as what it is: predicted, measured, or, of a job that ran out of memory, "at
// least"; all in one unit in which they differ.
func TestPeakWords(t *testing.T) {
	mib := int64(1 << 20)
	predicted := &memory.Prediction{Mean: 36 * gib, Bound: 38 * gib}
	for _, test := range []struct {
		p      *memory.Prediction
		peak   int64
		ranOut bool
		h      *Headroom
		want   string
	}{
		{nil, 0, false, nil, ""},
		{predicted, 0, false, nil, "predicted 36.0–38.0 GiB"},
		{predicted, 37 * gib, false, &Headroom{Room: 40 * gib}, "predicted 36.0–38.0, measured 37.0 of 40.0 GiB"},
		{predicted, 39 * gib, true, nil, "predicted 36.0–38.0, at least 39.0 GiB"},
		{nil, 39 * gib, true, nil, "at least 39.0 GiB"},
		{&memory.Prediction{Mean: 610 * mib, Bound: 640 * mib}, 525 * mib, false, &Headroom{Room: 600 * mib, Free: true}, "predicted 610–640, measured 525 of 600 MiB free"},
	} {
		if got := PeakWords(test.p, test.peak, test.ranOut, test.h); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// The card that would do holds 1.14 times what was allocated at the peak, 1.03 times with
// expandable segments, and what lies outside the allocator.
func TestCardForAMeasuredPeak(t *testing.T) {
	card := func(peak, outside int64, allocator string) int {
		m := ranOutInForward(4, 200<<30)
		m.Total, m.Outside, m.Failed, m.Allowed = 7910*gib/100, outside, "", 0
		fit := memory.NewPredictor(small, memory.DeviceMemory{Total: 80 * gib}, []memory.Measurement{m})
		return smallestCard(fit, memory.RankPlan{Allocator: allocator}, peak, []memory.Measurement{m})
	}
	for _, test := range []struct {
		peak, outside int64
		allocator     string
		want          int
	}{
		{73 * gib / 10, gib, "default", 24},      // 8.3 + 1
		{188 * gib / 10, gib / 2, "default", 24}, // 21.4 + .5 of 22.03
		{188 * gib / 10, gib, "default", 40},
		{20 * gib, gib, "expandable", 24}, // 20.6 + 1
		{20 * gib, gib, "default", 40},
		{73 * gib / 10, 0, "default", 24}, // the driver does not report it
		{68 * gib, gib, "default", 0},     // no smaller one
	} {
		if got := card(test.peak, test.outside, test.allocator); got != test.want {
			t.Errorf("%s and %s outside, %s: %d GB, want %d", GiB(test.peak), GiB(test.outside), test.allocator, got, test.want)
		}
	}
}

// The retries of a job that trained are counted; an error of memory has one in any case.
func TestRetriesOfAnAttempt(t *testing.T) {
	a := trainedWith(0, sixteen, 22*gib, 1)
	a.Measured = append(a.Measured, memory.Measurement{Rank: 1, Retries: 111})
	if n := a.Retries(); n != 111 || RetriesWords(n) != "the allocator freed its cache and retried 111 times: memory was short, which slows training" || RetriesWords(0) != "" {
		t.Errorf("%d: %q", n, RetriesWords(n))
	}
	a.Diagnosis = oom("forward")
	if n := a.Retries(); n != 0 {
		t.Errorf("%d of an attempt that ran out of memory", n)
	}
}

// A step time is shown as known only if steps of the job were timed.
func TestTimesOfCandidates(t *testing.T) {
	for _, timed := range []bool{false, true} {
		j := gpt(1)
		m := ranOutInForward(16, 24<<30)
		m.Plan = memory.RankPlan{MicroBatch: 16, Accumulation: 1, Weights: "fp32", Compute: "fp32"}
		j.Remembered = []memory.Measurement{m}
		if timed {
			good := trainedWith(0, sixteen.With(Plan{MicroBatchSize: "4", GradientAccumulationSteps: "4"}), 9*gib, 1).Measured[0]
			good.Plan = memory.RankPlan{MicroBatch: 4, Accumulation: 4, Weights: "fp32", Compute: "fp32"}
			j.Remembered = append(j.Remembered, good)
		}
		inv := h100
		inv.Device.Total = 24 << 30
		all := Candidates(predicting(nil), j, sixteen, inv)
		if len(all) == 0 || all[0].Seconds == 0 || all[0].Timed != timed {
			t.Errorf("timed %v: %+v", timed, all)
		}
	}
}
