package strategy

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

func TestUnsteppedNeedsAProcessThatCountsSteps(t *testing.T) {
	said := ProcessReport{PID: 1, Model: &Model{}, Settings: Plan{Optimizer: "sgd"}}
	calls := memory.Measurement{PID: 1, Calls: 8}
	for name, test := range map[string]struct {
		of   func(*ProcessReport, *memory.Measurement)
		want bool
	}{
		"no step":                       {func(*ProcessReport, *memory.Measurement) {}, true},
		"a first step began":            {func(s *ProcessReport, _ *memory.Measurement) { s.Stepping = true }, false},
		"steps were measured":           {func(_ *ProcessReport, m *memory.Measurement) { m.Steps = 1 }, false},
		"no optimizer that is known":    {func(s *ProcessReport, _ *memory.Measurement) { s.Settings = nil }, false},
		"the model is compiled":         {func(s *ProcessReport, _ *memory.Measurement) { s.Model.Compiled = true }, false},
		"the model was not seen":        {func(s *ProcessReport, _ *memory.Measurement) { s.Model = nil }, false},
		"the model was only tried once": {func(_ *ProcessReport, m *memory.Measurement) { m.Calls = 1 }, false},
	} {
		s, model, m := said, *said.Model, calls
		s.Model = &model
		test.of(&s, &m)
		ev := Evidence{Ranks: 1}
		ev.Add(Fact{Rank: 0, Source: "probe", Content: &s})
		ev.Add(Fact{Rank: 0, Source: "probe", Content: (*Measurement)(&m)})
		if ev.Unstepped() != test.want {
			t.Errorf("%s: %v", name, !test.want)
		}
	}
	if (&Evidence{Ranks: 1}).Unstepped() {
		t.Error("a job of which nothing is known has made no step")
	}
}

func TestChangedJobWithoutAStepHasNotTrained(t *testing.T) {
	j := meanLoss()
	smaller := j.Written.With(Plan{MicroBatchSize: "4", GradientAccumulationSteps: "2"})
	failed := Attempt{Plan: j.Written, Diagnosis: oom("backward")}
	for name, test := range map[string]struct {
		history []Attempt
		failed  bool
	}{
		"no step":                                 {[]Attempt{failed, {N: 1, Plan: smaller, Unstepped: true}}, true},
		"no step, though lines look like steps":   {[]Attempt{failed, {N: 1, Plan: smaller, Unstepped: true, Steps: 9}}, true},
		"no step in an attempt that resumes, too": {[]Attempt{failed, {N: 1, Plan: smaller, Unstepped: true, Diagnosis: oom("save")}, {N: 2, Plan: smaller, Unstepped: true, From: "ckpt"}}, true},
		"steps":                                    {[]Attempt{failed, {N: 1, Plan: smaller, Steps: 9}}, false},
		"resumed at its last step":                 {[]Attempt{{Plan: j.Written, Diagnosis: oom("eval"), Steps: 100}, {N: 1, Plan: smaller, From: "ckpt", Unstepped: true}}, false},
		"nothing counts steps":                     {[]Attempt{failed, {N: 1, Plan: smaller}}, false},
		"the batch is as written":                  {[]Attempt{failed, {N: 1, Plan: j.Written.With(Plan{ActivationCheckpointing: "full"}), Unstepped: true}}, false},
		"only the batch of evaluations is changed": {[]Attempt{failed, {N: 1, Plan: j.Written.With(Plan{EvalBatchSize: "4"}), Unstepped: true}}, false},
	} {
		d := Decide(Policy{Mode: Predict, MaxAttempts: 20}, j, test.history, Inventory{Accelerator: "cuda"})
		if test.failed != (d.Outcome == Failed && d.Code == CodeFailed && strings.Contains(d.Reason, "its optimizer made no step with micro batch 8→4, accumulation 1→2: it has not trained")) || !test.failed && d.Outcome != Trained {
			t.Errorf("%s: %s, %d: %s", name, d.Outcome, d.Code, d.Reason)
		}
	}
}

func TestJobThatEndsWhereItsOutputsAreHasNotTrained(t *testing.T) {
	j := meanLoss()
	smaller := j.Written.With(Plan{MicroBatchSize: "4", GradientAccumulationSteps: "2"})
	failed := Attempt{Plan: j.Written, Diagnosis: oom("backward"), Asked: true}
	for name, test := range map[string]struct {
		history []Attempt
		failed  bool
	}{
		"no model":                          {[]Attempt{failed, {N: 1, Plan: smaller}}, true},
		"a model":                           {[]Attempt{failed, {N: 1, Plan: smaller, Asked: true}}, false},
		"steps in the output":               {[]Attempt{failed, {N: 1, Plan: smaller, Steps: 3}}, false},
		"resumed":                           {[]Attempt{failed, {N: 1, Plan: smaller, From: "ckpt"}}, false},
		"no model before either":            {[]Attempt{{Plan: j.Written, Diagnosis: oom("backward")}, {N: 1, Plan: smaller}}, false},
		"ran out in an evaluation":          {[]Attempt{{Plan: j.Written, Diagnosis: oom("eval"), Asked: true}, {N: 1, Plan: smaller}}, false},
		"another cause before":              {[]Attempt{{Plan: j.Written, Diagnosis: Diagnosis{Fatal: true, Cause: cause.NCCLTimeout}, Asked: true}, {N: 1, Plan: j.Written}}, false},
		"the only attempt, without a model": {[]Attempt{{Plan: j.Written}}, false},
	} {
		d := Decide(Policy{Mode: Predict, MaxAttempts: 20}, j, test.history, Inventory{Accelerator: "cuda"})
		if test.failed != (d.Rule == "no-model" && d.Outcome == Failed && strings.Contains(d.Reason, "it has not trained")) || !test.failed && d.Outcome != Trained {
			t.Errorf("%s: %s: %s", name, d.Outcome, d.Reason)
		}
	}
}
