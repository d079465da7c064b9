package strategy

import (
	"encoding/json"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

func TestSettled(t *testing.T) {
	for _, c := range []struct {
		name string
		with func(d *Decision, last *Attempt, inv *Inventory)
		want bool
	}{
		{"every remedy is impossible", func(*Decision, *Attempt, *Inventory) {}, true},
		{"a bound was reached", func(d *Decision, _ *Attempt, _ *Inventory) { d.Skipped = nil }, false},
		{"the host ran out", func(_ *Decision, last *Attempt, _ *Inventory) { last.Diagnosis.Cause = cause.HostOOM }, false},
		{"another process is there", func(_ *Decision, _ *Attempt, inv *Inventory) { inv.Device.Others = 1 << 30 }, false},
		{"the host is too small for an offload", func(d *Decision, _ *Attempt, _ *Inventory) { d.Skipped[0].Code = SkipHostMemory }, false},
		{"a checkpoint binds the plan", func(_ *Decision, _ *Attempt, inv *Inventory) { inv.Checkpoint = "ckpt-1" }, false},
		{"somebody stopped it", func(_ *Decision, last *Attempt, _ *Inventory) { last.StopSignal = 15 }, false},
		{"it trained", func(d *Decision, _ *Attempt, _ *Inventory) { d.Outcome = Trained }, false},
	} {
		d := Decision{Outcome: Exhausted, Code: CodeExhausted, Skipped: []Skip{{Remedy: RemedyShard, Reason: "there is one rank"}}}
		last, inv := Attempt{Diagnosis: Diagnosis{Cause: cause.CUDAOOM, Fatal: true}}, Inventory{Device: memory.DeviceMemory{Total: 80 << 30}}
		c.with(&d, &last, &inv)
		if got := Settled(d, last, inv); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A missing resource for an offload may be available tomorrow; a setting that the job does not
// have will not be.
func TestTooLittleHostMemoryIsTemporary(t *testing.T) {
	held := int64(8 << 30)
	s := &situation{
		job:       Job{Ranks: 1, LocalRanks: 1, Knobs: map[Knob]Range{OffloadActivations: {Values: []Value{"none", "cpu"}}}},
		plan:      Plan{OffloadActivations: "none"},
		inventory: Inventory{HostAvailable: 1 << 30},
		diagnosis: Diagnosis{Cause: cause.CUDAOOM, Figures: cause.Figures{Allocated: &held}},
	}
	for remedy, want := range map[Remedy]bool{RemedyOffloadActivations: true, RemedyShard: false} {
		if _, skip := s.consider(remedy); skip == nil || skip.passing() != want {
			t.Errorf("%s: %+v, want passing %v", remedy, skip, want)
		}
	}
}

// A journal keeps the kind of each reason, so that a replayed decision is settled, or not, as the first one was.
func TestReasonsKeepTheirKindInJournals(t *testing.T) {
	held := int64(8 << 30)
	offload := Job{Ranks: 1, LocalRanks: 1, Knobs: map[Knob]Range{OffloadActivations: {Values: []Value{"none", "cpu"}}}}
	s := &situation{
		job: offload, plan: Plan{OffloadActivations: "none"}, inventory: Inventory{HostAvailable: 1 << 30},
		diagnosis: Diagnosis{Cause: cause.CUDAOOM, Phase: cause.Forward, Figures: cause.Figures{Allocated: &held}},
	}
	for name, test := range map[string]struct {
		remedy  Remedy
		change  func(*situation)
		code    SkipCode
		passing bool
	}{
		"too little host memory": {RemedyOffloadActivations, func(*situation) {}, SkipHostMemory, true},
		"the phase":              {RemedyOffloadActivations, func(s *situation) { s.diagnosis.Phase = cause.Load }, SkipPhase, false},
		"no setting":             {RemedyShard, func(*situation) {}, SkipSetting, false},
		"no other value":         {RemedyOffloadActivations, func(s *situation) { s.plan = Plan{OffloadActivations: "cpu"} }, SkipValue, false},
		"the policy": {RemedyOffloadActivations, func(s *situation) {
			s.inventory.HostAvailable, s.policy.Never = 0, []string{"offload-activations"}
		}, SkipPolicy, false},
		"a missing part": {RemedyOffloadActivations, func(s *situation) {
			s.inventory = Inventory{Missing: map[Remedy]string{RemedyOffloadActivations: "it is not installed"}}
		}, SkipMissing, true},
	} {
		changed := *s
		test.change(&changed)
		_, skip := changed.consider(test.remedy)
		if skip == nil {
			t.Errorf("%s: not skipped", name)
			continue
		}
		text, err := json.Marshal(skip)
		if err != nil {
			t.Fatal(err)
		}
		var read Skip
		if err := json.Unmarshal(text, &read); err != nil || read.Code != test.code || read.passing() != test.passing || read.Refused != (test.code == SkipPolicy) {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
}
