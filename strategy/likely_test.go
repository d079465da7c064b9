package strategy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy/cause"
)

// likelyJob is a job of which only names are known.
func likelyJob(ranks int, batch, accumulation []Likely) Job {
	j := gpt(ranks)
	j.Knobs[MicroBatchSize] = Range{Min: 1, Reported: true, Likely: batch}
	j.Knobs[GradientAccumulationSteps] = Range{Min: 1, Reported: true, Likely: accumulation}
	j.Knobs[Precision], j.Knobs[ActivationCheckpointing] = Range{Absent: "none"}, Range{Absent: "none"}
	j.Written = Plan{Allocator: "expandable"}
	return j
}

var (
	bs    = Likely{Name: "--bs", Key: "bs", Value: "8"}
	train = Likely{Name: "--train-batch", Key: "train_batch", Value: "8"}
	accum = Likely{Name: "--accum", Key: "accum", Value: "2"}
)

// An argument that only its name suggests is changed only if its value is the one that the process uses, or that value
// for all ranks together.
func TestLikelyArgumentsNeedConfirmation(t *testing.T) {
	plan := func(micro, accumulation Value) Plan {
		return Plan{Allocator: "expandable", MicroBatchSize: micro, GradientAccumulationSteps: accumulation}
	}
	by := func(name string, times int) Arguments {
		return Arguments{MicroBatchSize: {Name: name, Times: times}, GradientAccumulationSteps: {Name: "--accum", Times: 1}}
	}
	other := train
	other.Value = "12"
	for name, test := range map[string]struct {
		job      Job
		observed Plan
		parsed   map[string]Value
		next     Plan
		by       Arguments
		skipped  string
	}{
		"the value that the process uses": {likelyJob(1, []Likely{bs}, []Likely{accum}), Plan{MicroBatchSize: "8"}, nil, plan("4", "4"), by("--bs", 1), ""},
		"the parser's value outranks the command": {
			likelyJob(1, []Likely{bs}, []Likely{accum}), Plan{MicroBatchSize: "16"}, map[string]Value{"bs": "16"}, plan("8", "4"), by("--bs", 1), "",
		},
		"not reported": {
			likelyJob(1, []Likely{bs}, []Likely{accum}), nil, nil, nil, nil,
			"no argument is confirmed: the process has not reported it",
		},
		"another value": {
			likelyJob(1, []Likely{bs}, []Likely{accum}), Plan{MicroBatchSize: "32"}, nil, nil, nil,
			"no argument is confirmed: --bs is 8, and the process uses 32",
		},
		"the samples of all ranks": {likelyJob(2, []Likely{bs}, []Likely{accum}), Plan{MicroBatchSize: "4"}, nil, plan("2", "4"), by("--bs", 2), ""},
		"the second name":          {likelyJob(1, []Likely{bs, other}, []Likely{accum}), Plan{MicroBatchSize: "12"}, nil, plan("6", "4"), by("--train-batch", 1), ""},
		"another accumulation": {
			likelyJob(1, []Likely{bs}, []Likely{accum}), Plan{MicroBatchSize: "8", GradientAccumulationSteps: "1"}, nil, nil, nil,
			"gradient accumulation cannot be raised",
		},
		"a value that is not known": {
			likelyJob(1, []Likely{{Name: "--bs", Key: "bs"}}, []Likely{accum}), Plan{MicroBatchSize: "8"}, nil, nil, nil,
			"no argument is confirmed: the value of --bs is not known",
		},
	} {
		history := []Attempt{told(ended(0, test.job.Written, oom(cause.Forward)), test.observed, nil)}
		history[0].Parsed = test.parsed
		d := Decide(Policy{Mode: Ladder, MaxAttempts: 20, Numerics: Preserve}, test.job, history, Inventory{Accelerator: "cuda"})
		if diff := cmp.Diff(test.next, d.Next); diff != "" {
			t.Errorf("%s: next (-want +got):\n%s%s", name, diff, d.Reason)
		}
		if diff := cmp.Diff(test.by, test.job.Arguments(d.Next, history)); diff != "" {
			t.Errorf("%s: arguments (-want +got):\n%s", name, diff)
		}
		for _, s := range d.Skipped {
			if s.Remedy == RemedyMicroBatch && (test.skipped == "" || len(s.Reason) < len(test.skipped) || s.Reason[:len(test.skipped)] != test.skipped) {
				t.Errorf("%s: skipped for %q, want %q", name, s.Reason, test.skipped)
			}
		}
	}
}

// After a start that the processes did not confirm the next name is tried, and none after two such starts.
func TestUnconfirmedStartsAreBounded(t *testing.T) {
	third := Likely{Name: "-b", Key: "b", Value: "8"}
	j := likelyJob(1, []Likely{bs, train, third}, []Likely{accum})
	policy := Policy{Mode: Ladder, MaxAttempts: 20, Numerics: Preserve}
	history := []Attempt{told(ended(0, j.Written, oom(cause.Forward)), Plan{MicroBatchSize: "8"}, nil)}
	for _, want := range []string{"--bs", "--train-batch", ""} {
		d := Decide(policy, j, history, Inventory{Accelerator: "cuda"})
		by := j.Arguments(d.Next, history)
		if by[MicroBatchSize].Name != want || d.Relaunch != (want != "") {
			t.Fatalf("attempt %d changes %q, want %q: %s", len(history), by[MicroBatchSize].Name, want, d.Reason)
		}
		if !d.Relaunch {
			return
		}
		a := told(ended(len(history), d.Next, Diagnosis{Cause: cause.Unknown}), Plan{MicroBatchSize: "8"}, nil)
		a.Halted, a.Arguments, a.Remedy = true, by, RemedyMicroBatch
		history = append(history, a)
	}
}

