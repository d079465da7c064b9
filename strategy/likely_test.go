package strategy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy/cause"
)

// likelyJob is a job of which only names are known.
func likelyJob(ranks int, batch, accumulation []Likely) Job {
	j := gpt(ranks)
	j.Knobs[MicroBatchSize] = Range{Min: 1, Told: true, Likely: batch}
	j.Knobs[GradientAccumulationSteps] = Range{Min: 1, Told: true, Likely: accumulation}
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
			if s.Rung == RungMicroBatch && (test.skipped == "" || len(s.Reason) < len(test.skipped) || s.Reason[:len(test.skipped)] != test.skipped) {
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
		a.Halted, a.Arguments, a.Rung = true, by, RungMicroBatch
		history = append(history, a)
	}
}
