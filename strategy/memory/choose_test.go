package memory

import (
	"fmt"
	"strings"
	"testing"
)

const gibi = 1 << 30

// measuredJob is a model of a billion parameters in fp32 whose forward of eight samples held a
// gibibyte per block, and ran out of memory after the last of its ten blocks.
func measuredJob(cap int64) Measurement {
	return measuredBlocks(10, cap)
}

// measuredBlocks is the same, out of memory after some of its blocks.
func measuredBlocks(reached int, cap int64) Measurement {
	m := world{params: 1e9, blocks: 10, block: gibi / 8, input: gibi / 128, classes: "Net"}.failed(8, reached, cap)
	m.Plan.Allocator = "expandable"
	m.Model.Hidden = 1024
	return m
}

// with is a candidate plan that differs from the first one.
func with(group, order int, change func(*RankPlan)) PlanCandidate {
	p := measuredJob(0).Plan
	change(&p)
	return PlanCandidate{Plan: p, Group: group, Order: order}
}

func batch(micro int) func(*RankPlan) {
	return func(p *RankPlan) { p.MicroBatch, p.Accumulation = micro, 8/micro }
}

func TestChoose(t *testing.T) {
	checkpointed := func(p *RankPlan) { p.Checkpointing = "full" }
	halved := with(0, 2, batch(4))
	quartered := with(0, 4, batch(2))
	full := with(0, 1, checkpointed)
	autocast := with(1, 10, func(p *RankPlan) { p.Compute = "bf16" })
	offloaded := with(2, 20, func(p *RankPlan) { batch(1)(p); p.OffloadOptimizer = "cpu" })
	tests := []struct {
		name       string
		cap        int64 // GiB
		host       int64
		prefer     string
		candidates []PlanCandidate
		want       int
		rule       string
		runnerUp   string // of its reason
	}{
		{"the fastest that fits", 26, 0, "", []PlanCandidate{full, halved}, 1, "fastest", "slower: "},
		{"the tree's order where that is preferred", 26, 0, "tree", []PlanCandidate{full, halved, quartered}, 0, "tree", ""},
		{"what does not fit loses", 20, 0, "", []PlanCandidate{full, halved, autocast}, 0, "fastest", "needs "},
		{"numerics change only where nothing else fits", 26, 0, "", []PlanCandidate{autocast, quartered}, 1, "fastest", ""},
		{"a tie goes to the tree's order", 26, 0, "", []PlanCandidate{with(0, 7, batch(4)), with(0, 3, batch(4))}, 1, "fastest", "as fast"},
		{"offload last", 12, 0, "", []PlanCandidate{quartered, offloaded}, 1, "fastest", "needs "},
		{"offload needs its host memory", 12, 4, "", []PlanCandidate{quartered, offloaded}, -1, "", ""},
		{"nothing is likely to fit", 9, 0, "", []PlanCandidate{full, halved, quartered, autocast}, -1, "", "needs "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			device := DeviceMemory{Name: "H200", Total: 141 * gibi, Allowed: test.cap * gibi, Host: test.host * gibi, LocalRanks: 1}
			c := Choose(NewPredictor(TrainedModel{}, device, []Measurement{measuredJob(test.cap * gibi)}), test.candidates, test.prefer)
			if c.Index != test.want || c.Rule != test.rule {
				t.Fatalf("chose %d by %q, want %d by %q; outvoted %+v", c.Index, c.Rule, test.want, test.rule, c.Rejected)
			}
			if len(c.Rejected) == 0 || !strings.Contains(c.Rejected[0].Reason, test.runnerUp) {
				t.Errorf("outvoted %+v, want the first to say %q", c.Rejected, test.runnerUp)
			}
			for _, o := range c.Rejected {
				if o.Index == c.Index || o.Reason == "" {
					t.Errorf("outvoted %+v beside the choice %d", o, c.Index)
				}
			}
		})
	}
}

func TestChooseLikelyBeforeTheNextGroup(t *testing.T) {
	halved, autocast := with(0, 2, batch(4)), with(1, 1, func(p *RankPlan) { batch(1)(p); p.Compute = "bf16" })
	cap := int64(0)
	for at := int64(15 * gibi); at < 40*gibi; at += gibi / 64 { // the first cap at which the mean fits, but not the bound
		f := NewPredictor(TrainedModel{}, DeviceMemory{Allowed: at}, []Measurement{measuredBlocks(1, 14*gibi)})
		if p, room := f.Predict(halved.Plan), f.Room(halved.Plan); p.Mean <= room && float64(p.Mean) > .99*float64(room) && p.Bound > room {
			cap = at
			break
		}
	}
	if cap == 0 {
		t.Fatal("no cap lies between the mean and the bound")
	}
	c := Choose(NewPredictor(TrainedModel{}, DeviceMemory{Allowed: cap}, []Measurement{measuredBlocks(1, 14*gibi)}), []PlanCandidate{autocast, halved}, "")
	if c.Index != 1 || c.Rule != "likely" || c.ByMean {
		t.Errorf("chose %d by %q, want the plan that keeps the numerics, as likely", c.Index, c.Rule)
	}
	// Where a step is done again that runs out of memory, the mean with 3 % decides.
	halved.Margin = .03
	for _, cap := range []int64{cap * 94 / 100, cap * 105 / 100, cap * 2} {
		f := NewPredictor(TrainedModel{}, DeviceMemory{Allowed: cap}, []Measurement{measuredBlocks(1, 14*gibi)})
		p, room := f.Predict(halved.Plan), f.Room(halved.Plan)
		fits := 1.03*float64(p.Mean) <= float64(room)
		if c := Choose(f, []PlanCandidate{autocast, halved}, ""); (c.Index == 1 && c.Rule == "fastest") != fits || c.ByMean != (fits && p.Bound > room) {
			t.Errorf("mean %d, bound %d of %d: chose %d by %q, by the mean %v", p.Mean, p.Bound, room, c.Index, c.Rule, c.ByMean)
		}
	}
}