// An attempt is stopped if a process reports another batch than was asked of an argument, or none.
func TestUnconfirmedBatches(t *testing.T) {
	j := likelyJob(1, []Likely{bs}, []Likely{accum})
	plan := Plan{Allocator: "expandable", MicroBatchSize: "4", GradientAccumulationSteps: "4"}
	for name, test := range map[string]struct {
		observed Plan
		want     Changes
	}{
		"as asked":   {Plan{MicroBatchSize: "4", GradientAccumulationSteps: "4"}, nil},
		"another":    {Plan{MicroBatchSize: "4", GradientAccumulationSteps: "2"}, Changes{GradientAccumulationSteps: {"4", "2"}}},
		"no word":    {Plan{MicroBatchSize: "4"}, Changes{GradientAccumulationSteps: {"4", ""}}},
		"neither":    {nil, Changes{MicroBatchSize: {"4", ""}, GradientAccumulationSteps: {"4", ""}}},
		"other knob": {Plan{MicroBatchSize: "4", GradientAccumulationSteps: "4", Precision: "bf16"}, nil},
	} {
		if diff := cmp.Diff(test.want, j.Unconfirmed(plan, test.observed)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	j.Knobs[GradientAccumulationSteps] = Range{Min: 1}
	if lost := j.Unconfirmed(plan, Plan{MicroBatchSize: "4"}); lost != nil {
		t.Errorf("an argument of a recipe: %v", lost)
	}
}

// A start whose accumulation the process does not confirm counts as one of the two.
func TestStartsWithoutAWordAreBounded(t *testing.T) {
	more := Likely{Name: "--grad-accum", Key: "grad_accum", Value: "2"}
	third := Likely{Name: "--gas", Key: "gas", Value: "2"}
	j := likelyJob(1, []Likely{bs}, []Likely{accum, more, third})
	policy := Policy{Mode: Ladder, MaxAttempts: 20, Numerics: Preserve}
	history := []Attempt{told(ended(0, j.Written, oom(cause.Forward)), Plan{MicroBatchSize: "8"}, nil)}
	for _, want := range []string{"--accum", "--grad-accum", ""} {
		d := Decide(policy, j, history, Inventory{Accelerator: "cuda"})
		by := j.Arguments(d.Next, history)
		if by[GradientAccumulationSteps].Name != want || d.Relaunch != (want != "") {
			t.Fatalf("attempt %d changes %q, want %q: %s", len(history), by[GradientAccumulationSteps].Name, want, d.Reason)
		}
		if !d.Relaunch {
			return
		}
		a := told(ended(len(history), d.Next, Diagnosis{Cause: cause.Unknown}), Plan{MicroBatchSize: d.Next[MicroBatchSize]}, nil)
		a.Halted, a.Arguments, a.Remedy = true, by, RemedyMicroBatch
		history = append(history, a)
	}
}

// A remembered plan is admitted if the job still has the arguments that changed it, and starts by them.
func TestRememberedPlansNameTheirArguments(t *testing.T) {
	by := Arguments{MicroBatchSize: {Name: "--train-batch", Times: 2}, GradientAccumulationSteps: {Name: "--accum", Times: 1}}
	j := likelyJob(2, []Likely{bs, train}, []Likely{accum})
	plan := j.Written.With(Plan{MicroBatchSize: "4", GradientAccumulationSteps: "4"})
	for name, test := range map[string]struct {
		by   Arguments
		want string
	}{
		"as then":         {by, ""},
		"none":            {nil, "the job has no argument that changed the micro batch"},
		"another":         {Arguments{MicroBatchSize: {Name: "--rows"}, GradientAccumulationSteps: by[GradientAccumulationSteps]}, "the job has no argument that changed the micro batch"},
		"of no such rank": {Arguments{MicroBatchSize: by[MicroBatchSize], GradientAccumulationSteps: {Name: "--accum", Times: -1}}, "the job has no argument that changed the accumulation"},
	} {
		if got := Admit(Policy{Mode: Ladder}, j, Inventory{}, Past{Plan: plan, By: test.by}); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	j.Recalled = &Recalled{Plan: plan, By: by}
	if diff := cmp.Diff(by, j.Arguments(plan, nil)); diff != "" {
		t.Errorf("attempt 0 (-want +got):\n%s", diff)
	}
	// Where it runs out of memory, the same arguments are confirmed, and are changed again.
	a := told(ended(0, plan, oom(cause.Forward)), Plan{MicroBatchSize: "4", GradientAccumulationSteps: "4"}, nil)
	a.Arguments, a.Parsed = by, map[string]Value{"train_batch": "8", "accum": "4"}
	d := Decide(Policy{Mode: Ladder, MaxAttempts: 20, Numerics: Preserve}, j, []Attempt{a}, Inventory{Accelerator: "cuda"})
	if d.Next[MicroBatchSize] != "2" || d.Next[GradientAccumulationSteps] != "8" || !cmp.Equal(by, j.Arguments(d.Next, []Attempt{a})) {
		t.Errorf("%v by %v: %s", d.Next, j.Arguments(d.Next, []Attempt{a}), d.Reason)
	}
}
