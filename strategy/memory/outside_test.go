package memory

import (
	"math"
	"testing"
)

// Room excludes the memory that the process holds outside its allocator: by the driver's report,
// or else by measurements on an H200; for more ranks than were seen, with their addition.
func TestRoomWithoutOutsideMemory(t *testing.T) {
	const total, small, large = 80 << 30, outsideAlone, outsideTogether
	one, two, zero := RankPlan{Allocator: "expandable"}, RankPlan{Allocator: "expandable", DataParallel: 2}, RankPlan{Allocator: "expandable", DeepSpeed: true, Sharding: "zero2", DataParallel: 1}
	told := func(p RankPlan, bytes int64) []Measurement { return []Measurement{{Plan: p, Outside: bytes}} }
	for name, c := range map[string]struct {
		device DeviceMemory
		seen   []Measurement
		plan   RankPlan
		left   float64 // of the device's memory, before the allocator's own needs
	}{
		"one rank, unknown":             {DeviceMemory{Total: total}, nil, one, total - small},
		"two ranks, unknown":            {DeviceMemory{Total: total}, nil, two, total - large},
		"DeepSpeed, unknown":            {DeviceMemory{Total: total}, nil, zero, total - large},
		"others beside":                 {DeviceMemory{Total: total, Others: 5 << 30}, nil, one, 75<<30 - small},
		"a ceiling that is none":        {DeviceMemory{Total: total, Allowed: total}, nil, two, total - large},
		"a ceiling":                     {DeviceMemory{Total: total, Allowed: 79 << 30}, nil, two, 79 << 30},
		"told":                          {DeviceMemory{Total: total}, told(one, 600<<20), one, total - 600<<20},
		"told of one rank, two wanted":  {DeviceMemory{Total: total}, told(one, 600<<20), two, total - 600<<20 - (large - small)},
		"told of two ranks, one wanted": {DeviceMemory{Total: total}, told(two, 2<<30), one, total - 2<<30},
		"told of two ranks":             {DeviceMemory{Total: total}, told(two, 2<<30), zero, total - 2<<30},
		"a ceiling, and told":           {DeviceMemory{Total: total, Allowed: 40 << 30}, told(one, 600<<20), two, 40 << 30},
		"on the CPU":                    {DeviceMemory{Total: total, CPU: true}, nil, two, total},
	} {
		f := NewPredictor(TrainedModel{Parameters: 1e9}, c.device, c.seen)
		least, _ := f.overhead(c.plan)
		if got, want := f.Room(c.plan), int64(c.left/least); got != want {
			t.Errorf("%s: room of %d bytes, want %d", name, got, want)
		}
	}
}

// Whether a plan of two ranks fits depends on the memory that two ranks leave.
func TestChooseReservesMemoryForNCCL(t *testing.T) {
	heads, rows := readEngineRows(t, "testdata/h200-deepspeed.jsonl")
	m := rows[0].seen(heads[rows[0].Model]) // on one rank
	m.Plan.DeepSpeed = false                // which leaves its context alone
	m.Failed, m.Outside = "forward", 0
	plan := RankPlan{MicroBatch: 1, Weights: "bf16", Compute: "bf16", Checkpointing: "none", Attention: "sdpa", Optimizer: "adamw", Sharding: "fsdp", DataParallel: 2, Allocator: "expandable"}
	bound := float64(NewPredictor(TrainedModel{}, DeviceMemory{}, []Measurement{m}).Predict(plan).Bound) * expandableRoom
	for _, c := range []struct {
		beside float64
		fits   bool
	}{{outsideAlone + 1<<28, false}, {outsideTogether + 1<<28, true}} {
		device := DeviceMemory{Total: int64(bound + c.beside)}
		if got := Choose(NewPredictor(TrainedModel{}, device, []Measurement{m}), []PlanCandidate{{Plan: plan}}, ""); (got.Rule == "fastest") != c.fits {
			t.Errorf("%.0f bytes with %.0f beside them: chosen as %q", bound, c.beside, got.Rule)
		}
	}
}

// What a process on the CPU held before its model needs no margin for the heap: a limit just above it leaves little
// room, but some.
func TestMarginOnTheCPUIsOfWhatTheModelNeeds(t *testing.T) {
	none := int64(0)
	m := Measurement{
		Model: &TrainedModel{Parameters: 1e6, Bytes: map[string]int64{"float32": 4e6}}, Batch: 4, Start: 420e6, StartStates: &none, Failed: "forward",
		Allocated: 440e6, Requested: 1e6, Allowed: 450e6,
	}
	plan := RankPlan{MicroBatch: 4, Weights: "fp32"}
	f := NewPredictor(TrainedModel{}, DeviceMemory{CPU: true, Allowed: 450e6}, []Measurement{m})
	if room, want := f.Room(plan), 416e6+34e6/1.1; math.Abs(float64(room)-want) > 1 || f.Capacity(plan) != 450e6 {
		t.Errorf("a room of %d in %d, want %.0f", room, f.Capacity(plan), want)
	}
	if need, want := f.Suffices(plan, 440e6), 416e6+24e6*1.1; math.Abs(float64(need)-want) > 1 {
		t.Errorf("%d suffice, want %.0f", need, want)
	}
}

// A state that was not loaded is not subtracted from what was held before the model, however much that is.
func TestOnlyAReportedStateWasLoaded(t *testing.T) {
	model := TrainedModel{Parameters: 5e6, Bytes: map[string]int64{"float32": 20e6}}
	base := func(states *int64) float64 {
		m := Measurement{Model: &model, Batch: 4, Start: 460e6, StartStates: states, Failed: "forward", Allocated: 470e6, Requested: 1e6, Optimizer: "AdamW"}
		m.Plan = RankPlan{MicroBatch: 4, Weights: "fp32", Optimizer: "adamw"}
		return NewPredictor(TrainedModel{}, DeviceMemory{CPU: true}, []Measurement{m}).base
	}
	none, all := int64(0), int64(40e6)
	if fresh, resumed := base(&none), base(&all); fresh != 440e6 || resumed != 400e6 {
		t.Errorf("%g bytes before the model, %g if its state was loaded", fresh, resumed)
	}
}