func TestUnknownModel(t *testing.T) {
	plan := measuredJob(0).Plan
	tests := map[string][]Measurement{
		"parameters":     nil,
		"model's blocks": {{Plan: plan, Model: &TrainedModel{Parameters: 1e9, Bytes: map[string]int64{"float32": 4e9}}, Failed: "forward", Allowed: gibi}},
		"micro batch ":   {measuredJob(gibi)},
	}
	for want, seen := range tests {
		f := NewPredictor(TrainedModel{}, DeviceMemory{Total: gibi}, seen)
		p := plan
		if want == "micro batch " {
			p.MicroBatch = 0
		}
		if got := f.Predict(p); !strings.Contains(got.Unknown, want) || got.Bound != 0 {
			t.Errorf("Predict says %+v, want unknown for the %s", got, want)
		}
		if c := Choose(f, []PlanCandidate{{Plan: p}}, ""); c.Index != -1 {
			t.Errorf("chose a plan of which nothing is known: %+v", c)
		}
	}
}

func TestSpeedup(t *testing.T) {
	ran := with(0, 4, batch(1))
	ran.Plan.Checkpointing = "full"
	good := measuredJob(0)
	good.Plan, good.Batch, good.Failed, good.Steps, good.StepSeconds = ran.Plan, 1, "", 20, 2
	good.Marks = nil
	good.Peak = 17 * gibi
	good.Second.OptimizerPeak = good.Peak
	seen := []Measurement{measuredJob(25 * gibi), good}
	faster, numerics := with(0, 2, batch(2)), with(1, 0, func(p *RankPlan) { batch(2)(p); p.Compute = "bf16" })
	f := NewPredictor(TrainedModel{}, DeviceMemory{Name: "H200", Allowed: 24 * gibi}, seen)
	i, gain := FindSpeedup(f, ran.Plan, good, []PlanCandidate{numerics, ran, faster}, false)
	if i != 2 || gain < speedupGain || gain >= 1 {
		t.Errorf("climbs to %d for %.2f, want to the plan without checkpointing that keeps the numerics", i, gain)
	}
	f = NewPredictor(TrainedModel{}, DeviceMemory{Name: "H200", Allowed: 18 * gibi}, seen)
	if i, _ := FindSpeedup(f, ran.Plan, good, []PlanCandidate{faster}, false); i != -1 {
		t.Errorf("climbs to %d where the peak leaves no room", i)
	}
}

// A faster plan is said to fit only if its bound does.
func TestSpeedupToACertainPlan(t *testing.T) {
	ran := with(0, 4, batch(1))
	ran.Plan.Checkpointing = "full"
	good := measuredJob(0)
	good.Plan, good.Batch, good.Failed, good.Steps, good.StepSeconds, good.Marks, good.Peak = ran.Plan, 1, "", 20, 2, nil, 17*gibi
	good.Second.OptimizerPeak = good.Peak
	faster, only := []PlanCandidate{with(0, 2, batch(2))}, 0
	for room := int64(19 * gibi); room < 30*gibi; room += gibi / 32 {
		first := measuredBlocks(1, 25*gibi)
		first.Plan.Compute, first.Autocast = "bf16", "bfloat16" // another precision: the bound is wide
		f := NewPredictor(TrainedModel{}, DeviceMemory{Name: "H200", Allowed: room}, []Measurement{first, good})
		p := f.Predict(faster[0].Plan)
		likely, _ := FindSpeedup(f, ran.Plan, good, faster, false)
		certain, _ := FindSpeedup(f, ran.Plan, good, faster, true)
		if certain >= 0 && (likely < 0 || p.Bound > f.Room(faster[0].Plan)) {
			t.Errorf("%s GiB: %s–%s is said to fit", gib(float64(room)), gib(float64(p.Mean)), gib(float64(p.Bound)))
		}
		if likely >= 0 && certain < 0 {
			only++
		}
	}
	if only == 0 {
		t.Error("no memory is between what is likely and what is certain")
	}
}

// gib formats bytes in GiB, for people.
func gib(bytes float64) string { return fmt.Sprintf("%.1f", bytes/(1<<30)) }
