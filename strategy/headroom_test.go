package strategy

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// trainedAt is an attempt that trained with a micro batch of 4 on a card, and was measured.
func trainedAt(allowed, total int64) Attempt {
	plan := sixteen.With(Plan{MicroBatchSize: "4", GradientAccumulationSteps: "4"})
	a := ended(0, plan, Diagnosis{Cause: cause.None, Rank: -1})
	m := ranOutInForward(4, 1<<40)
	m.Failed, m.Allocated, m.Requested, m.Allowed, m.Total = "", 0, 0, allowed, total
	forward := m.Start + 24*block*4
	m.First = memory.StepMemory{Forward: forward, ForwardPeak: forward + 1<<30, BackwardPeak: forward + 2<<30, Before: 3200e6, OptimizerPeak: 6400e6, After: 6400e6}
	m.Second = memory.StepMemory{Forward: forward + 3200e6, BackwardPeak: forward + 3200e6 + 2<<30, Before: 6400e6, After: 6400e6}
	m.States, m.Calls, m.Steps, m.StepSeconds, m.CallSeconds = 3200e6, 4, 100, 2, .5
	m.Peak = m.Second.BackwardPeak
	a.Measured = []memory.Measurement{m}
	return a
}

// TestHeadroom: a smaller card or a larger micro batch would fit.
func TestHeadroom(t *testing.T) {
	for _, test := range []struct {
		allowed, total int64
		larger         int
		card           int
		words          string
	}{
		{0, 80 << 30, 16, 24, "; micro batch 16 fits; a card of 24 GB would do"},
		{18 << 30, 80 << 30, 0, 24, "peak "},
		{0, 22 << 30, 0, 0, " left)"},
	} {
		d := Decide(predicting(nil), gpt(1), []Attempt{trainedAt(test.allowed, test.total)}, h100)
		h := d.Headroom
		if h == nil {
			t.Fatalf("%+v", d)
		}
		if h.MicroBatch != test.larger || h.Card != test.card || !strings.Contains(h.Words(), test.words) || h.Peak <= 0 || h.Room < h.Peak {
			t.Errorf("%s: %+v %s", GiB(test.total), h, h.Words())
		}
	}
	unmeasured := trainedAt(0, 80<<30)
	unmeasured.Measured = nil
	if d := Decide(predicting(nil), gpt(1), []Attempt{unmeasured}, h100); d.Headroom != nil || d.Outcome != Trained {
		t.Errorf("nothing was measured: %+v", d)
	}
}

// The peak of an attempt is what a rank held when memory ran out in a step that was done again, not what its steps
// held from then on. No larger batch and no smaller card is proposed.
func TestPeakCountsStepsDoneAgainInPlace(t *testing.T) {
	a := trainedAt(40<<30, 80<<30)
	a.InPlace = []InPlace{{Rank: 0, Remedy: RemedyCheckpointing, Phase: "forward", Times: 1, Requested: 2 << 30, Held: 39 << 30}}
	h := Decide(predicting(nil), gpt(1), []Attempt{a}, h100).Headroom
	if a.Peak() != 39<<30 || h == nil || h.Peak != 39<<30 || h.MicroBatch != 0 || h.Card != 0 {
		t.Errorf("peak %s, headroom %+v", GiB(a.Peak()), h)
	}
}

// TestSmallestCardHasRoom: on a suggested card the planner would choose the plan, including the
// allocator's overhead.
func TestSmallestCardHasRoom(t *testing.T) {
	j := gpt(1)
	for micro := 1; micro <= 16; micro++ {
		plan := sixteen.With(Plan{MicroBatchSize: Number(micro)})
		m := ranOutInForward(micro, 80<<30)
		m.Failed, m.Allocated, m.Requested, m.Allowed, m.Steps = "", 0, 0, 0, 50
		peak := int64(8e9) + 24*block*int64(micro)
		m.First, m.Second = memory.StepMemory{Forward: peak - 1e9, BackwardPeak: peak}, memory.StepMemory{BackwardPeak: peak, OptimizerPeak: peak}
		m.Peak = peak
		s := &situation{policy: predicting(nil), job: j, inventory: h100}
		s.look([]Attempt{{Plan: plan, Measured: []memory.Measurement{m}}})
		h := s.headroom()
		if h == nil || h.Card == 0 {
			continue
		}
		for _, c := range []struct {
			gigabytes  int
			hundredths int64
		}{{24, 2203}, {40, 3938}, {48, 4434}} {
			predictor, _ := s.predictor()
			room := float64(c.hundredths*(1<<30)/100-m.Outside) / 1.06
			if p := predictor.predict(plan); c.gigabytes == h.Card && float64(p.Bound) > room {
				t.Errorf("micro batch %d needs %s, and %d GB have room for %s", micro, GiB(p.Bound), h.Card, GiB(int64(room)))
			}
		}
	}
}

// TestCandidateFitsHostMemory: offloaded states must also fit.
func TestCandidateFitsHostMemory(t *testing.T) {
	j := gpt(1)
	j.Knobs[OffloadOptimizer] = Range{Values: []Value{"none", "cpu"}}
	j.Knobs[Sharding] = Range{Values: []Value{"none", "zero2"}}
	plan := sixteen.With(Plan{OffloadOptimizer: "cpu", Sharding: "zero2", MicroBatchSize: "1", GradientAccumulationSteps: "16"})
	m := ranOutInForward(1, 80<<30)
	m.Failed, m.Plan = "", memory.RankPlan{MicroBatch: 1, Accumulation: 16, Weights: "fp32", Compute: "fp32"}
	j.Remembered = []memory.Measurement{m}
	inv := h100
	inv.Device.Total = 80 << 30
	for host, want := range map[int64]bool{64 << 30: true, 1 << 30: false} {
		inv.HostAvailable = host
		all := Candidates(predicting(nil), j, plan, inv)
		if len(all) == 0 {
			t.Fatal("no candidates")
		}
		for _, c := range all {
			if c.Plan[OffloadOptimizer] == "cpu" && c.Fits != want {
				t.Errorf("%s of host memory: %v: %s", GiB(host), c.Plan, c.Reason)
			}
		}
	}
}

// The free host memory is not all host memory, and is named as free.
func TestHeadroomOfFreeHostMemory(t *testing.T) {
	for want, h := range map[string]Headroom{
		"peak 1.0 of 20.0 GiB (95 % left)":                                                                 {Peak: 1 << 30, Room: 20 << 30},
		"peak 1.0 of 20.0 GiB free (95 % left)":                                                            {Peak: 1 << 30, Room: 20 << 30, Free: true},
		"peak 1.0 of 20.0 GiB (95 % left); micro batch 32 fits":                                            {Peak: 1 << 30, Room: 20 << 30, MicroBatch: 32},
		"peak 1.0 of 20.0 GiB (95 % left); the model was called with a batch of 256, and one of 1024 fits": {Peak: 1 << 30, Room: 20 << 30, MicroBatch: 1024, Called: 256},
	} {
		if got := h.Words(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
