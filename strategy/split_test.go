package strategy

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// parted is gpt with a hook that can run the model in parts of its batch.
func parted() Job {
	j := gpt(1)
	j.Knobs[ForwardParts] = Range{By: ByHook, Values: ForwardParts.words()}
	return j
}

// Parts of the batch are no help where other memory is missing: two relaunches show that.
func TestTwoFailuresInPartsAreEnough(t *testing.T) {
	full := plain.With(Plan{ActivationCheckpointing: "full", Allocator: "expandable"})
	forward := oom(cause.Forward)
	d := Decide(defaults, parted(), []Attempt{
		asked(ended(0, full, forward)), ended(1, full.With(Plan{ForwardParts: "2"}), forward), ended(2, full.With(Plan{ForwardParts: "8"}), forward),
	}, h100)
	if d.Remedy != RemedyMicroBatch {
		t.Errorf("decided %s: %s", d.Remedy, d.Reason)
	}
}

// moduleless is an attempt whose process trained plain tensors.
func moduleless(a Attempt) Attempt {
	a.Measured = []memory.Measurement{{Failed: "load", Allocated: 1 << 30, Requested: 1 << 28}}
	return a
}

// The parts of the forward follow checkpointing in the order of remedies.
func TestForwardPartsFollowCheckpointing(t *testing.T) {
	full := plain.With(Plan{ActivationCheckpointing: "full", Allocator: "expandable"})
	forward, evaluation := oom(cause.Forward), oom(cause.Eval)
	refuses := asked(ended(0, full, forward))
	refuses.Refused = map[Knob]string{ForwardParts: "the model takes statistics over the batch"}
	for name, test := range map[string]struct {
		history []Attempt
		change  func(*Policy, *Job)
		parts   Value  // of the next plan
		skipped string // the reason why there is no part
	}{
		"two parts first":            {history: []Attempt{asked(ended(0, full, forward))}, parts: "2"},
		"then eight":                 {history: []Attempt{asked(ended(0, full, forward)), ended(1, full.With(Plan{ForwardParts: "2"}), forward)}, parts: "8"},
		"no part without a sample":   {history: []Attempt{asked(ended(0, full.With(Plan{MicroBatchSize: "1"}), forward))}, skipped: "a micro batch of 1 has no more parts"},
		"checkpointing first":        {history: []Attempt{asked(ended(0, plain, forward))}},
		"the process refuses":        {history: []Attempt{refuses}, skipped: "the model takes statistics over the batch"},
		"the process reports no try": {history: []Attempt{ended(0, full, forward)}, skipped: "the job's process did not report whether it can be changed there"},
		"no module was called":       {history: []Attempt{moduleless(ended(0, full, forward))}, skipped: "no nn.Module had been called in the job's process when memory ran out"},
		"the policy bars the remedy": {history: []Attempt{asked(ended(0, full, forward))}, change: func(p *Policy, _ *Job) { p.Never = []string{"split"} }, skipped: `recovery.never lists "split"`},
		"the policy bars the knob":   {history: []Attempt{asked(ended(0, full, forward))}, change: func(p *Policy, _ *Job) { p.Never = []string{"forward_parts"} }, skipped: `recovery.never lists "forward_parts"`},
		"the optimizer's step":       {history: []Attempt{asked(ended(0, full, oom(cause.Optimizer)))}, skipped: "the optimizer step holds no live activations"},
		"ranks that share the model": {history: []Attempt{asked(ended(0, full.With(Plan{Sharding: "zero3"}), forward))}, skipped: wholeModel},
		"an evaluation with a batch": {
			history: []Attempt{asked(ended(0, full.With(Plan{EvalBatchSize: "8"}), evaluation))},
			change:  func(_ *Policy, j *Job) { j.Knobs[EvalBatchSize] = Range{Min: 1} }, skipped: "the evaluation has its own batch size",
		},
		"an evaluation without one": {history: []Attempt{asked(ended(0, full, evaluation))}, parts: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			policy, job := defaults, parted()
			if test.change != nil {
				test.change(&policy, &job)
			}
			d := Decide(policy, job, test.history, h100)
			if d.Next[ForwardParts] != test.parts || test.parts != "" && (d.Remedy != RemedySplit || d.Training != Exact) {
				t.Errorf("decided %s %v, %s: %s", d.Remedy, d.Next, d.Training, d.Reason)
			}
			skipped := ""
			for _, k := range d.Skipped {
				if k.Remedy == RemedySplit {
					skipped = k.Reason
				}
			}
			if !strings.Contains(skipped, test.skipped) || test.skipped == "" && skipped != "" {
				t.Errorf("skipped: %q, want %q", skipped, test.skipped)
			}
		})
	}
}

// The planner takes exact parts of the forward before a smaller micro batch that is not proven,
// and after one that is proven, which needs no second forward.
func TestPlannerWeighsForwardParts(t *testing.T) {
	for name, test := range map[string]struct {
		job    Job
		remedy Remedy
	}{
		"equal on average": {parted(), RemedySplit},
		"proven":           {proven(parted()), RemedyMicroBatch},
	} {
		t.Run(name, func(t *testing.T) {
			failed := asked(failedAt(0, sixteen, 24<<30))
			failed.Loss = LossSeen{Scale: ScaleKept, Uniform: "yes"}
			d := Decide(predicting(func(p *Policy) { p.Never = []string{"checkpointing"} }), test.job, []Attempt{failed}, h100)
			if d.Remedy != test.remedy || d.Training != Exact || d.Expected == nil || d.Expected.Bound > 24<<30 {
				t.Errorf("decided %s %v, %s: %s", d.Remedy, d.Next, d.Training, d.Reason)
			}
		})
	}
}

// A run without a checkpoint that trains in parts of the forward with room to spare is proposed fewer.
func TestFewerForwardPartsAreFaster(t *testing.T) {
	s := &situation{policy: defaults, job: parted()}
	plan := sixteen.With(Plan{ForwardParts: "8"})
	s.look([]Attempt{asked(ended(0, sixteen, oom(cause.Forward))), ended(1, plan, Diagnosis{})})
	found := map[Value]bool{}
	for _, p := range s.higher() {
		if p[MicroBatchSize] == "16" && p[ActivationCheckpointing] == "none" {
			found[p[ForwardParts]] = true
		}
	}
	if !found["4"] || !found["2"] || found["1"] {
		t.Errorf("weighs %v parts in place of 8, and 1 ran out of memory", found)
	}
}
