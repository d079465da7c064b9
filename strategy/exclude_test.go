package strategy

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// runOut lets every attempt of a job run out of memory under a cap, as its process measures it,
// until the run ends. It returns the decisions.
func runOut(t *testing.T, p Policy, j Job, inv Inventory, measured func(n int, plan Plan) memory.Measurement) (all []Decision) {
	t.Helper()
	var history []Attempt
	plan, remedy, expected := sixteen, Remedy(""), (*memory.Prediction)(nil)
	for n := range 30 {
		a := ended(n, plan, oom(cause.Forward))
		a.Remedy, a.Expected, a.Measured = remedy, expected, []memory.Measurement{measured(n, plan)}
		history = append(history, a)
		d := Decide(p, j, history, inv)
		if all = append(all, d); !d.Relaunch {
			return all
		}
		plan, remedy, expected = d.Next, d.Remedy, d.Expected
	}
	t.Fatal("it never ends")
	return nil
}

// TestNoRelaunchThatItsPredictionExcludes: for any memory, no plan is run whose measured prediction
// is above it by more than its error; of plans whose prediction is not measured, one at most.
func TestNoRelaunchThatItsPredictionExcludes(t *testing.T) {
	offloading := gpt(2)
	offloading.Knobs[Sharding] = Range{Values: []Value{"none", "fsdp"}}
	offloading.Knobs[OffloadActivations] = Range{By: ByHook, Values: []Value{"none", "cpu"}}
	batchOnly := gpt(1)
	delete(batchOnly.Knobs, ActivationCheckpointing)
	inPlace := predicting(func(p *Policy) { p.InPlace = true })
	for name, test := range map[string]struct {
		policy Policy
		job    Job
		blind  bool // no block was seen to its end
	}{
		"usual knobs": {predicting(nil), gpt(1), false}, "batch and precision": {predicting(nil), batchOnly, false}, "shard and offload": {predicting(nil), offloading, false},
		"no block was seen": {predicting(nil), gpt(1), true}, "in place": {inPlace, offloading, false},
	} {
		ran := 0
		for room := int64(5 << 30); room < 40<<30; room += 700 << 20 {
			excluded := 0
			for _, d := range runOut(t, test.policy, test.job, h100, func(_ int, plan Plan) memory.Measurement {
				micro, _ := plan.Number(MicroBatchSize)
				m := ranOutInForward(micro, room)
				if test.blind {
					m.Marks[0].Bytes = m.Marks[0].Bytes[:1]
				}
				return m
			}) {
				if e := d.Expected; d.Relaunch && e != nil {
					ran++
					if e.Measured() && 2*e.Mean-e.Bound > room {
						t.Errorf("%s, %s: %v though %s: %s", name, GiB(room), d.Next, span(*e, room), d.Reason)
					} else if !e.Measured() && e.Mean > room {
						excluded++
					}
				}
			}
			if excluded > 1 {
				t.Errorf("%s, %s: %d relaunches of plans that are not predicted to fit", name, GiB(room), excluded)
			}
		}
		if ran == 0 {
			t.Errorf("%s: nothing ran", name)
		}
	}
}

// TestStatesThatCannotFit: a model of 6.0 GiB of states ends at once with the arithmetic, unless a
// shard or an offload that is allowed would make it fit.
func TestStatesThatCannotFit(t *testing.T) {
	const arithmetic = "held between steps: parameters 1.5 + gradients 1.5 + optimizer states 3.0 = 6.0 of 4.7 GiB usable, after every allowed shard and offload"
	sharding := gpt(4)
	sharding.Knobs[Sharding] = Range{Values: []Value{"none", "fsdp"}}
	never := predicting(func(p *Policy) { p.Never = []string{"shard"} })
	sgd := func(m *memory.Measurement) { m.Optimizer = "SGD" }
	for name, test := range map[string]struct {
		policy Policy
		job    Job
		room   int64
		change func(*memory.Measurement)
		phase  cause.Phase
		ends   string // empty: it does not end at once
	}{
		"one GPU":              {predicting(nil), gpt(1), 5 << 30, nil, cause.Forward, arithmetic},
		"in the optimizer":     {predicting(nil), gpt(1), 5 << 30, nil, cause.Optimizer, arithmetic},
		"shard is allowed":     {predicting(nil), sharding, 5 << 30, nil, cause.Forward, ""},
		"shard is not":         {never, sharding, 5 << 30, nil, cause.Forward, "after every allowed shard and offload"},
		"SGD has no states":    {predicting(nil), gpt(1), 5 << 30, sgd, cause.Forward, ""},
		"with the activations": {predicting(nil), gpt(1), 6500 << 20, nil, cause.Forward, "micro batch 16→1, accumulation 1→16, checkpointing none→full, allocator default→expandable needs least, and is predicted to need "},
		"no activations known": {predicting(nil), gpt(1), 5 << 30, func(m *memory.Measurement) { m.Marks, m.Start, m.Batch = nil, 0, 0 }, cause.Optimizer, arithmetic},
		"the ladder":           {defaults, gpt(1), 5 << 30, nil, cause.Forward, ""},
	} {
		a := failedAt(0, sixteen.With(Plan{Sharding: "none"}), test.room)
		a.Diagnosis.Phase = test.phase
		if test.change != nil {
			test.change(&a.Measured[0])
		}
		d := Decide(test.policy, test.job, []Attempt{a}, h100)
		steps := Ending{Policy: test.policy, Job: test.job, History: []Attempt{a}, Inventory: h100, Decision: d}.NextSteps()
		words := strings.Join(stepWords(steps), "\n")
		if d.Relaunch != (test.ends == "") || !strings.Contains(words, test.ends) || !d.Relaunch && d.Code != CodeExhausted {
			t.Errorf("%s: %s\n%s", name, d.Reason, words)
		}
		if !d.Relaunch && !strings.HasSuffix(d.Reason, "; no allowed plan fits") {
			t.Errorf("%s: %s", name, d.Reason)
		}
	}
}
