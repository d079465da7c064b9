package strategy

import (
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// TestPredictedPlansKeepHostChanges: a plan that is chosen for the device's memory does not undo
// changes for the host's, or for an evaluation.
func TestPredictedPlansKeepHostChanges(t *testing.T) {
	j := gpt(1)
	j.Knobs[DataloaderWorkers] = Range{}
	first := sixteen.With(Plan{DataloaderWorkers: "8", PinMemory: "true", EvalBatchSize: "64"})
	kept := Plan{DataloaderWorkers: "4", PinMemory: "false", EvalBatchSize: "32"}
	j.Written = first
	second := failedAt(1, first.With(kept), 24<<30)
	second.Remedy = RemedyWorkers
	host := ended(0, first, Diagnosis{Cause: cause.HostOOM, Fatal: true, Phase: cause.NoPhase, Rank: -1})
	d := Decide(predicting(nil), j, []Attempt{host, second}, h100)
	if !d.Relaunch || d.Expected == nil {
		t.Fatalf("nothing was predicted: %s", d.Reason)
	}
	for k, v := range kept {
		if d.Next[k] != v {
			t.Errorf("%s: %s, want %s (%s)", k, d.Next[k], v, d.Reason)
		}
	}
}

// TestCandidatesKeepTheGlobalBatch: if only the processes report the accumulation, a report for
// one micro batch is not used for another.
func TestCandidatesKeepTheGlobalBatch(t *testing.T) {
	written := sixteen.With(Plan{MicroBatchSize: "6"})
	delete(written, GradientAccumulationSteps)
	halved := written.With(Plan{MicroBatchSize: "3"})
	for name, c := range map[string]struct {
		scope    string
		second   Plan
		recalled bool
	}{
		"on each rank":             {"", halved.With(Plan{GradientAccumulationSteps: "2"}), false},
		"derived":                  {ScopeDerived, halved, false},
		"after a remembered plan":  {"", halved.With(Plan{GradientAccumulationSteps: "2"}), true},
		"derived, with remembered": {ScopeDerived, halved, true},
	} {
		j := gpt(1)
		j.Written, j.Knobs[GradientAccumulationSteps] = written, Range{Scope: c.scope, Reported: true}
		first, second := failedAt(0, written, 14<<30), failedAt(1, c.second, 10<<30)
		first.Observed, second.Observed = Plan{GradientAccumulationSteps: "1"}, Plan{GradientAccumulationSteps: "2"}
		history := []Attempt{first, second}
		if c.recalled {
			j.Recalled, history = &Recalled{Plan: c.second}, []Attempt{second}
		}
		s := &situation{policy: predicting(nil), job: j, inventory: h100}
		s.look(history)
		plans, _ := s.candidates()
		if len(plans) < 4 {
			t.Errorf("%s: %d plans", name, len(plans))
		}
		for _, p := range plans {
			micro, _ := p.Number(MicroBatchSize)
			if b, _ := batchOf(p, j); 6%micro != 0 || c.scope == "" && b.global() != 6 {
				t.Errorf("%s: the global batch was 6: %v", name, p)
			}
		}
	}
}

// TestFailedRememberedPlanIsNotChosen: a remembered plan failed for another reason than memory.
// It is not predicted again when the job as written runs out of memory.
func TestFailedRememberedPlanIsNotChosen(t *testing.T) {
	written := failedAt(0, sixteen, 24<<30)
	j := gpt(1)
	j.Written = sixteen
	best := Decide(predicting(nil), j, []Attempt{written}, h100).Next
	first := ended(0, best, Diagnosis{Cause: cause.UserError, Fatal: true, Error: "RuntimeError: Expected more", Rank: 0})
	written.N, j.Recalled = 1, &Recalled{Plan: best}
	d := Decide(predicting(nil), j, []Attempt{first, written}, h100)
	if !d.Relaunch || len(d.Next.Changed(best)) == 0 {
		t.Errorf("again %v: %s", d.Next, d.Reason)
	}
}
